"""The step-down of Westfall and Young (1993) over the pairs of a board, few or very many.

It needs the largest |t| of every replicate among the pairs up to each one, in the order of the
observed |t|, and that order is known only when all pairs have been computed. Few pairs are kept
whole. Of many, only tails are: the |t| above what few pairs of a replicate exceed. Once every
replicate has met one of its tail, nothing below can be its largest. The pairs that come before
that are computed a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crlbench.base.parallel import spread

TIE = 1e-9
"""Replicates this near to the observed |t| count as equal to it: rounding decides nothing."""
TAIL = 0.03
"""Share of the pairs with a small observed |t| whose |t| in a replicate is kept where not all can
be; these pairs come first in the step-down, and it ends their being needed whole."""
ROUND = 64
"""Pairs that are computed a second time at first; then as many as were before."""
PILOT = 512
"""Pairs from which it is found where the tails begin: from the quarter with the smallest |t|."""
MOST_KEPT = 2**23
"""Statistics that are kept whole, 64 MB."""
BLOCK = 128
"""Pairs that a process is given at a time."""
TOGETHER = 8
"""Pairs that are computed at a time, 0.6 MB."""


class Row(NamedTuple):
    """One pair."""

    shared: int
    """Tasks that it was compared on; 0: it has no statistics."""
    difference: float


Fill = Callable[[np.ndarray, np.ndarray], list[Row]]
"""Computes the statistics of some pairs into (pairs, C) zeros."""


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


def measured(
    fill: Fill,
    pairs: int,
    columns: int,
    alpha: float,
    most_kept: int = MOST_KEPT,
    jobs: int | None = None,
) -> Measured:
    """All pairs with their p-values.

    Args:
        fill: statistics of pairs, the observed ones in column 0.
        most_kept: more statistics than this are not kept all at once.
        jobs: processes; as many as there are cores where it is None.
    """
    if pairs * columns <= most_kept:
        return _kept(fill, pairs, columns, alpha)
    return _streamed(fill, pairs, columns, alpha, jobs)


def _kept(fill: Fill, pairs: int, columns: int, alpha: float) -> Measured:
    t = np.zeros((pairs, columns))
    few = [np.arange(pairs)[at : at + TOGETHER] for at in range(0, pairs, TOGETHER)]
    rows = [row for some in few for row in fill(some, t[some[0] : some[-1] + 1])]
    shared, difference = _columns(rows)
    known = np.flatnonzero(shared)
    raw, adjusted = (np.full(pairs, np.nan) for _ in range(2))
    raw[known], adjusted[known], critical = step_down(t[known], alpha)
    observed = np.where(shared > 0, t[:, 0], np.nan)
    return Measured(shared, difference, observed, raw, adjusted, critical)


def _columns(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    shared = np.array([row.shared for row in rows], dtype=int)
    return shared, np.array([row.difference for row in rows], dtype=float)


def step_down(t: np.ndarray, alpha: float = 0.05) -> tuple[np.ndarray, np.ndarray, float]:
    """Raw p-values and those adjusted by max-|t| step-down.

    Args:
        t: (pairs, C) statistics, the observed ones in column 0.

    Returns:
        Two (pairs,) arrays. The larger |t|, the smaller the adjusted p, which is the share of
        columns whose largest |t| among the pairs no further apart reaches the observed one. And
        the (1 - alpha) quantile of the largest |t| among the pairs that are not significant,
        which lies between them and those that are.
    """
    observed = np.abs(t[:, 0])
    raw, steps = np.empty(len(t)), _Steps(observed, t.shape[1], alpha)
    for pair in steps.order:
        size = np.abs(t[pair])
        np.maximum(steps.running, size, out=steps.running)
        steps.count(pair)
        raw[pair] = _reaching(size, observed[pair])
    return raw, *steps.result()


def _reaching(values: np.ndarray, observed: float) -> float:
    """The share of (C,) values that reach an observed one."""
    return np.count_nonzero(values >= observed - TIE) / len(values)


class _Steps:
    """From the pair with the smallest observed |t| to the one with the largest."""

    def __init__(self, observed: np.ndarray, columns: int, alpha: float) -> None:
        self.observed, self.alpha = observed, alpha
        self.order = np.argsort(observed, kind="stable")
        self.running = np.zeros(columns)
        """(C,) the largest |t| among the pairs so far."""
        self.adjusted = np.empty(len(observed))
        self.staying: np.ndarray | None = None
        """The same at the last pair that is not significant."""

    def enter(self, places: np.ndarray, values: np.ndarray) -> None:
        """The |t| of the next pair in the columns where it may be the largest."""
        self.running[places] = np.maximum(self.running[places], values)

    def count(self, pair: int) -> None:
        """After a pair has entered the running maximum."""
        self.adjusted[pair] = _reaching(self.running, self.observed[pair])
        if self.staying is None or self.adjusted[pair] > self.alpha:
            self.staying = self.running.copy()

    def result(self) -> tuple[np.ndarray, float]:
        """Adjusted p-values and the critical value."""
        descending = self.order[::-1]
        self.adjusted[descending] = np.maximum.accumulate(self.adjusted[descending])
        if self.staying is None:
            return self.adjusted, np.nan
        return self.adjusted, _upper_quantile(self.staying, self.alpha)


def _upper_quantile(values: np.ndarray, alpha: float) -> float:
    """The value that at most the share ``alpha`` of the values exceed."""
    return float(np.sort(values)[len(values) - 1 - int(alpha * len(values))])


@dataclass(frozen=True)
class _Tails:
    """Of a block of pairs what is needed of all their statistics."""

    rows: list[Row]
    t: np.ndarray
    raw: np.ndarray
    ends: np.ndarray
    """Where the tail of each pair ends in the next two."""
    places: np.ndarray
    """Columns whose |t| is in the tail."""
    values: np.ndarray

    def tail(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns and |t| of one of the pairs."""
        here = slice(self.ends[number - 1] if number else 0, self.ends[number])
        return self.places[here], self.values[here]


