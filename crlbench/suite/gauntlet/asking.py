"""Asking the code of a task: in this process if it is a plain task, else where it is confined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.confine import questions
from crlbench.confine.task import ConfinedTask
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.reward.score import outcomes
from crlbench.suite import external


def ask(task: Task, name: str, *arguments: Any, **named: Any) -> Any:
    """The answer to a question of :mod:`crlbench.confine.questions`."""
    if isinstance(task, ConfinedTask):
        return task.ask(name, *arguments, **named)
    return getattr(questions, name)(task.code, *arguments, **named)


def judged(task: Task, judge: str, texts: Sequence[str], answers: Sequence[str]) -> list[float]:
    """What ``verify`` or ``audit`` of a task pays for completions.

    Raises:
        ValidationError: it raised, or returned what is no score.
    """
    return outcomes(task.judge_of(judge, texts, answers), texts, answers, task.name)


def defined(task: Task, function: str) -> bool:
    """Whether a task's code defines a function of that name."""
    if isinstance(task, ConfinedTask):
        return function in task.facts["functions"]
    return hasattr(task.code, function)


def null_texts(task: Task) -> list[str]:
    """What policies that know nothing say in a task whose answers are no completions."""
    texts = ask(task, "facts")["null_texts"]
    if not texts:
        raise ValidationError(
            f"{task.folder / task.card.generator.module}: CARD says golds = False, so NULL_TEXTS"
            " must hold the completions that policies without knowledge are measured by."
        )
    return texts


def made(task: Task, splits: Sequence[str]) -> dict[str, bytes]:
    """The split files that a task's code makes, by split.

    Raises:
        EnvironmentUnfit: the dataset's files are not on this machine.
        ValidationError: what the code raised.
    """
    source = task.card.source
    files = None if source is None else external.stored_sources(source, task.spec)
    return {split: _lines(task, split, files) for split in splits}


def _lines(task: Task, split: str, files: Mapping[str, bytes] | None) -> bytes:
    try:
        return ask(task, "lines", split, files=files)
    except CrlbenchError:
        raise
    except Exception as error:  # the task's own code may raise anything
        raise ValidationError(
            f"{task.folder / task.card.generator.module}: build('{split}') failed:"
            f" {type(error).__name__}: {error}. Rows hold messages, answer, level (1, 2 or 3),"
            " template, key and meta."
        ) from error
