"""The step-down of Westfall and Young (1993) over the pairs of a board, few or very many.

It needs the largest |t| of every replicate among the pairs up to each one, in the order of the
observed |t|, and that order is known only when all pairs have been computed. Few pairs are kept
whole. Of many, only what is above :data:`TAIL` is: once every replicate has met one such |t|,
nothing below can be the largest. The pairs that come before are computed a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crlbench.parallel import spread

TIE = 1e-9
"""Replicates this near to the observed |t| count as equal to it: rounding decides nothing."""
TAIL = 2.0
"""|t| that are kept where not all can be: about one in twenty."""
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
    """Columns whose |t| is above :data:`TAIL`."""
    values: np.ndarray


def _streamed(
    fill: Fill, pairs: int, columns: int, alpha: float, jobs: int | None
) -> Measured:
    def block(start: int) -> _Tails:
        return _tails(fill, range(start, min(pairs, start + BLOCK)), columns)

    blocks = spread(block, range(0, pairs, BLOCK), jobs)
    shared, difference = _columns([row for found in blocks for row in found.rows])
    t, raw = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("t", "raw"))
    known = np.flatnonzero(shared)
    steps = _Steps(np.abs(t[known]), columns, alpha)
    whole, waiting = np.empty((TOGETHER, columns)), 0
    for at, place in enumerate(steps.order):
        if at == waiting and steps.running.min() < TAIL:
            some = known[steps.order[at : at + TOGETHER]]
            whole[:] = 0.0
            fill(some, whole)
            waiting = at + len(some)
        if at < waiting:
            size = np.abs(whole[at % TOGETHER])
            np.maximum(steps.running, size, out=steps.running)
        else:
            pair = known[place]
            _raise(steps.running, blocks[pair // BLOCK], pair % BLOCK)
        steps.count(place)
    adjusted = np.full(pairs, np.nan)
    adjusted[known], critical = steps.result()
    return Measured(shared, difference, t, raw, adjusted, critical)


def _raise(running: np.ndarray, block: _Tails, number: int) -> None:
    """Enter the tail of a block's pair into the running maximum."""
    tail = slice(block.ends[number - 1] if number else 0, block.ends[number])
    places = block.places[tail]
    running[places] = np.maximum(running[places], block.values[tail])


def _tails(fill: Fill, pairs: range, columns: int) -> _Tails:
    t, raw = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
    rows: list[Row] = []
    places: list[np.ndarray] = []
    values: list[np.ndarray] = []
    found = np.empty((TOGETHER, columns))
    narrow = np.min_scalar_type(columns)
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
            places.append(np.flatnonzero(size > TAIL).astype(narrow))
            values.append(size[places[-1]])
    ends = np.cumsum([len(each) for each in places])
    return _Tails(rows, t, raw, ends, np.concatenate(places), np.concatenate(values))
