"""Whether the longest episode of an environment fits into a model's context.

Limits bound what is told and said, in bytes. No limit bounds system texts and the frames around
messages: those are measured, in the first view of every start and in the views that some episodes
reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from crlbench.errors import Interrupted, ValidationError
from crlbench.play.seats import Table
from crlbench.policy.text.frame import Message
from crlbench.reward.env import Position, Said, Start, canonical
from crlbench.reward.playing import open_episode, take_turn
from crlbench.reward.tools import MAX_CALLS

Told = tuple[str, Sequence[Message]]
"""The name of a start, and what a seat is told in an episode from there."""


def check_room(table: Table, views: Iterable[Told], news: Iterable[Told] = ()) -> None:
    """Refuse a context that the longest episode may not fit into.

    A byte of an observation is at most one token.

    Args:
        views: what seats are told which see nothing else: at least one.
        news: what they are told later, where they see their former turns.

    Raises:
        ValidationError: the start, the most tokens that a turn may see, and the context.
    """
    environment, turn = table.environment, table.sampler.max_tokens
    most = environment.max_observation_bytes
    frame, start = max(_frames(table, views), key=lambda found: found[0])
    view = frame + most
    parts, longest = f"its longest view {view} and a turn {turn}", view + turn
    if table.appends:
        count = environment.max_turns - 1
        frames = [_frame_of_turn(table), *(_frame_of_news(table, told) for _, told in _kinds(news))]
        later = count * (max(frames) + most + turn)
        parts += f", and {count} more turns with what is told {later}"
        longest += later
    if longest > table.context:
        raise ValidationError(
            f"task '{table.name}', {start}: an episode may need {longest} tokens at once "
            f"({parts}); the model's context is {table.context}. Nothing is ever cut: choose a "
            "model with a longer context."
        )


def reached(table: Table, start: Start, scripts: Sequence[Sequence[Said]]) -> Iterator[Position]:
    """The positions in which the policy speaks, of the episodes in which it says these turns, over
    and over; none behind one at which the environment fails, which its own rules find."""
    for script in scripts:
        try:
            position = open_episode(table.environment, start)
            while position.scores is None:
                yield position
                said = script[len(position.turns) % len(script)]
                position = take_turn(table.environment, start, position, said)
        except Interrupted:
            raise
        except Exception:  # noqa: S112  (strangers' code: the rules of environments try it)
            continue


def _kinds(told: Iterable[Told]) -> Iterator[Told]:
    """One of each kind: with these system texts, and messages of these roles in this order.

    All that is bounded by a limit is one letter a message.
    """
    kinds: dict[str, Told] = {}
    for start, messages in told:
        blank = [m if m["role"] == "system" else {**m, "content": "x"} for m in messages]
        kinds.setdefault(canonical(blank), (start, blank))
    yield from kinds.values()


def _letters(messages: Sequence[Message]) -> int:
    """Tokens of the contents that a limit bounds, in messages of :func:`_kinds`."""
    return sum(message["role"] != "system" for message in messages)


def _frames(table: Table, views: Iterable[Told]) -> Iterator[tuple[int, str]]:
    """(tokens around what is told, name of a start) of each kind of view."""
    for start, view in _kinds(views):
        yield len(table.dialogue.open_row(view).ids) - _letters(view), start


def _frame_of_turn(table: Table) -> int:
    """Tokens around an observation and a turn in the middle of a dialogue.

    In a template's own form of calls a turn may hold several, each with a result in a frame.
    """
    reply: Message = {"role": "assistant", "content": "x"}
    news, calling = [QUESTION], table.dialogue.calling
    if calling is not None:
        count = MAX_CALLS if calling.form.several else 1
        call = {"type": "function", "function": {"name": "x", "arguments": {"x": "x"}}}
        reply = {**reply, "tool_calls": [call] * count}
        news = [{"role": "tool", "content": "x"}] * count
    return _behind(table, [reply, *news])


def _frame_of_news(table: Table, news: Sequence[Message]) -> int:
    """The same, where what is told are these messages; results of calls stand as there."""
    apart = [m for m in news if m["role"] != "tool" or table.dialogue.calling is None]
    if not apart:
        return 0
    frame = _behind(table, [{"role": "assistant", "content": "x"}, *apart]) - _letters(apart)
    return frame if len(apart) == len(news) else frame + _frame_of_turn(table)


def _behind(table: Table, messages: Sequence[Message]) -> int:
    """Tokens of messages behind a question."""
    short = table.dialogue.open_row([QUESTION]).ids
    return len(table.dialogue.open_row([QUESTION, *messages]).ids) - len(short)


QUESTION: Message = {"role": "user", "content": "x"}
