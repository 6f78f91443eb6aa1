"""The step-down of Westfall and Young (1993) over the pairs of a board.

It needs the largest |t| of every replicate among the pairs up to each one, in the order of the
observed |t|, and that order is known only when all pairs have been computed. So each is computed
twice, at 0.6 ms, and the statistics of a few are in memory, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TIE = 1e-9
"""Replicates this near to the observed |t| count as equal to it: rounding decides nothing."""
TOGETHER = 8
"""Pairs that are computed at a time, 0.6 MB."""


class Row(NamedTuple):
    """One pair."""

    shared: int
    """Tasks that it was compared on; 0: it has no statistics."""
    difference: float


Fill = Callable[[np.ndarray, np.ndarray], list[Row]]
"""Computes the statistics of some pairs into (pairs, C) zeros, the observed ones in column 0."""


@dataclass(frozen=True)
class Measured:
    """Of every pair; NaN where it has no statistics."""

    shared: np.ndarray
    difference: np.ndarray
    t: np.ndarray
    """The observed statistic."""
    raw: np.ndarray
    adjusted: np.ndarray
    critical: float


def measured(fill: Fill, pairs: int, columns: int, alpha: float) -> Measured:
    """All pairs with their p-values."""
    rows, t = list[Row](), np.full(pairs, np.nan)
    for some, columns_done, statistics in _compute(fill, np.arange(pairs), columns):
        rows += columns_done
        t[some] = statistics[:, 0]
    shared = np.array([row.shared for row in rows], dtype=int)
    difference = np.array([row.difference for row in rows], dtype=float)
    t[shared == 0] = np.nan
    order = np.argsort(np.abs(t), kind="stable")[: np.count_nonzero(shared)]
    again = (row for _, _, few in _compute(fill, order, columns) for row in few)
    raw, adjusted = np.full(pairs, np.nan), np.full(pairs, np.nan)
    raw[order], adjusted[order], critical = step_down(again, alpha)
    return Measured(shared, difference, t, raw, adjusted, critical)


def _compute(
    fill: Fill, pairs: np.ndarray, columns: int
) -> Iterator[tuple[np.ndarray, list[Row], np.ndarray]]:
    """A few pairs at a time, in their order, with their (pairs, C) statistics."""
    for start in range(0, len(pairs), TOGETHER):
        some = pairs[start : start + TOGETHER]
        statistics = np.zeros((len(some), columns))
        yield some, fill(some, statistics), statistics


def step_down(
    rows: Iterable[np.ndarray], alpha: float = 0.05
) -> tuple[np.ndarray, np.ndarray, float]:
    """Raw p-values and those adjusted by max-|t| step-down.

    Args:
        rows: (C,) statistics of each pair, the observed one first; from the pair with the smallest
            observed |t| to the one with the largest.

    Returns:
        Two (pairs,) arrays. The larger |t|, the smaller the adjusted p, which is the share of
        columns whose largest |t| among the pairs no further apart reaches the observed one. And
        the (1 - alpha) quantile of the largest |t| among the pairs that are not significant,
        which lies between them and those that are.
    """
    raw, adjusted = list[float](), list[float]()
    largest: np.ndarray | float = 0.0
    staying = np.array([np.nan])
    for row in rows:
        size = np.abs(row)
        largest = np.maximum(largest, size)
        raw.append(_reaching(size, size[0]))
        adjusted.append(_reaching(largest, size[0]))
        if len(adjusted) == 1 or adjusted[-1] > alpha:
            staying = largest
    steps = np.maximum.accumulate(np.array(adjusted[::-1], dtype=float))[::-1]
    return np.array(raw, dtype=float), steps, _upper_quantile(staying, alpha)


def _reaching(values: np.ndarray, observed: float) -> float:
    """The share of (C,) values that reach an observed one."""
    return np.count_nonzero(values >= observed - TIE) / len(values)


def _upper_quantile(values: np.ndarray, alpha: float) -> float:
    """The value that at most the share ``alpha`` of the values exceed."""
    return float(np.sort(values)[len(values) - 1 - int(alpha * len(values))])
