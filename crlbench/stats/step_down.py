"""The step-down of Westfall and Young (1993) over the pairs of a board.

It needs the largest |t| of every replicate among the pairs up to each one, in the order of the
observed |t|, and that order is known only when all pairs have been computed. The statistics of
:data:`MOST_KEPT` bytes stay in memory until then; other pairs are computed twice, at 0.2 ms.

How the largest |t| grows from pair to pair is little: a pair raises it in few replicates. So a
later test, of these pairs and of more, computes the others alone and takes over the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TIE = 1e-9
"""Replicates this near to the observed |t| count as equal to it: rounding decides nothing."""
TOGETHER = 8
"""Pairs that are computed at a time, 0.6 MB."""
MOST_KEPT = 2**26
"""Bytes of statistics that wait for their turn; those of 838 pairs under 10,000 swaps."""


class Row(NamedTuple):
    """One pair."""

    shared: int
    """Tasks that it was compared on; 0: it has no statistics."""
    difference: float
    square: float = 0.0
    """Sum of the squared differences over all replicates."""


Fill = Callable[[np.ndarray, np.ndarray], list[Row]]
"""Computes the statistics of some pairs into (pairs, C) zeros, the observed ones in column 0."""


@dataclass(frozen=True)
class Stairs:
    """How the largest |t| of every replicate grows, pair by pair."""

    starts: np.ndarray
    """(P + 1,) where the steps of each of P compared pairs begin, by their observed |t|."""
    columns: np.ndarray
    """(N,) int32. Replicates in which a pair has a larger |t| than all pairs before it."""
    values: np.ndarray
    """(N,) what that is."""


@dataclass(frozen=True)
class Measured:
    """All pairs; NaN where one has no statistics."""

    shared: np.ndarray
    difference: np.ndarray
    square: np.ndarray
    t: np.ndarray
    """The observed statistic."""
    raw: np.ndarray
    adjusted: np.ndarray
    critical: float
    stairs: Stairs


class Before(NamedTuple):
    """An earlier test of some of the pairs."""

    places: np.ndarray
    """The number that each of its pairs has now, in ascending order."""
    measured: Measured


def measured(
    fill: Fill, pairs: int, columns: int, alpha: float, before: Before | None = None
) -> Measured:
    """All pairs with their p-values.

    Args:
        before: its pairs are not computed again.
    """
    table, kept = _Table.of(pairs, before), dict[int, np.ndarray]()
    most = MOST_KEPT // (8 * columns)
    for some, rows, statistics in _compute(fill, np.flatnonzero(np.isnan(table.square)), columns):
        table.shared[some], table.difference[some], table.square[some] = zip(*rows, strict=True)
        table.t[some] = statistics[:, 0]
        kept.update(zip(some[: max(0, most - len(kept))], statistics, strict=False))
    table.t[table.shared == 0] = np.nan
    order = np.argsort(np.abs(table.t), kind="stable")[: np.count_nonzero(table.shared)]
    stairs = dict[int, tuple[np.ndarray, np.ndarray]]()
    if before is not None:
        stairs = _stairs_by_pair(before)
    again = _again(fill, [pair for pair in order if pair not in stairs], columns, kept)
    down = StepDown(columns, alpha)
    for pair in order:
        observed = abs(table.t[pair])
        if pair in stairs:
            down.climb(observed, *stairs[pair])
            continue
        size = np.abs(next(again))
        table.raw[pair] = _reaching(size, observed)
        down.add(size)
    adjusted = np.full(pairs, np.nan)
    adjusted[order] = down.adjusted()
    return Measured(*table, adjusted, down.critical, down.stairs())


class _Table(NamedTuple):
    """What a pair has by itself."""

    shared: np.ndarray
    difference: np.ndarray
    square: np.ndarray
    """NaN where a pair has not been computed."""
    t: np.ndarray
    raw: np.ndarray

    @staticmethod
    def of(pairs: int, before: Before | None) -> _Table:
        table = _Table(np.zeros(pairs, dtype=int), *(np.full(pairs, np.nan) for _ in range(4)))
        if before is not None:
            for name, column in table._asdict().items():
                column[before.places] = getattr(before.measured, name)
        return table


def _stairs_by_pair(before: Before) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Columns and values of the steps of each pair, by the number that it has now."""
    places, earlier = before
    if not (count := np.count_nonzero(earlier.shared)):
        return {}
    order = places[np.argsort(np.abs(earlier.t), kind="stable")[:count]]
    starts = earlier.stairs.starts[1:-1]
    parts = (np.split(part, starts) for part in (earlier.stairs.columns, earlier.stairs.values))
    return {int(pair): steps for pair, *steps in zip(order, *parts, strict=True)}


