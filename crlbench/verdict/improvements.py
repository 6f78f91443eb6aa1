"""How likely a run of one entry learns more than a run of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.stats.intervals import MIN_SEEDS_TOGETHER
from crlbench.stats.profiles import improvement
from crlbench.verdict.entry import Entry
from crlbench.verdict.plain_data import plain


@dataclass(frozen=True)
class Improvement:
    """P(row > column): that the next run of one has a higher Λ, on a task drawn at random."""

    names: tuple[str, ...]
    share: tuple[tuple[float | None, ...], ...]
    """None for two entries without a common task, or with fewer than three seeds of one."""


def improvement_of(entries: Sequence[Entry]) -> Improvement:
    """How likely each entry with a Λ improves more than each other one."""
    with_score = [entry for entry in entries if entry.axes["efficiency"].value is not None]
    names = tuple(entry.name for entry in with_score)
    tasks = sorted({task for entry in with_score for task in entry.task_names})
    strata, few = [], np.zeros((len(with_score), len(with_score)), dtype=bool)
    for task in tasks:
        rows = [
            e.evidence.seeds("efficiency", task) if task in e.task_names else [] for e in with_score
        ]
        seeds = np.array([len(row) for row in rows])
        both = np.minimum.outer(seeds, seeds)
        few |= (both > 0) & (both < MIN_SEEDS_TOGETHER)
        table = np.full((len(rows), max(map(len, rows))), np.nan)
        for target, values in zip(table, rows, strict=True):
            target[: len(values)] = values
        strata.append(table)
    if not strata:
        return Improvement((), ())
    share = np.where(few & ~np.eye(len(with_score), dtype=bool), np.nan, improvement(strata))
    return Improvement(names, tuple(tuple(plain(row)) for row in share))
