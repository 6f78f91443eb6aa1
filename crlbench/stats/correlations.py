"""Spearman's rank correlation between the axes of a board: are they three, or one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

ALIKE = 0.8
"""Axes with a correlation above this order entries as one axis would."""
LEAST_ENTRIES = 4
"""Fewer entries have no correlation: three points lie in a line by chance once in three times."""


def mean_ranks(values: Sequence[float]) -> np.ndarray:
    """(n,) ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's correlation of ranks, ties at their mean rank; None where one list is constant.

    Source: Spearman 1904, "The proof and measurement of association between two things".
    """
    ranks = np.stack([mean_ranks(a), mean_ranks(b)])
    deviations = ranks - ranks.mean(axis=1, keepdims=True)
    size = float(np.sqrt((deviations**2).sum(axis=1).prod()))
    return float(deviations[0] @ deviations[1]) / size if size > 0 else None


@dataclass(frozen=True)
class Correlation:
    """Two axes over the entries that have a number on both."""

    first: str
    second: str
    rho: float | None
    """None for fewer than four entries, or where all are equal on an axis."""
    n: int
    """Entries."""

    @property
    def one(self) -> bool:
        """Whether the two order entries alike."""
        return self.rho is not None and self.rho > ALIKE


def correlations(values: Mapping[str, Sequence[float | None]]) -> tuple[Correlation, ...]:
    """Every pair of axes.

    Args:
        values: by axis one number of each entry, in one order; None where it has none.
    """
    pairs = []
    for first, second in combinations(values, 2):
        both = [
            (x, y)
            for x, y in zip(values[first], values[second], strict=True)
            if x is not None and y is not None
        ]
        rho = spearman(*zip(*both, strict=True)) if len(both) >= LEAST_ENTRIES else None
        pairs.append(Correlation(first, second, rho, len(both)))
    return tuple(pairs)
