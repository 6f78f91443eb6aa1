"""How an episode is played, and played again: turn by turn, with every result checked.

Training, evaluation, the gauntlet and the verifier play by these functions alone. Each call of an
environment's function gets a copy of the state.

This file and :mod:`crlbench.reward.env` are part of the digest of every environment's verifier.
They use the standard library alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench.errors import EnvironmentUnfit, Interrupted, ValidationError
from crlbench.reward.env import (
    ROLES,
    Draw,
    Environment,
    Message,
    Position,
    Said,
    Start,
    Step,
    Turn,
    broken,
    digest,
    read_start,
    read_transcript,
    state_text,
    transcript,
)
from crlbench.reward.score import Score


def open_episode(environment: Environment, start: Start) -> Position:
    """The first position at which the policy speaks, or the end.

    Raises:
        ValidationError: a function of the environment raised, or returned something else than its
            type allows.
    """
    return _until_policy(environment, start, Position(start.state))


def take_turn(environment: Environment, start: Start, position: Position, said: Said) -> Position:
    """The next position at which the policy speaks, after it said something.

    Scripted seats have spoken in between. Raises as :func:`open_episode` does.
    """
    after = _step(environment, start, position, position.seat, said)
    return after if after.scores is not None else _until_policy(environment, start, after)


def _until_policy(environment: Environment, start: Start, position: Position) -> Position:
    rivals = dict(start.rivals)
    while position.scores is None:
        seat = _call(environment, "mover", position.state)
        if type(seat) is not int or not 0 <= seat < environment.seats:
            raise broken("mover", seat, f"a seat, 0 to {environment.seats - 1}")
        if seat not in rivals:
            view = _observation(environment, "observe", position.state, seat)
            news = view
            if environment.news is not None:
                news = _observation(environment, "news", position.state, seat)
            return Position(position.state, position.turns, seat, view, news)
        chance = Draw(start.chance, "rival", len(position.turns))
        text = _call(environment, "rival", rivals[seat], position.state, chance)
        if type(text) is not str:
            raise broken("rival", text, "a text")
        position = _step(environment, start, position, seat, Said(text))
    return position


def _step(
    environment: Environment, start: Start, position: Position, seat: int, said: Said
) -> Position:
    chance = Draw(start.chance, "step", len(position.turns))
    step = _call(environment, "step", position.state, said, chance)
    if not isinstance(step, Step) or type(step.over) is not bool or type(step.fault) is not str:
        raise broken("step", step, "a Step")
    state = state_text(step.state, environment.max_state_bytes)
    paid = step.paid if step.paid != () else (0.0,) * environment.seats
    if not _are_numbers(paid, environment.seats):
        raise broken("step", step.paid, f"paid: {environment.seats} finite numbers, or none")
    turn = Turn(seat, digest(position.state), said, tuple(map(float, paid)), step.fault)
    turns = (*position.turns, turn)
    if not (step.over or said.cut or len(turns) >= environment.max_turns):
        return Position(state, turns)
    scores = _call(environment, "score", state)
    if not _are_numbers(scores, environment.seats) or not all(0.0 <= s <= 1.0 for s in scores):
        raise broken("score", scores, f"{environment.seats} numbers from 0 to 1")
    return Position(state, turns, seat, scores=tuple(map(float, scores)))


def _call(environment: Environment, name: str, *arguments: Any) -> Any:
    """What a function of the environment returns; a state is handed over as a copy."""
    function = getattr(environment, name)
    if function is None:
        raise ValidationError(f"the environment defines no function '{name}', which this needs")
    place = 1 if name == "rival" else 0
    given = [json.loads(a) if i == place else a for i, a in enumerate(arguments)]
    try:
        return function(*given)
    except (EnvironmentUnfit, Interrupted):
        raise
    except Exception as error:
        raise ValidationError(f"{name} raised {type(error).__name__}: {error}") from error


def _observation(environment: Environment, name: str, state: str, seat: int) -> tuple[Message, ...]:
    messages = _call(environment, name, state, seat)
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        allowed = f"messages with role ({', '.join(ROLES)}) and content, the last no system's"
        raise broken(name, messages, allowed)
    if messages[-1]["role"] == "system":
        raise broken(name, messages, "messages of which the last is no system's")
    size = observation_bytes(messages)
    if size > environment.max_observation_bytes:
        limit = environment.max_observation_bytes
        raise broken(name, messages, f"at most {limit} bytes, and these are {size}")
    return tuple(dict(message) for message in messages)


def observation_bytes(messages: Sequence[Mapping[str, str]]) -> int:
    """Bytes of what messages tell a seat, the system's left out."""
    texts = [message["content"] for message in messages if message["role"] != "system"]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and value["role"] in ROLES
        and type(value["content"]) is str
    )


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, tuple)
        and len(values) == count
        and all(type(v) in (int, float) and math.isfinite(v) for v in values)
    )


def replay(environment: Environment, start: Start, said: Sequence[Said]) -> Position | None:
    """The end of an episode in which the policy said this; None where it does not end with it."""
    position = open_episode(environment, start)
    for one in said:
        if position.scores is not None:
            return None
        position = take_turn(environment, start, position, one)
    return position if position.scores is not None else None


def replayed(environment: Environment) -> Callable[[str, str], Score]:
    """A verifier that plays transcripts again.

    Its outcome is the score of the start's seat; its steps are what that seat earned by turns,
    paid where the transcript has said the turn. A text that is no whole transcript of the start
    gets 0.
    """

    def verify(text: str, answer: str) -> Score:
        start, said = read_start(answer), read_transcript(text)
        end = None if said is None else replay(environment, start, said)
        if said is None or end is None or end.scores is None:
            return Score(0.0)
        return Score(end.scores[start.seat], _steps(start, end, said))

    return verify


def _steps(start: Start, end: Position, said: Sequence[Said]) -> tuple[tuple[int, float], ...]:
    """(end character, value) of every turn of the start's seat that paid it."""
    rivals = {seat for seat, _ in start.rivals}
    spoken = [number for number, turn in enumerate(end.turns) if turn.seat not in rivals]
    paid = dict(earnings(end.turns, start.seat))
    ends = [len(transcript(said[: count + 1])) - 1 for count in range(len(said))]
    values = [paid.get(number, 0.0) for number in spoken]
    return tuple((end, value) for end, value in zip(ends, values, strict=True) if value)


def earnings(turns: Sequence[Turn], seat: int) -> list[tuple[int, float]]:
    """(number of a turn, what it earned) for all turns of a seat, in order.

    What others' turns pay the seat belongs to its own turn before, or to its first one.
    """
    paid = [[number, 0.0] for number, turn in enumerate(turns) if turn.seat == seat]
    place = -1
    for turn in turns:
        place += turn.seat == seat
        if paid:
            paid[max(place, 0)][1] += turn.paid[seat]
    return [(int(number), value) for number, value in paid]