def _streamed(
    fill: Fill, pairs: int, columns: int, alpha: float, jobs: int | None
) -> Measured:
    def block(start: int) -> _Tails:
        return _tails(fill, range(start, min(pairs, start + BLOCK)), bars)

    bars = _bars(fill, pairs, columns)
    blocks = spread(block, range(0, pairs, BLOCK), jobs)
    shared, difference = _columns([row for found in blocks for row in found.rows])
    t, raw = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("t", "raw"))
    known = np.flatnonzero(shared)
    steps = _Steps(np.abs(t[known]), columns, alpha)
    order, at = known[steps.order], 0
    while at < len(order) and (steps.running < bars).any():
        # What is not above the maximum so far cannot raise it.
        again = order[at : at + max(ROUND, at)]
        for place, (places, values) in enumerate(_above(fill, again, steps.running, jobs), at):
            steps.enter(places, values)
            steps.count(steps.order[place])
        at += len(again)
    for place in range(at, len(order)):
        block, number = blocks[order[place] // BLOCK], order[place] % BLOCK
        steps.enter(*block.tail(number))
        steps.count(steps.order[place])
    adjusted = np.full(pairs, np.nan)
    adjusted[known], critical = steps.result()
    return Measured(shared, difference, t, raw, adjusted, critical)


def _above(
    fill: Fill, pairs: np.ndarray, bars: np.ndarray, jobs: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each pair the columns in which |t| is above the bars, and that |t|."""

    def some(start: int) -> list[tuple[np.ndarray, np.ndarray]]:
        found = np.zeros((len(pairs[start : start + TOGETHER]), len(bars)))
        fill(pairs[start : start + TOGETHER], found)
        places = [np.flatnonzero(row > bars) for row in np.abs(found, out=found)]
        return [(at, row[at]) for at, row in zip(places, found, strict=True)]

    return [one for few in spread(some, range(0, len(pairs), TOGETHER), jobs) for one in few]


def _bars(fill: Fill, pairs: int, columns: int) -> np.ndarray:
    """(C,) where the tail of each replicate begins."""
    pilot = np.linspace(0, pairs - 1, min(PILOT, pairs)).astype(int)
    found = np.zeros((len(pilot), columns))
    for start in range(0, len(pilot), TOGETHER):
        fill(pilot[start : start + TOGETHER], found[start : start + TOGETHER])
    found = np.abs(found, out=found)
    low = found[np.argsort(found[:, 0], kind="stable")[: max(1, len(pilot) // 4)]]
    place = len(low) - 1 - int(TAIL * len(low))
    bars = np.partition(low, place, axis=0)[place]
    # The observed |t| rise to the last pair: they are kept of all.
    bars[0] = -1.0
    return bars


def _tails(fill: Fill, pairs: range, bars: np.ndarray) -> _Tails:
    t, raw = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
    rows: list[Row] = []
    places: list[np.ndarray] = []
    values: list[np.ndarray] = []
    found = np.empty((TOGETHER, len(bars)))
    narrow = np.min_scalar_type(len(bars))
    for start in range(0, len(pairs), TOGETHER):
        some = np.array(pairs[start : start + TOGETHER])
        found[:] = 0.0
        rows += fill(some, found)
        for number, row in enumerate(found[: len(some)], start):
            if not rows[number].shared:
                places.append(np.empty(0, dtype=narrow))
                values.append(np.empty(0))
                continue
            t[number] = row[0]
            size = np.abs(row, out=row)
            raw[number] = _reaching(size, size[0])
            places.append(np.flatnonzero(size > bars).astype(narrow))
            values.append(size[places[-1]])
    ends = np.cumsum([len(each) for each in places])
    return _Tails(rows, t, raw, ends, np.concatenate(places), np.concatenate(values))
