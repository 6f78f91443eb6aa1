"""The split builder of tasks whose items are few or many: start states of games and worlds.

The drawing is that of :mod:`crlbench.reward.splits`, with sizes of the task's own; at the sizes
of that module the rows are the same. Of a small space training has what evaluation leaves: about
65 of 100 keys.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from crlbench.errors import ValidationError, unknown_name

# Private names: the bytes of that module are part of every task's digest, so they stay.
from crlbench.reward.splits import (
    FORMAT_ITEMS,
    FORMAT_TEMPLATES,
    PARENTS,
    PATIENCE,
    PLANS,
    SPLITS,
    TRAIN_FIXED_COUNT,
    Drawn,
    Item,
    Plan,
    _candidates,
    _numbered,
    _retell,
    content_hash,
    freeze_rng,
    held_out,
)


@dataclass(frozen=True)
class Sizes:
    """Rows of each split; by default those of :mod:`crlbench.reward.splits`.

    Raises:
        ValidationError: a size that no split can have.
    """

    train: int = PLANS["train"].count
    train_fixed: int = TRAIN_FIXED_COUNT
    id: int = PLANS["id"].count
    hard: int = PLANS["hard"].count
    format: int = FORMAT_ITEMS * len(FORMAT_TEMPLATES)
    """A multiple of five: each of its items is told in all five templates."""

    def __post_init__(self) -> None:
        for split, size in dataclasses.asdict(self).items():
            if type(size) is not int or size < 1:
                raise ValidationError(f"sizes.{split}: {size!r} is not a whole number above 0.")
        if self.format % len(FORMAT_TEMPLATES):
            raise ValidationError(
                f"sizes.format: {self.format} rows are no multiple of {len(FORMAT_TEMPLATES)}; each"
                " item is told in that many templates."
            )
        for split, items in self._taken().items():
            parent = PARENTS[split]
            if items > getattr(self, parent):
                raise ValidationError(
                    f"sizes.{split}: {self.of(split)} rows need {items} items of the split"
                    f" '{parent}', which has {getattr(self, parent)} rows."
                )

    def of(self, split: str) -> int:
        """The rows of a split by name."""
        size: int = getattr(self, split)
        return size

    def _taken(self) -> dict[str, int]:
        """Items that splits take of their parents."""
        return {"train_fixed": self.train_fixed, "format": self.format // len(FORMAT_TEMPLATES)}


Name = Callable[[dict[str, Any]], str]
"""What tells training rows apart."""


def by_text(row: dict[str, Any]) -> str:
    """A training row is told by what a model is shown."""
    return content_hash(row["messages"])


def by_start(row: dict[str, Any]) -> str:
    """A training row is told by where its episode starts, which a first view need not show."""
    start: str = row["answer"]
    return start


def build_split(
    task: str,
    version: str,
    item: Item,
    split: str,
    rng: random.Random,
    sizes: Sizes,
    name: Name = by_text,
) -> list[dict[str, Any]]:
    """All rows of a split, as :func:`crlbench.reward.splits.build_split` makes them.

    Training rows hold each ``name`` once; those of evaluation hold each key once.

    Raises:
        ValidationError: a level holds too few distinct items on its side of the fence.
        UsageError: there is no such split.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if split in PLANS:
        rows = _draw(task, item, split, rng, sizes, name)
    else:
        parents = _parent_rows(task, version, item, split, sizes, name)
        if split == "train_fixed":
            rows = _subset(parents, sizes.train_fixed, rng)
        else:
            chosen = _subset(parents, sizes.format // len(FORMAT_TEMPLATES), rng)
            rows = [_retell(item, row, seed, t) for row, seed in chosen for t in FORMAT_TEMPLATES]
    return [_numbered(split, i, row) for i, (row, _) in enumerate(rows)]


def _draw(
    task: str, item: Item, split: str, rng: random.Random, sizes: Sizes, name: Name
) -> list[Drawn]:
    plan = dataclasses.replace(PLANS[split], count=sizes.of(split))
    found: list[Drawn] = []
    taken: set[str] = set()
    for i in range(plan.count):
        level = plan.levels[i % len(plan.levels)]
        for row, seed in _candidates(item, level, rng):
            told = row["key"] if plan.held_out else name(row)
            if held_out(task, row["key"]) == plan.held_out and told not in taken:
                taken.add(told)
                found.append((row, seed))
                break
        else:
            raise ValidationError(_exhausted(task, split, plan, level, found))
    return found


def _exhausted(task: str, split: str, plan: Plan, level: int, found: list[Drawn]) -> str:
    have = sum(row["level"] == level for row, _ in found)
    share = sum(plan.levels[i % len(plan.levels)] == level for i in range(plan.count))
    side = "held out for evaluation" if plan.held_out else "left to training"
    lower = f"Lower sizes.{split} to {len(found)}, or widen" if found else "Widen"
    return (
        f"task '{task}': the split '{split}' needs {share} items of level {level}, and the level"
        f" has {have} that are {side}: {PATIENCE} draws in a row gave no other. {lower} level"
        f" {level} in the task's item()."
    )


def _parent_rows(
    task: str, version: str, item: Item, split: str, sizes: Sizes, name: Name
) -> list[Drawn]:
    parent = PARENTS[split]
    drawn = _draw(task, item, parent, freeze_rng(task, version, parent), sizes, name)
    return [
        ({**row, "meta": {**row["meta"], "source": f"{parent}-{i:05d}"}}, seed)
        for i, (row, seed) in enumerate(drawn)
    ]


def _subset(rows: list[Drawn], count: int, rng: random.Random) -> list[Drawn]:
    """``count`` rows, levels in turn; where they do not divide evenly, one more of the first."""
    levels = sorted({row["level"] for row, _ in rows})
    share, rest = divmod(count, len(levels))
    per_level = [
        rng.sample([drawn for drawn in rows if drawn[0]["level"] == level], share + (i < rest))
        for i, level in enumerate(levels)
    ]
    return [drawn for turn in zip_longest(*per_level) for drawn in turn if drawn is not None]
