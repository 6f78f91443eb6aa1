"""Episodes as :mod:`crlbench.reward.playing` plays them, and a message for whatever is wrong.

The checks of that module fail with exceptions of their own where a value is too large for a float,
or has no text. Its bytes are part of the digest of every environment. So all who play an
environment, the verifier alone excepted, do it through here: each exception becomes one message
that names the function. Payments are bounded, and what is told is text that can be encoded.

No task imports this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from crlbench.errors import EnvironmentUnfit, Interrupted, ValidationError
from crlbench.reward.env import Environment, Message, Position, Said, Start, broken
from crlbench.reward.playing import open_episode, take_turn

MOST_PAID = 1e6
"""Largest payment of a turn to a seat, and the largest loss: their sums keep digits in float32."""


def opened(environment: Environment, start: Start) -> Position:
    """The first position at which the policy speaks, or the end.

    Raises:
        ValidationError: what a function raised, or returned that it may not.
    """
    position = _played(environment, lambda played: open_episode(played, start))
    return _sound(position, 0)


def taken(environment: Environment, start: Start, position: Position, said: Said) -> Position:
    """The next position at which the policy speaks, after it said something.

    Raises as :func:`opened` does.
    """
    after = _played(environment, lambda played: take_turn(played, start, position, said))
    # No model says half a character, so to tell one that was said is no mistake.
    return _sound(after, len(position.turns), _is_encodable(said.text))


def scored(environment: Environment, state: str) -> tuple[float, ...]:
    """What each seat scores in a state, whether the episode is over or not.

    Raises:
        ValidationError: ``score`` raised, or returned anything but a number in [0, 1] per seat.
    """
    try:
        scores = environment.score(json.loads(state))
    except (EnvironmentUnfit, Interrupted):
        raise
    except Exception as error:  # the task's own code may raise anything
        raise ValidationError(f"score raised {type(error).__name__}: {error}") from error
    is_sound = isinstance(scores, tuple) and len(scores) == environment.seats
    if not is_sound or not all(type(s) in (int, float) and 0 <= s <= 1 for s in scores):
        raise refused("score", scores, f"{environment.seats} numbers from 0 to 1, in any state")
    return tuple(map(float, scores))


def refused(name: str, value: Any, allowed: str) -> ValidationError:
    """What is wrong with something that a function returned, also where it cannot be shown."""
    try:
        return broken(name, value, allowed)
    except Exception as error:  # a value may raise anything when it is shown
        kind, why = type(value).__name__, type(error).__name__
        return ValidationError(
            f"{name} returned a {kind} that cannot be shown ({why}: {error}); allowed: {allowed}"
        )


def _played(environment: Environment, play: Callable[[Environment], Position]) -> Position:
    try:
        return play(environment)
    except (ValidationError, EnvironmentUnfit, Interrupted):
        raise
    except Exception as error:  # a check that met what it cannot compare or show
        raise ValidationError(
            f"{_last_called(environment, play)} returned what cannot be checked: "
            f"{type(error).__name__}: {error}; allowed: numbers that a float holds, and JSON data"
        ) from error


def _last_called(environment: Environment, play: Callable[[Environment], Position]) -> str:
    """The function of an environment after which playing fails, found by playing again."""
    called = ["the environment"]

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            called.append(name)
            return function(*arguments)

        return call

    values = {field.name: getattr(environment, field.name) for field in fields(environment)}
    functions: dict[str, Any] = {n: noting(n, v) for n, v in values.items() if callable(v)}
    try:
        play(replace(environment, **functions))
    except Exception:  # the same one again
        pass
    return called[-1]


def _sound(position: Position, first: int, told: bool = True) -> Position:
    """The position; its turns from ``first`` on pay what can be added, and it tells text.

    Args:
        told: whether what is told is looked at.
    """
    for turn in position.turns[first:]:
        if any(abs(value) > MOST_PAID for value in turn.paid):
            allowed = f"paid: numbers from {-MOST_PAID:g} to {MOST_PAID:g}"
            raise broken("step", turn.paid, allowed)
    if told:
        _check_told("observe", position.view)
        if position.news is not position.view:
            _check_told("news", position.news)
    return position


def _check_told(name: str, messages: tuple[Message, ...]) -> None:
    for message in messages:
        if not _is_encodable(message["content"]):
            raise broken(name, message, "text that UTF-8 can encode: no half characters")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
