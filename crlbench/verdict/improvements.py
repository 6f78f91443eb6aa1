"""How likely a run of one entry learns more than a run of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.stats.intervals import MIN_SEEDS_TOGETHER
from crlbench.stats.profiles import improvement
from crlbench.verdict.design_rows import counting, group_entries
from crlbench.verdict.entry import Entry
from crlbench.verdict.plain_data import plain


@dataclass(frozen=True)
class Improvement:
    """P(row > column): that the next run of one has a higher Λ, on a task drawn at random."""

    names: tuple[str, ...]
    share: tuple[tuple[float | None, ...], ...]
    """None for two entries without a common task, or with fewer than three seeds of one."""


def improvement_of(entries: Sequence[Entry]) -> Improvement:
    """How likely each row with a Λ improves more than each other one: an entry, or a design, of
    which a run of any checkpoint is drawn."""
    with_score = {
        group.name: counted
        for group in group_entries(entries)
        if (counted := counting("efficiency", group))
    }
    names, of_rows = tuple(with_score), list(with_score.values())
    tasks = sorted({task for row in of_rows for entry in row for task in entry.task_names})
    strata, few = [], np.zeros((len(names), len(names)), dtype=bool)
    for task in tasks:
        rows = [_seeds(row, task) for row in of_rows]
        seeds = np.array([len(row) for row in rows])
        both = np.minimum.outer(seeds, seeds)
        few |= (both > 0) & (both < MIN_SEEDS_TOGETHER)
        table = np.full((len(rows), max(map(len, rows))), np.nan)
        for target, values in zip(table, rows, strict=True):
            target[: len(values)] = values
        strata.append(table)
    if not strata:
        return Improvement((), ())
    share = np.where(few & ~np.eye(len(names), dtype=bool), np.nan, improvement(strata))
    return Improvement(names, tuple(tuple(plain(row)) for row in share))


def _seeds(row: Sequence[Entry], task: str) -> np.ndarray:
    """Λ of all seeds of a task, over the checkpoints of a row."""
    known = [e.evidence.seeds("efficiency", task) for e in row if task in e.task_names]
    return np.concatenate([values for values in known if values is not None] or [np.array([])])
