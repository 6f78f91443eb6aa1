"""How much of a task a check looks at: all of it, or a part drawn by hashing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from crlbench import seeding
from crlbench.catalog.frozen import Row, Task
from crlbench.errors import unknown_name

Level = Literal["quick", "full"]


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