def _compute(
    fill: Fill, pairs: Sequence[int] | np.ndarray, columns: int
) -> Iterator[tuple[np.ndarray, list[Row], np.ndarray]]:
    """A few pairs at a time, in their order, with their (pairs, C) statistics."""
    for start in range(0, len(pairs), TOGETHER):
        some = np.asarray(pairs[start : start + TOGETHER])
        statistics = np.zeros((len(some), columns))
        yield some, fill(some, statistics), statistics


def _again(
    fill: Fill, order: Sequence[int], columns: int, kept: dict[int, np.ndarray]
) -> Iterator[np.ndarray]:
    """The (C,) statistics of pairs in an order; those that were not kept are computed again."""
    rest = [pair for pair in order if pair not in kept]
    computed = (row for _, _, few in _compute(fill, rest, columns) for row in few)
    for pair in order:
        yield kept.pop(pair) if pair in kept else next(computed)


class StepDown:
    """Takes pairs from the smallest observed |t| to the largest."""

    def __init__(self, columns: int, alpha: float = 0.05) -> None:
        """
        Args:
            columns: replicates, the observed one first.
            alpha: pairs whose adjusted p is above it are not significant.
        """
        self._alpha = alpha
        self._largest = np.zeros(columns)
        self._staying = 0
        self._adjusted: list[float] = []
        self._steps: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, size: np.ndarray) -> None:
        """Take the next pair.

        Args:
            size: (C,) its |t|, the observed one first.
        """
        columns = np.flatnonzero(size > self._largest)
        self._raise(float(size[0]), columns, size[columns])

    def climb(self, observed: float, columns: np.ndarray, values: np.ndarray) -> None:
        """Take the next pair by its steps among other pairs.

        Args:
            observed: its |t|.
            columns, values: where it was larger than all pairs before it, and its |t| there.
        """
        higher = values > self._largest[columns]
        self._raise(observed, columns[higher], values[higher])

    def _raise(self, observed: float, columns: np.ndarray, values: np.ndarray) -> None:
        self._largest[columns] = values
        self._steps.append((columns, values))
        self._adjusted.append(_reaching(self._largest, observed))
        if len(self._adjusted) == 1 or self._adjusted[-1] > self._alpha:
            self._staying = len(self._adjusted)

    def adjusted(self) -> np.ndarray:
        """(P,) p-values adjusted by max-|t| step-down.

        The larger |t|, the smaller the adjusted p, which is the share of columns whose largest |t|
        among the pairs no further apart reaches the observed one.
        """
        return np.maximum.accumulate(np.array(self._adjusted[::-1], dtype=float))[::-1]

    @property
    def critical(self) -> float:
        """The (1 - alpha) quantile of the largest |t| among the pairs that are not significant,
        which lies between them and those that are; NaN without a pair."""
        if not self._staying:
            return np.nan
        largest = np.zeros_like(self._largest)
        for columns, values in self._steps[: self._staying]:
            largest[columns] = values
        return _upper_quantile(largest, self._alpha)

    def stairs(self) -> Stairs:
        """How the largest |t| grew."""
        columns, values = zip(*self._steps, strict=True) if self._steps else ((), ())
        return Stairs(
            np.cumsum([0, *map(len, columns)]),
            np.concatenate([np.zeros(0, dtype=int), *columns]).astype(np.int32),
            np.concatenate([np.zeros(0), *values]),
        )


def _reaching(values: np.ndarray, observed: float) -> float:
    """The share of (C,) values that reach an observed one."""
    return np.count_nonzero(values >= observed - TIE) / len(values)


def _upper_quantile(values: np.ndarray, alpha: float) -> float:
    """The value that at most the share ``alpha`` of the values exceed."""
    return float(np.sort(values)[len(values) - 1 - int(alpha * len(values))])
