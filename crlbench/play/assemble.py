"""From turns to rows: what an update learns from, and which row and token belongs to what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from crlbench.play.loop import Episode, Spoken
from crlbench.policy.text.chat import left_pad
from crlbench.reward.env import canonical
from crlbench.reward.playing import earnings
from crlbench.types import Rollout

STATE_DIGITS = 15
"""Hexadecimal digits of a state's digest that fit into an int64."""


@dataclass
class Row:
    """One token stream: a prompt, then turns and what was told between them."""

    place: int
    """The start's number among those of the batch."""
    episode: int
    seat: int
    prompt: tuple[int, ...]
    turns: list[Spoken] = field(default_factory=list)
    last: bool = False
    """Whether it is the last row of its trajectory."""

    def tokens(self) -> Iterator[tuple[int, Spoken | None, int]]:
        """(id, turn that said it, place in the turn) of the completion; None: it was told."""
        for turn in self.turns:
            if not turn.opens:
                yield from ((token, None, 0) for token in turn.before)
            yield from ((token, turn, i) for i, token in enumerate(turn.ids))

    def text(self) -> str:
        """What was said: a text, of several turns a JSON list of them."""
        texts = [turn.said.text for turn in self.turns]
        return texts[0] if len(texts) == 1 else canonical(texts)


@dataclass(frozen=True)
class Rows:
    """The rows of a batch of episodes, and what they earned."""

    rollout: Rollout
    episode: list[int]
    """B: the number of each row's episode in the list that was given."""
    score: Tensor
    """(B,) float32 in [0, 1]: that of the row's seat, on every row of a trajectory."""
    last: Tensor
    """(B,) bool: the last row of a trajectory, at whose end an outcome is paid."""
    earned: list[list[float]]
    """B lists: what each turn of a row earned."""
    turn_ends: list[list[int]]
    """B lists of T: how many turns of the row have ended up to and including each token."""


def assemble(episodes: Sequence[Episode], pad: int, device: torch.device | str = "cpu") -> Rows:
    """The rows of episodes: those of a group together, and in it those of a trajectory.

    Args:
        episodes: as they were played, those of a start together.
        pad: the token that fills rows up.
    """
    rows = _rows(episodes)
    ids, mask = left_pad([row.prompt for row in rows], pad)
    tokens = [list(row.tokens()) for row in rows]
    width = max(map(len, tokens))

    def table(fill: int, dtype: torch.dtype, values: Sequence[Sequence[float]]) -> Tensor:
        filled = [[*some, *[fill] * (width - len(some))] for some in values]
        return torch.tensor(filled, dtype=dtype, device=device)

    said = [[turn for _, turn, _ in some] for some in tokens]
    acted = table(0, torch.bool, [[turn is not None for turn in some] for some in said])
    trajectory = [(row.episode, row.seat) for row in rows]
    cut = {(row.episode, row.seat) for row in rows if row.turns[-1].said.cut}
    valued = rows[0].turns[0].values is not None
    rollout = Rollout(
        prompt_ids=ids.to(device),
        prompt_mask=mask.to(device),
        completion_ids=table(pad, torch.int64, [[token for token, *_ in some] for some in tokens]),
        completion_mask=table(0, torch.bool, [[True] * len(some) for some in tokens]),
        action_mask=acted,
        behavior_logprobs=_per_token(rows, acted, "logprobs"),
        behavior_values=_per_token(rows, acted, "values") if valued else None,
        group=_numbered([(row.place, row.seat) for row in rows], device),
        finished=torch.tensor([name not in cut for name in trajectory], device=device),
        texts=[row.text() for row in rows],
        state=table(-1, torch.int64, [_states(row) for row in rows]),
    )
    if len(rows) > len(episodes) or not all(_is_completion(row) for row in rows):
        turns = [[-1 if turn is None else turn.turn for turn in some] for some in said]
        rollout = _stated(rollout, rows, trajectory, table(-1, torch.int16, turns), device)
    scores = [episodes[row.episode].scores[row.seat] for row in rows]
    return Rows(
        rollout,
        [row.episode for row in rows],
        torch.tensor(scores, dtype=torch.float32, device=device),
        torch.tensor([row.last for row in rows], device=device),
        [_earned(episodes[row.episode], row) for row in rows],
        [_turn_ends(row, width) for row in rows],
    )


def _rows(episodes: Sequence[Episode]) -> list[Row]:
    """All rows, by start, seat, episode and turn."""
    places = {visit: n for n, visit in enumerate(dict.fromkeys(e.visit.uid for e in episodes))}
    rows: list[Row] = []
    for number, episode in enumerate(episodes):
        for seat in sorted({turn.seat for turn in episode.spoken}):
            own: list[Row] = []
            for turn in (one for one in episode.spoken if one.seat == seat):
                if turn.opens:
                    own.append(Row(places[episode.visit.uid], number, seat, turn.before))
                own[-1].turns.append(turn)
            own[-1].last = True
            rows += own
    return sorted(rows, key=lambda row: (row.place, row.seat, row.episode))


def _is_completion(row: Row) -> bool:
    """Whether it is one turn, the first of its episode, said by the first seat."""
    return [(turn.seat, turn.turn) for turn in row.turns] == [(0, 0)]


def _stated(
    rollout: Rollout,
    rows: Sequence[Row],
    trajectory: Sequence[tuple[int, int]],
    turn: Tensor,
    device: torch.device | str,
) -> Rollout:
    """The rollout with everything that one row, one turn and one seat an episode need not say."""
    return replace(
        rollout,
        prompt=_numbered([(row.place, row.prompt) for row in rows], device),
        trajectory=_numbered(trajectory, device),
        episode=torch.tensor([row.episode for row in rows], device=device),
        seat=torch.tensor([row.seat for row in rows], device=device),
        turn=turn,
    )


def _numbered(names: Sequence[object], device: torch.device | str) -> Tensor:
    """(B,) int64: the names counted in order of their first row."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([numbers[name] for name in names], dtype=torch.int64, device=device)


def _per_token(rows: Sequence[Row], acted: Tensor, name: str) -> Tensor:
    """(B, T) float32 of what decoding knew of every token that was said; 0 elsewhere."""
    values = torch.zeros(acted.shape)
    values[acted.cpu()] = torch.cat([getattr(turn, name) for row in rows for turn in row.turns])
    return values.to(acted.device)


def _states(row: Row) -> list[int]:
    """The state in which each token was said; -1 for those that were told."""
    states: list[int] = []
    for turn in row.turns:
        states += [] if turn.opens else [-1] * len(turn.before)
        states += [int(turn.state[:STATE_DIGITS], 16)] * len(turn.ids)
    return states


def _earned(episode: Episode, row: Row) -> list[float]:
    paid = dict(earnings(episode.position.turns, row.seat))
    return [paid[turn.turn] for turn in row.turns]


def _turn_ends(row: Row, width: int) -> list[int]:
    ends, done = [], 0
    for _, turn, place in row.tokens():
        done += turn is not None and place == len(turn.ids) - 1
        ends.append(done)
    return ends + [done] * (width - len(ends))
