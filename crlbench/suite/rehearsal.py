"""The first golds of an environment, played before it is frozen: what is wrong is said by row and
line of its code."""

from __future__ import annotations

import traceback
import types
from collections.abc import Mapping, Sequence
from typing import Any

from crlbench.catalog.code import entry_point
from crlbench.catalog.frozen import ENVIRONMENT, environment_of
from crlbench.errors import ValidationError
from crlbench.reward.checked import opened, taken
from crlbench.reward.declared import check_start
from crlbench.reward.env import Environment, read_start, read_transcript
from crlbench.reward.limited import bounded

ROWS = 8
"""Golds that are played here; all of them are scored when the task is frozen."""


def require_kind(code: types.ModuleType, kind: str) -> None:
    """CARD and code agree on whether there are episodes.

    Raises:
        ValidationError: they do not.
    """
    if kind != "environment" and hasattr(code, ENVIRONMENT):
        raise ValidationError(
            f'{code.__file__}: defines {ENVIRONMENT}, so CARD must say "kind": "environment"; '
            f"it says {kind!r}."
        )
    if kind == "environment" and code.CARD.get("golds", True):
        raise ValidationError(
            f"{code.__file__}: answers of an environment are starts and no completions, so CARD "
            'must say "golds": False.'
        )


def golds_of(code: types.ModuleType, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The gold transcript of each row; the first ones are played.

    Raises:
        ValidationError: a start is none of the environment's; ``gold`` is missing, raises, or
            returns no whole episode; or the environment breaks a rule of its kind.
    """
    gold, environment, found = bounded(entry_point(code, "gold")), environment_of(code), []
    for row in rows:
        try:
            check_start(environment, row["answer"])
        except ValidationError as error:
            raise ValidationError(f"{code.__file__}: {row['id']}: {error}.") from error
    for number, row in enumerate(rows):
        try:
            found.append(gold(row["answer"]))
        except Exception as error:  # the code is its author's
            raise ValidationError(
                f"{_line(code, error)}: {row['id']}: gold raised {type(error).__name__}: {error}."
            ) from error
        if number < ROWS and (problem := _problem(environment, row["answer"], found[-1])):
            raise ValidationError(f"{code.__file__}: {row['id']}: {problem}.")
    return found


def _problem(environment: Environment, answer: str, gold: object) -> str:
    """What keeps a gold from being a whole episode; "" where nothing does."""
    said = read_transcript(gold) if isinstance(gold, str) else None
    if said is None:
        return f"gold returns {gold!r:.80}, and not the transcript of an episode"
    try:
        start = read_start(answer)
        position = opened(environment, start)
        for number, one in enumerate(said):
            if position.scores is not None:
                return f"the episode is over after {number} turns of the gold {gold!r:.80}"
            position = taken(environment, start, position, one)
    except ValidationError as error:
        return f"{error}; the gold says {gold!r:.80}"
    if position.scores is None:
        return f"the episode goes on after the gold {gold!r:.80}; it must say every turn"
    return ""


def _line(code: types.ModuleType, error: Exception) -> str:
    """File and line of the task's code in which an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.__file__]
    return f"{code.__file__}:{lines[-1]}" if lines else str(code.__file__)
