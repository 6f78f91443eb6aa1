"""Episodes in lockstep: all that wait for the policy are decoded together, then take their turns.

A turn is decoded behind exactly the tokens that its row holds. No token that was sampled is ever
tokenised again, and nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from crlbench.errors import ValidationError
from crlbench.play.seats import Table, Visit, turn_uniforms
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import left_pad
from crlbench.policy.text.dialogue import Tokens
from crlbench.policy.text.frame import Message
from crlbench.reward.checked import opened, taken
from crlbench.reward.env import Position, Said, Start, canonical
from crlbench.types import PromptBatch, Rollout


@dataclass(frozen=True)
class Spoken:
    """One turn of the policy, as tokens."""

    seat: int
    turn: int
    """Number of the turn in its episode, those of scripted seats counted."""
    state: str
    """Digest of the state in which it was said."""
    opens: bool
    """Whether it opens a row: ``before`` is a prompt. Else it is a bridge."""
    before: tuple[int, ...]
    """Ids that the policy read, behind what its row held already."""
    ids: tuple[int, ...]
    """Ids that were sampled, the end token included."""
    logprobs: Tensor
    """(t,) float32, those of ``ids`` when they were sampled."""
    values: Tensor | None
    """(t,) float32, the critic's when they were sampled; None without one."""
    said: Said


@dataclass
class Seen:
    """What a seat has read and said so far."""

    messages: list[Message] = field(default_factory=list)
    """The dialogue, its own turns included."""
    row: list[int] = field(default_factory=list)
    """Ids of the present row."""
    text: str = ""
    """What the row spells up to the last turn, as :class:`Tokens` has it."""
    last: Spoken | None = None


@dataclass
class Episode:
    """One episode under way, and in the end."""

    visit: Visit
    number: int
    """Among the episodes of its start."""
    position: Position
    spoken: list[Spoken] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)
    """What the policy's seats have seen, by seat."""

    @property
    def start(self) -> Start:
        return self.visit.start

    @property
    def is_over(self) -> bool:
        return self.position.scores is not None

    @property
    def scores(self) -> tuple[float, ...]:
        """A number of each seat."""
        assert self.position.scores is not None
        return self.position.scores

    @property
    def said(self) -> list[Said]:
        """What the policy said, in order."""
        return [one.said for one in self.spoken]


@torch.no_grad()
def play(
    policy: Policy, table: Table, visits: Sequence[Visit], key: DrawKey, device: torch.device | str
) -> list[Episode]:
    """Whole episodes of every visit, in order of the visits.

    Raises:
        ValidationError: the environment breaks a rule of its kind, or ends an episode before the
            policy has spoken; names the task and the start. Or observations are exchanged, and
            no other start has one for a seat.
    """
    episodes = [
        Episode(visit, number, position)
        for visit in visits
        for position in (_opening(table, visit),)
        for number in range(visit.episodes)
    ]
    opened: Opened = {}
    turns = Turns(table)
    others = Exchange(table, visits) if table.exchanged else None
    while waiting := [episode for episode in episodes if not episode.is_over]:
        shown = [episode.position for episode in waiting] if others is None else others(waiting)
        told = [
            _before(table, episode, position, opened)
            for episode, position in zip(waiting, shown, strict=True)
        ]
        for episode, before, sampled in zip(
            waiting, told, _decoded(policy, table, waiting, told, key, device), strict=True
        ):
            _advance(turns, episode, before, sampled)
    return episodes


def _opening(table: Table, visit: Visit) -> Position:
    """The position in which all episodes of a start begin."""
    try:
        position = opened(table.environment, visit.start)
    except ValidationError as error:
        raise _named(table, visit, error) from error
    if position.scores is not None:
        raise _named(table, visit, "the episode is over before the policy has said anything")
    return position


class Turns:
    """What becomes of a position when a text is said in it, each found once.

    An environment is a pure function, and episodes of a start say the same for a while: as long as
    they do, they share their positions.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.known: dict[tuple[int, str, bool], tuple[Position, Said, Position]] = {}
        """By the position's identity (it is kept, so that it stays its own), text and end."""

    def take(self, episode: Episode, text: str, finished: bool) -> tuple[Said, Position]:
        """What was said, and the next position."""
        position, table = episode.position, self.table
        place = (id(position), text, finished)
        if place not in self.known:
            said = table.reading(text, not finished)
            try:
                after = taken(table.environment, episode.start, position, said)
            except ValidationError as error:
                raise _named(table, episode.visit, error) from error
            self.known[place] = (position, said, after)
        _, said, after = self.known[place]
        return said, after


class Exchange:
    """Tells every episode what one of the next start was told last, in the same seat.

    Starts stand in a ring. Where the next has no observation for the seat, the one behind it is
    asked.
    """

    def __init__(self, table: Table, visits: Sequence[Visit]) -> None:
        self.table = table
        self.ring = {visit.uid: place for place, visit in enumerate(visits)}
        self.uids = [visit.uid for visit in visits]
        self.last: dict[tuple[str, int], dict[int, Position]] = {}
        """By start and seat: the position at which each of its episodes was told something."""

    def __call__(self, waiting: Sequence[Episode]) -> list[Position]:
        """A position for each of the episodes that wait."""
        for episode in waiting:
            place = (episode.visit.uid, episode.position.seat)
            self.last.setdefault(place, {})[episode.number] = episode.position
        return [self._other(episode) for episode in waiting]

    def _other(self, episode: Episode) -> Position:
        place, seat = self.ring[episode.visit.uid], episode.position.seat
        for uid in self.uids[place + 1 :] + self.uids[:place]:
            found = self.last.get((uid, seat))
            if found:
                return found.get(episode.number) or found[min(found)]
        problem = f"observations are exchanged, and no other start has one for seat {seat}"
        raise _named(self.table, episode.visit, problem)


