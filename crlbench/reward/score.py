"""Scores of completions: an outcome each and, where a task judges steps, step rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.errors import EnvironmentUnfit, Interrupted, ValidationError

SHOWN = 80
"""Characters of an offending text that a message shows."""


@dataclass(frozen=True)
class Score:
    """The reward of one completion."""

    outcome: float
    """In [0, 1], for the completion as a whole."""
    steps: tuple[tuple[int, float], ...] = ()
    """(end character, value) pairs in order: value is paid where the text reaches the end."""


def score(
    task_verify: Callable[[str, str], Any],
    texts: Sequence[str],
    answers: Sequence[str],
    task: str = "unnamed",
) -> list[Score]:
    """One :class:`Score` per completion; each depends on its own text and answer only.

    ``task_verify`` returns a number in [0, 1] or a :class:`Score`. Raises
    :class:`ValidationError`, naming the task and the text, when it raises or returns
    anything else: a broken verifier must not train anything. What is no fault of the verifier
    (:class:`EnvironmentUnfit`, :class:`Interrupted`) passes unchanged.
    """
    return [
        _checked(_call(task_verify, text, answer, task), text, task)
        for text, answer in zip(texts, answers, strict=True)
    ]


def outcomes(
    task_verify: Callable[[str, str], Any],
    texts: Sequence[str],
    answers: Sequence[str],
    task: str = "unnamed",
) -> list[float]:
    """The outcomes that :func:`score` gives, without its objects: several times faster."""
    found = []
    for text, answer in zip(texts, answers, strict=True):
        given = _call(task_verify, text, answer, task)
        plain = type(given) is float and 0.0 <= given <= 1.0
        found.append(given if plain else _checked(given, text, task).outcome)
    return found


def _call(task_verify: Callable[[str, str], Any], text: str, answer: str, task: str) -> Any:
    try:
        return task_verify(text, answer)
    except (EnvironmentUnfit, Interrupted):
        raise
    except Exception as error:
        problem = f"raised {type(error).__name__}: {error}"
        raise ValidationError(_message(task, text, problem)) from error


def _checked(given: Any, text: str, task: str) -> Score:
    found = given if isinstance(given, Score) else Score(given)
    problem = _outcome_problem(found) or (_step_problem(found, len(text)) if found.steps else None)
    if problem:
        raise ValidationError(_message(task, text, problem))
    return Score(float(found.outcome), tuple((end, float(value)) for end, value in found.steps))


def _outcome_problem(found: Score) -> str | None:
    if not _is_number(found.outcome) or not 0.0 <= found.outcome <= 1.0:
        return f"returned {found.outcome!r}; allowed: a number from 0 to 1"
    return None


def _step_problem(found: Score, length: int) -> str | None:
    ends = [end for end, _ in found.steps]
    if any(type(end) is not int or not 0 < end <= length for end in ends):
        return f"returned step ends {ends}; allowed: whole numbers from 1 to {length}"
    if any(a >= b for a, b in zip(ends, ends[1:], strict=False)):
        return f"returned step ends {ends}; they must increase"
    values = [value for _, value in found.steps]
    if not all(map(_is_number, values)):
        return f"returned step values {values}; allowed: finite numbers"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _message(task: str, text: str, problem: str) -> str:
    shown = repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
    return f"task '{task}': the verifier {problem}, for the completion {shown}."
