"""Numbers of cells and of contrasts, with their intervals.

A contrast has a value for each task and seed, and one for each task and item. Its estimate is the
mean over tasks of the mean over seeds. Two intervals stand beside it:

=======  ===================================================================================
these    for these tasks and starts: the variance of seeds within a task and that of items
         within a task are added, Student's t with the degrees of freedom of the seeds. Noise
         that seeds and items share is counted twice, so it is a little too wide.
others   for similar tasks that were not run: Student's t over the task means
=======  ===================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from crlbench.stats.intervals import Interval
from crlbench.stats.measures import unit
from crlbench.stats.pass_at_k import pass_at_k
from teaching.records import CellScores, StartScores

ALPHA = 0.05


def learned(start: StartScores, cell: CellScores) -> np.ndarray:
    """(N,) what each item adds to L, times N: its mean u over the budget minus that of the start.

    From a failure on, the known and the new items each fall to u = 0, or stay at their start if
    that is lower.
    """
    curve = unit(cell.curve.astype(np.float64), start.floor, start.ceiling)
    head = unit(start.draws.mean(axis=0), start.floor, start.ceiling)
    weights = np.full(cell.grid + 1, 1.0 / cell.grid)
    weights[[0, -1]] /= 2.0
    total = weights[: len(curve)] @ curve - head
    rest = float(weights[len(curve) :].sum())
    for group in (start.greedy, ~start.greedy):
        if rest and group.any():
            total[group] += rest * min(0.0, float(head[group].mean()))
    return total


def learned_new(start: StartScores, cell: CellScores) -> np.ndarray:
    """(N,) the same of the new items alone, 0 on the others; its mean is L_new."""
    return np.where(start.greedy, 0.0, learned(start, cell))


def passed(start: StartScores, cell: CellScores, k: int, draws: int) -> np.ndarray:
    """(N,) pass@k of each ID item at the end minus at the start; a failed run solves none."""
    before = pass_at_k(start.passes["id"], draws, k)
    if not cell.passes:
        return -before
    return pass_at_k(cell.passes["id"], draws, k) - before


@dataclass(frozen=True)
class Contrast:
    """One difference, by task."""

    seeds: Mapping[str, np.ndarray]
    """(S,) by task."""
    items: Mapping[str, np.ndarray]
    """(N,) by task; means over seeds and starts."""

    @property
    def estimate(self) -> float:
        return float(np.mean([values.mean() for values in self.seeds.values()]))

    @property
    def error(self) -> float:
        """Standard error for these tasks."""
        tasks = len(self.seeds)
        within = [values.var(ddof=1) / len(values) for values in self.seeds.values()]
        between = [values.var(ddof=1) / len(values) for values in self.items.values()]
        return math.sqrt(sum(within) + sum(between)) / tasks

    def these(self, alpha: float = ALPHA) -> Interval:
        """The interval for these tasks."""
        freedom = sum(len(values) - 1 for values in self.seeds.values())
        reach = float(stats.t.ppf(1 - alpha / 2, freedom)) * self.error
        return Interval(self.estimate - reach, self.estimate + reach)

    def others(self, alpha: float = ALPHA) -> Interval | None:
        """The interval for similar tasks; None for fewer than four."""
        means = [float(values.mean()) for values in self.seeds.values()]
        if len(means) < 4:
            return None
        error = float(np.std(means, ddof=1)) / math.sqrt(len(means))
        reach = float(stats.t.ppf(1 - alpha / 2, len(means) - 1)) * error
        return Interval(self.estimate - reach, self.estimate + reach)


def contrast(values: Mapping[str, Sequence[np.ndarray]]) -> Contrast:
    """A contrast from (S, N) values of each start of each task: starts share seeds and items."""
    means = {task: np.mean(list(rows), axis=0) for task, rows in values.items()}
    return Contrast(
        {task: rows.mean(axis=1) for task, rows in means.items()},
        {task: rows.mean(axis=0) for task, rows in means.items()},
    )