@dataclass(frozen=True)
class _Told:
    """What stands before a turn."""

    tokens: Tokens
    opens: bool
    context: tuple[int, ...]
    """Ids of the whole row up to the turn."""


Opened = dict[str, Tokens]
"""Fresh prompts by the canonical text of their messages: a group reads many alike."""


def _before(table: Table, episode: Episode, position: Position, opened: Opened) -> _Told:
    """What the seat that speaks next reads; its dialogue is brought up to date.

    Args:
        position: whose observations it is told: its own one, unless they are exchanged.
    """
    seen = episode.seen.setdefault(position.seat, Seen())
    try:
        if seen.last is None or not table.appends:
            seen.messages = [*position.view]
        else:
            tokens = table.dialogue.bridge(
                seen.text, seen.last.ids, seen.messages, [*position.news]
            )
            seen.messages += position.news
            if tokens is not None:
                return _Told(tokens, False, (*seen.row, *tokens.ids))
        name = canonical(seen.messages)
        if name not in opened:
            opened[name] = table.dialogue.open_row(seen.messages)
    except ValidationError as error:
        raise _named(table, episode.visit, error) from error
    return _Told(opened[name], True, opened[name].ids)


@dataclass(frozen=True)
class _Sampled:
    """One turn as decoding gives it; fields as those of :class:`Spoken`."""

    ids: tuple[int, ...]
    logprobs: Tensor
    values: Tensor | None
    text: str
    finished: bool


def _decoded(
    policy: Policy,
    table: Table,
    waiting: Sequence[Episode],
    before: Sequence[_Told],
    key: DrawKey,
    device: torch.device | str,
) -> list[_Sampled]:
    """The next turn of each episode.

    Raises:
        ValidationError: a row and its next turn do not fit into the model's context.
    """
    sampler = table.sampler
    for episode, told in zip(waiting, before, strict=True):
        if len(told.context) + sampler.max_tokens > table.context:
            problem = (
                f"turn {len(episode.position.turns)}: its row has {len(told.context)} tokens and a "
                f"turn may have {sampler.max_tokens}; the model's context is {table.context}"
            )
            raise _named(table, episode.visit, problem)
    order, copies = _order(waiting, before)
    prompts = [before[i].context for i in order[::copies]]
    ids, mask = left_pad(prompts, sampler.pad)
    chosen = [waiting[i] for i in order]
    draws = [
        turn_uniforms(
            key, e.visit.uid, e.number, e.position.seat, len(e.position.turns), sampler.max_tokens
        )
        for e in chosen
    ]
    batch = PromptBatch(
        iteration=key.iteration,
        uids=[episode.visit.uid for episode in chosen[::copies]],
        prompt_ids=ids.to(device),
        prompt_mask=mask.to(device),
        answers=[None] * len(prompts),
        completions_per_prompt=copies,
    )
    rollout = sampler.complete(policy, batch, torch.from_numpy(np.array(draws, dtype=np.float64)))
    sampled = dict(zip(order, _rows(rollout), strict=True))
    return [sampled[place] for place in range(len(waiting))]


def _rows(rollout: Rollout) -> Iterator[_Sampled]:
    lengths, finished = rollout.completion_mask.sum(1).tolist(), rollout.finished.tolist()
    ids, logprobs = rollout.completion_ids.tolist(), rollout.behavior_logprobs.cpu()
    values = None if rollout.behavior_values is None else rollout.behavior_values.cpu()
    for row, count in enumerate(lengths):
        yield _Sampled(
            tuple(ids[row][:count]),
            logprobs[row, :count],
            None if values is None else values[row, :count],
            rollout.texts[row],
            finished[row],
        )


def _order(waiting: Sequence[Episode], before: Sequence[_Told]) -> tuple[list[int], int]:
    """The order in which episodes are decoded, and how many rows each prompt has in it.

    Where all episodes of every start read the same, as in their first turn, each prompt is run
    once. Elsewhere each row has its own, and rows of one length stand together.
    """
    copies = waiting[0].visit.episodes
    parts = [before[i : i + copies] for i in range(0, len(before), copies)]
    uids = [{e.visit.uid for e in waiting[i : i + copies]} for i in range(0, len(waiting), copies)]
    if all(len(part) == copies and len({t.context for t in part}) == 1 for part in parts):
        if all(len(names) == 1 for names in uids):
            return list(range(len(waiting))), copies
    return sorted(range(len(waiting)), key=lambda i: len(before[i].context)), 1


def _advance(turns: Turns, episode: Episode, told: _Told, sampled: _Sampled) -> None:
    """Take a turn."""
    position, number = episode.position, len(episode.position.turns)
    text, cut = turns.table.dialogue.spoken(sampled.ids, sampled.text), not sampled.finished
    said, episode.position = turns.take(episode, text, sampled.finished)
    spoken = Spoken(
        seat=position.seat,
        turn=number,
        state=episode.position.turns[number].state,
        opens=told.opens,
        before=told.tokens.ids,
        ids=sampled.ids,
        logprobs=sampled.logprobs,
        values=sampled.values,
        said=said,
    )
    episode.spoken.append(spoken)
    seen = episode.seen[position.seat]
    seen.last, seen.text = spoken, told.tokens.text
    seen.row = [*told.context, *sampled.ids]
    seen.messages = [*seen.messages, turns.table.dialogue.turn(text, cut)]


def _named(table: Table, visit: Visit, problem: object) -> ValidationError:
    return ValidationError(f"task '{table.name}', {visit.uid}: {problem}")
