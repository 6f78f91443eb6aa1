"""Order statistics of few rows of many columns, which is what resampled seeds are.

Where every column is a selection from the same few values, the values are sorted once and only
counted in the columns.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

MANY = 1_000
"""Values from which on only their ends are sorted, and columns from which on few rows are compared
as wholes."""
FEW_ROWS = 16
"""Up to so many rows are sorted by comparing whole rows."""
SAMPLED = 16
"""Every so many of them are looked at first."""


def sorted_rows(rows: np.ndarray | list[np.ndarray]) -> np.ndarray:
    """The n rows (...) with every column in ascending order."""
    stacked = np.stack(rows)
    if len(stacked) <= FEW_ROWS and stacked[0].size >= MANY:
        ordered = _sorted_by_pairs(stacked)
        # What is no number spreads to the last row, which is where sorting puts it.
        if not np.isnan(ordered[-1]).any():
            return ordered
    return np.sort(stacked, axis=0)


def _sorted_by_pairs(rows: np.ndarray) -> np.ndarray:
    """A copy of (n, ...) rows, sorted by comparing whole rows: faster for few rows."""
    ordered = [row.copy() for row in rows]
    spare = np.empty_like(ordered[0])
    for low, high in _network(len(rows)):
        np.minimum(ordered[low], ordered[high], out=spare)
        np.maximum(ordered[low], ordered[high], out=ordered[high])
        ordered[low], spare = spare, ordered[low]
    return np.stack(ordered)


@lru_cache(maxsize=32)
def _network(n: int) -> tuple[tuple[int, int], ...]:
    """Pairs of rows whose comparison, in this order, sorts any n rows.

    Source: Batcher 1968, "Sorting networks and their applications", odd-even merge sort.
    """
    pairs, size = [], 1
    while size < n:
        step = size
        while step >= 1:
            for start in range(step % size, n - step, 2 * step):
                for low in range(start, start + min(step, n - start - step)):
                    if low // (2 * size) == (low + step) // (2 * size):
                        pairs.append((low, low + step))
            step //= 2
        size *= 2
    return tuple(pairs)


def row_at(ordered: np.ndarray | list[np.ndarray], position: float) -> np.ndarray:
    """Sorted rows at a position between two of them."""
    below = math.floor(position)
    if below == position:
        return ordered[below]
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def order_statistics(values: np.ndarray, *positions: float) -> list[float]:
    """What (n,) sorted values have at positions, some between two of them."""
    last = len(values) - 1
    places = sorted({min(math.floor(p) + step, last) for p in positions for step in (0, 1)})
    ordered = _tails(values, places) if len(values) >= MANY else None
    if ordered is None:
        ordered = np.partition(values, places)
    return [float(row_at(ordered, position)) for position in positions]


def _tails(values: np.ndarray, places: list[int]) -> np.ndarray | None:
    """The values with both ends in order as far as the places reach.

    A sample says where the ends begin, so that the rest is looked at once. None where an end is
    most of the values, or the sample was wrong.
    """
    n = len(values)
    low = max((place + 1 for place in places if place < n // 2), default=0)
    high = max((n - place for place in places if place >= n // 2), default=0)
    sample = np.sort(values[::SAMPLED])
    # Some standard errors of the number of sampled values that belong to the end.
    ends = [int(size / SAMPLED + 3 * math.sqrt(size / SAMPLED)) + 2 for size in (low, high)]
    if sum(ends) >= len(sample):
        return None
    below = values.compress(values <= sample[ends[0]])
    above = values.compress(values >= sample[-1 - ends[1]])
    if len(below) < low or len(above) < high or len(below) + len(above) > n:
        return None
    below.sort()
    above.sort()
    ordered = np.empty(n)
    ordered[: len(below)], ordered[n - len(above) :] = below, above
    return ordered


def gaps(values: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(..., n - 1) differences of the sorted values, and (..., n - 1, S) how many are drawn below.

    Args:
        values: (..., n)
        drawn: (n, S) how often each value is in each of S selections.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    below = drawn[order[..., :-1]]
    # Row by row: numpy's cumsum over the first axis is several times slower.
    for j in range(1, below.shape[-2]):
        below[..., j, :] += below[..., j - 1, :]
    return np.diff(np.take_along_axis(values, order, axis=-1)), below


def sum_steps(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(..., S) rows (..., m, S), each (..., m) times; every leading place by itself."""
    return (steps[..., None, :] @ rows.astype(np.float64, copy=False))[..., 0, :]


def mean_of_ranks(
    values: np.ndarray, steps: np.ndarray, below: np.ndarray, low: int, high: int
) -> np.ndarray:
    """(..., S) mean of the values from rank low + 1 to rank high of each selection.

    Summation by parts: with c_j of a selection at or below the j-th smallest value v_j, and
    clip(c) = min(max(c, low), high), it is v_n - sum_j (v_j+1 - v_j) (clip(c_j) - low) / (high -
    low).

    Args:
        values: (..., n)
        steps, below: what :func:`gaps` gave for them.
    """
    ranks = np.clip(below, low, high) - low
    return values.max(axis=-1, keepdims=True) - sum_steps(steps, ranks) / (high - low)
