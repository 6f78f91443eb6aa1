"""The standard error of a paired difference of two entries, for tests of many pairs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crlbench.stats.intervals import mean_of_rows, split_variance
from crlbench.stats.paired import Apart

MOST_DF = 1e6
"""Degrees of freedom where nothing varies with the seeds: as good as known."""


def paired_error(apart: Sequence[Apart], sizes: Sequence[int]) -> tuple[float, float] | None:
    """Standard error and degrees of freedom of a mean difference over tasks.

    Seeds and items both count, the noise of single answers once. The bootstrap variance of n seeds
    is (n - 1) / n of the unbiased one. Degrees of freedom are those of Welch and Satterthwaite:
    every task brings n - 1, as far as it brings variance. What no seed brings, as items do, is as
    good as known.

    Args:
        apart: replicates of the difference on each task.
        sizes: seeds of each task.

    Returns:
        None where a task has a single seed. Degrees of freedom are at most :data:`MOST_DF`.
    """
    if min(sizes, default=0) < 2:
        return None
    by_task = [
        float(np.var(part.seeds)) * n / (n - 1) / len(sizes) ** 2
        for part, n in zip(apart, sizes, strict=True)
    ]
    both, seeds, items = (
        np.var(mean_of_rows([getattr(part, kind) for part in apart]))
        for kind in ("drawn", "seeds", "items")
    )
    total = sum(by_task) + float(split_variance(both, seeds, items)[1])
    weights = sum(share**2 / (n - 1) for share, n in zip(by_task, sizes, strict=True))
    df = total**2 / weights if weights > 0 else MOST_DF
    return math.sqrt(total), min(df, MOST_DF)
