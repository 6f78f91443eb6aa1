"""Sorting few rows of many columns, which is what resampled seeds are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def sorted_rows(rows: np.ndarray) -> np.ndarray:
    """(n, ...) every column in ascending order, by a sorting network over the rows.

    Batcher's odd-even merge sort for any n (Knuth, The Art of Computer Programming 3, 5.2.2,
    algorithm M): whole rows are compared, which for few of them is faster than sorting columns.
    """
    return np.stack(list_of_sorted_rows(rows))


def list_of_sorted_rows(rows: np.ndarray) -> list[np.ndarray]:
    """The same as separate rows."""
    ordered = [row.copy() for row in rows]
    spare = np.empty_like(ordered[0])
    for i, j in _network(len(ordered)):
        np.minimum(ordered[i], ordered[j], out=spare)
        np.maximum(ordered[i], ordered[j], out=ordered[j])
        ordered[i], spare = spare, ordered[i]
    return ordered


@lru_cache(maxsize=64)
def _network(n: int) -> tuple[tuple[int, int], ...]:
    """The comparators that sort n values, in order."""
    top = 1
    while 2 * top < n:
        top *= 2
    pairs: list[tuple[int, int]] = []
    p = top if n > 1 else 0
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2
    return tuple(pairs)
