"""How a task is asked: where its code answers, and how much of the task a check looks at.

A plain task answers in this process, a confined one elsewhere, also under another hash seed, locale
and time zone. Its answers are data: the bytes of split files, or verdicts.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from crlbench import seeding
from crlbench.catalog.frozen import Task, environment_of
from crlbench.catalog.rows import Row
from crlbench.confine import questions
from crlbench.confine.room import Room
from crlbench.confine.task import ConfinedTask
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import ValidationError, unknown_name
from crlbench.reward.score import outcomes
from crlbench.reward.trials import TRIALS
from crlbench.suite import external
from crlbench.suite.golds import require_null_texts

Level = Literal["quick", "full"]
ELSEWHERE = {"PYTHONHASHSEED": "4711", "TZ": "CHAST-12:45", "LC_ALL": "C", "LANG": "C"}
"""Environment of the other process. The zone is that of Chatham, in winter."""


def ask(task: Task, name: str, *arguments: Any, **named: Any) -> Any:
    """The answer to a question of :mod:`crlbench.confine.questions`."""
    if isinstance(task, ConfinedTask):
        return task.ask(name, *arguments, **named)
    if name == "tried":  # whose calls are limited; a confined process has limits of its own
        trial, *rest = arguments
        return TRIALS[trial](environment_of(task.code), *rest)
    return getattr(questions, name)(task.code, *arguments, **named)


def judge(task: Task, function: str, texts: Sequence[str], answers: Sequence[str]) -> list[float]:
    """What ``verify`` or ``audit`` of a task pays for completions.

    Raises:
        ValidationError: it raised, or returned what is no score.
    """
    return outcomes(task.judge_of(function, texts, answers), texts, answers, task.name)


def defines(task: Task, function: str) -> bool:
    """Whether a task's code defines a function of that name."""
    if isinstance(task, ConfinedTask):
        return function in task.facts["functions"]
    return hasattr(task.code, function)


def null_texts(task: Task) -> list[str]:
    """What policies that know nothing say in a task whose answers are no completions."""
    return require_null_texts(ask(task, "facts")["null_texts"], _code(task))


def make(task: Task, splits: Sequence[str]) -> dict[str, bytes]:
    """The split files that a task's code makes, by split.

    Raises:
        EnvironmentUnfit: the dataset's files are not on this machine.
        ValidationError: what the code raised.
    """
    source = task.card.source
    files = None if source is None else external.stored_sources(source, task.spec)
    contents = {}
    for split in splits:
        with external.building(_code(task), split):
            contents[split] = ask(task, "lines", split, files=files)
    return contents


def _code(task: Task) -> Path:
    return task.folder / task.card.generator.module


def digests_elsewhere(task: Task, splits: Sequence[str]) -> dict[str, str]:
    """SHA-256 of split files, made from a task's code in another process."""
    with _elsewhere(task) as other:
        return {split: sha256_bytes(data) for split, data in make(other, splits).items()}


def verdicts_elsewhere(task: Task, cases: Sequence[tuple[str, str]]) -> list[float]:
    """What the verifier says in another process to pairs of completion and answer."""
    with _elsewhere(task) as other:
        return judge(other, "verify", [text for text, _ in cases], [answer for _, answer in cases])


def ask_elsewhere(task: Task, name: str, *arguments: Any) -> Any:
    """The answer of a task's code in another process."""
    with _elsewhere(task) as other:
        return other.ask(name, *arguments)


@contextmanager
def _elsewhere(task: Task) -> Iterator[ConfinedTask]:
    home = task.rows_folder.parents[1] if task.card.source is not None else None
    with ConfinedTask(task.folder, home, _room(os.getpid())) as other:
        try:
            yield other
        except ValidationError as error:
            raise ValidationError(f"in another process: {error}") from None


@functools.cache
def _room(process: int) -> Room:
    room = Room(ELSEWHERE)
    atexit.register(room.close)
    return room


@dataclass(frozen=True)
class Effort:
    """The largest number of each thing to look at; None is all of them."""

    golds: int | None
    """Rows of a split whose gold completion is judged."""
    items: int | None
    """Rows of a split whose mutants are judged."""
    mutants: int | None
    """Mutants of a row."""
    attacks: int | None
    """Rows of a split that the adversarial battery is tried on."""
    constants: int | None
    """Answers that are tried as the best single answer of a split."""
    texts: int | None
    """Random texts that verifier and audit must survive."""
    splits: tuple[str, ...] | None
    """Splits that are made again."""


_EFFORTS = {
    ("quick", False): Effort(None, 24, 12, 32, 16, 120, ("id",)),
    ("full", False): Effort(None, None, None, None, None, None, None),
    ("quick", True): Effort(5, 3, 2, 8, 3, 24, ("id",)),
    ("full", True): Effort(None, 64, 4, 64, 16, None, None),
}
"""Efforts by level, and by whether the task's card says that its verifier is ``heavy``."""


def effort_of(task: Task, level: Level) -> Effort:
    """What a level of effort means for a task."""
    if level not in get_args(Level):
        raise unknown_name("effort", level, get_args(Level))
    return _EFFORTS[level, task.card.heavy]


def draw_rows(rows: Sequence[Row], count: int | None, task: str, purpose: str) -> list[Row]:
    """At most ``count`` of the rows, chosen by the hash of their ids, in file order."""
    ids = {row["id"]: row for row in rows}
    return [ids[name] for name in draw_texts([*ids], count, task, purpose)]


def draw_texts(texts: Sequence[str], count: int | None, task: str, purpose: str) -> list[str]:
    """At most ``count`` of the texts, chosen by their hashes, in the order given."""
    if count is None or len(texts) <= count:
        return list(texts)

    def place(text: str) -> int:
        return seeding.derive(0, "gauntlet", purpose, task, text)

    chosen = {*sorted(texts, key=place)[:count]}
    return [text for text in texts if text in chosen]
