"""The paired difference of two entries as replicates, and its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crlbench.stats.intervals import (
    Replicates,
    mean_of_rows,
    satterthwaite,
    seed_shares,
    split_variance,
)


class Apart(NamedTuple):
    """Arm minus base on one task: (R,) differences of each kind of replicates."""

    drawn: np.ndarray
    seeds: np.ndarray
    """The same object as ``drawn`` where no items are resampled."""
    items: np.ndarray


def differences(base: Sequence[Replicates], arm: Sequence[Replicates]) -> list[Apart]:
    """The differences of every task."""
    return [_apart(b, a) for b, a in zip(base, arm, strict=True)]


def _apart(base: Replicates, arm: Replicates) -> Apart:
    drawn = arm.drawn - base.drawn
    alike = arm.drawn is arm.seeds and base.drawn is base.seeds
    return Apart(drawn, drawn if alike else arm.seeds - base.seeds, arm.items - base.items)


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
        None where a task has a single seed.
    """
    if min(sizes, default=0) < 2:
        return None
    both, seeds, items = (
        np.var(mean_of_rows([getattr(part, kind) for part in apart]))
        for kind in ("drawn", "seeds", "items")
    )
    shares = seed_shares([part.seeds for part in apart], sizes, len(apart))
    known = float(split_variance(both, seeds, items)[1])
    total, df = satterthwaite(shares, sizes, known)
    return math.sqrt(total), df
