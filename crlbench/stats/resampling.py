"""Bootstrap replicates of the three axes, and intervals that count every noise once.

Λ and Gen are resampled over seeds and items, Stab over seeds (protocol CRL-1, A.6 point 3). Draws
are named: the seeds of a task by its name and their number, its items by its name and theirs, so
that every entry meets the same draws and none moves another one's interval.

Arrays stand seed by replicate, (n, R), so that one operation serves all replicates of a seed.
Weights of items, and what a seed has under them, are kept in single precision: a replicate moves
by 1e-6 of its spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from crlbench.seeding import derive
from crlbench.stats.derivatives import Blocks
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    TRIM,
    Interval,
    Replicates,
    common_rule,
    drawn_items,
    enough_seeds,
    expanded,
    half_width,
    mean_of_rows,
    noise_once,
    satterthwaite,
    seed_index,
    seed_shares,
    student_around,
    student_interval,
    times_drawn,
    variance_parts,
)
from crlbench.stats.measures import ItemTable, captured
from crlbench.stats.needs import MIN_TASKS
from crlbench.stats.sorting import gaps, mean_of_ranks, sorted_rows
from crlbench.stats.stability_shares import headline, selected_shares, shares

BLOCK = 8
"""Numbers from which on numpy adds them in blocks, and no more one after the other."""


@lru_cache(maxsize=32)
def _flat_index(task: str, n: int, count: int, seed: int) -> np.ndarray:
    """(n, R) positions of the drawn seeds in a flattened (n, R) array."""
    return np.ascontiguousarray(seed_index(task, n, count, seed).T) * count + np.arange(count)


@lru_cache(maxsize=16)
def _item_shares(name: str, items: int, count: int, seed: int) -> np.ndarray:
    """(N, R) float32: what each item weighs in each replicate; columns sum to 1."""
    shares, start = np.empty((items, count), dtype=np.float32), 0
    for times in drawn_items(name, items, count, seed):
        shares[:, start : start + times.shape[1]] = times
        start += times.shape[1]
    shares /= items
    return shares


@dataclass(frozen=True)
class Rows:
    """A mean over the first axis, (n, R) to (R,), without the lowest and the highest."""

    trim: float
    """Share of the rows that is dropped at each end."""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        n, cut = len(rows), int(self.trim * len(rows))
        middle = sorted_rows(rows)[cut : n - cut] if cut else rows
        return np.mean(middle, axis=0, dtype=np.float64)

    def resampled(self, values: np.ndarray, times: np.ndarray) -> np.ndarray:
        """(R,) of (n,) values, each of them (n, R) times."""
        n, cut = len(values), int(self.trim * len(values))
        return mean_of_ranks(values, *gaps(values, times), cut, n - cut)


trimmed_rows, mean_rows = Rows(TRIM), Rows(0.0)


def cross(
    task: str,
    values: np.ndarray,
    by_weight: np.ndarray,
    location: Rows,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """Replicates of one task from its seeds' numbers under every draw of items.

    Args:
        values: (n,) one number per seed.
        by_weight: (n, R) the numbers that the seeds would have had under each draw of items.
    """
    n = len(values)
    value = float(location(values[:, None])[0])
    by_seed = location.resampled(values, times_drawn(task, n, count, seed))
    draws = location(np.take(by_weight.ravel(), _flat_index(task, n, count, seed)))
    return Replicates(values, value, draws, by_seed, location(by_weight))


def efficiency_replicates(
    task: str,
    table: ItemTable,
    values: np.ndarray | None = None,
    location: Rows = trimmed_rows,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    by_weight: np.ndarray | None = None,
) -> Replicates:
    """Λ of one task, seeds and items resampled.

    Args:
        table: of its n seeds.
        values: (n,) Λ of each seed, where they are known in full precision.
        by_weight: what :func:`lam_by_weight` gives for the table, where it is known.
    """
    if values is None:
        items = table.learned.shape[1]
        values = table.lam(np.full((1, items), 1.0 / items))[0]
    if by_weight is None:
        by_weight = lam_by_weight(task, table, count, seed)
    return cross(task, values, by_weight, location, count, seed)


def lam_by_weight(
    task: str, table: ItemTable, count: int = REPLICATES, seed: int = ROOT_SEED
) -> np.ndarray:
    """(n, R) float32: Λ of each seed under each draw of items."""
    n, items = table.learned.shape
    heads = table.head
    if (heads == heads[0]).all():
        # The start model is scored once for all seeds of a task.
        heads = heads[:1]
    # Reading the table of shares is what takes the time: once for both.
    rows = np.concatenate([table.learned, heads], dtype=np.float32, casting="same_kind")
    means = rows @ _item_shares(task, items, count, seed)
    return captured(means[:n], means[n:])


def lam_of_some_by_weight(
    task: str,
    table: ItemTable,
    chosen: np.ndarray,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> np.ndarray:
    """(n, R) float32: Λ of each seed on some items, under each draw of all items.

    All models of a board meet the same draws of a task, whichever items are chosen for each. A
    draw without any of the items leaves Λ as it is.

    Args:
        table: of the chosen items alone.
        chosen: (N,) bool, which of all items these are.
    """
    n = len(table.learned)
    shares = _item_shares(task, len(chosen), count, seed)[chosen]
    rows = np.concatenate([table.learned, table.head]).astype(np.float32)
    total = shares.sum(axis=0)
    even = rows.mean(axis=1, keepdims=True)
    means = np.where(total > 0, rows @ shares / np.where(total > 0, total, 1.0), even)
    return captured(means[:n], means[n:])


def gain_replicates(
    task: str, table: ItemTable, count: int = REPLICATES, seed: int = ROOT_SEED
) -> Replicates:
    """Gain in u of one task, plain mean over seeds; seeds and items resampled."""
    rows = table.final - table.head
    shares = _item_shares(task, rows.shape[1], count, seed)
    by_weight = rows.astype(np.float32) @ shares
    return cross(task, rows.mean(axis=1), by_weight, mean_rows, count, seed)


POSITIONS = "generalization items"


def linear_replicates(
    task: str,
    values: np.ndarray,
    blocks: Blocks,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    moved: np.ndarray | None = None,
) -> Replicates:
    """A plain mean over the seeds of a task, seeds and clusters of items resampled.

    To first order in the weights. Clusters are drawn by their position in a split, with the same
    draw for every task and every split of N clusters: an item set that several tasks are scored
    on is drawn as one, and sets that have nothing to do with one another are independent row by
    row, so that drawing them together adds nothing on average.

    Args:
        values: (n,) one number per seed.
        blocks: (n, N) derivatives by the clusters' weights; empty: seeds only.
        moved: what :func:`items_moved` gives for them, where it is known.
    """
    n, value = len(values), float(values.mean())
    times = times_drawn(task, n, count, seed)
    by_seed = values @ times / n
    if not blocks:
        return Replicates(values, value, by_seed, by_seed, np.full(count, value))
    if moved is None:
        moved = items_moved(blocks, count, seed)
    draws = by_seed + np.einsum("ir,ir->r", moved, times) / n
    return Replicates(values, value, draws, by_seed, value + moved.mean(axis=0, dtype=np.float64))


def items_moved(blocks: Blocks, count: int = REPLICATES, seed: int = ROOT_SEED) -> np.ndarray:
    """(n, R) float32: by how much each number moves under each draw of clusters.

    Reading the table of shares is what takes the time: rows of several tasks are faster together.
    """
    n = len(next(iter(blocks.values())))
    moves = np.zeros((n, count), dtype=np.float32)
    for clusters, rows in sorted(blocks.items()):
        deviations = rows - rows.mean(axis=1, keepdims=True)
        moves += deviations.astype(np.float32) @ _item_shares(POSITIONS, clusters, count, seed)
    return moves


def stability_replicates(
    task: str, columns: np.ndarray, count: int = REPLICATES, seed: int = ROOT_SEED
) -> Replicates:
    """Stab of one rated task, seeds resampled.

    A resample holds a seed twice and has therefore less dispersion than its sample; replicates are
    moved so that their mean is the estimate.

    Args:
        columns: (5, n) F, H, G, DD and whether it failed, of each seed.

    Returns:
        ``values`` are F of the seeds, for the correlation of pairs.
    """
    value = float(headline(shares(*columns)))
    n = columns.shape[1]
    draws = headline(selected_shares(columns, times_drawn(task, n, count, seed), n))
    draws += value - draws.mean()
    items = np.full(count, value)
    return Replicates(columns[0], value, draws, draws, items, bounds=(0.0, 1.0), rule="shares")


def rescale(part: Replicates, factor: float) -> Replicates:
    """The same in another unit."""
    return Replicates(
        part.values * factor,
        part.location * factor,
        part.drawn * factor,
        part.seeds * factor,
        part.items * factor,
        rule=part.rule,
    )


def spread(parts: Sequence[Replicates]) -> np.ndarray:
    """(3, R) replicates of the mean over tasks: seeds and items, seeds alone, items alone."""
    names = ("drawn", "seeds", "items")
    return np.stack([sum(getattr(part, name) for part in parts) / len(parts) for name in names])


def over_tasks(parts: Sequence[Replicates]) -> np.ndarray:
    """(R,) replicates of the mean over tasks, the noise of single answers counted once.

    Resampling seeds and items together counts it three times; see
    :func:`crlbench.stats.intervals.noise_once`.
    """
    if all(part.drawn is part.seeds for part in parts):
        return sum(part.drawn for part in parts) / len(parts)
    return noise_once(float(np.mean([part.location for part in parts])), *spread(parts))


def axis_interval(parts: Sequence[Replicates], level: float = LEVEL) -> Interval | None:
    """Interval of the mean over tasks, by the rule of its replicates; None for too few seeds."""
    sizes = [len(part.values) for part in parts]
    if not enough_seeds(sizes):
        return None
    value = float(np.mean([part.location for part in parts]))
    rule = common_rule(parts)
    if rule == "variance":
        return student_around(value, *mean_variance(parts), level)
    if rule == "shares" and value < 1:
        return _shortfall_interval(parts, value, level)
    return expanded(over_tasks(parts), sizes, level)


def mean_variance(parts: Sequence[Replicates]) -> tuple[float, float]:
    """Variance of the mean over tasks, which share no seeds, and its degrees of freedom.

    Items add what their choice moves, without the noise of answers, and count as known.
    """
    sizes = [len(part.values) for part in parts]
    shares = seed_shares([part.seeds for part in parts], sizes, len(parts))
    _, _, items = variance_parts(*spread(parts))
    return satterthwaite(shares, sizes, items)


def _shortfall_interval(parts: Sequence[Replicates], value: float, level: float) -> Interval:
    """Student's interval of a score below 1, from 0 on, that is resampled over seeds, by
    log(1 - score).

    A high Stab comes with a short spread of its replicates, a low one with a long spread; on this
    scale the spreads agree. Where the score is 1 there is no such scale, and no spread either.
    """
    variances, worth = zip(*((float(np.var(part.drawn)), part.size) for part in parts), strict=True)
    width = half_width(variances, worth, level) / (1 - value)
    low, high = (1 - (1 - value) * math.exp(sign * width) for sign in (1, -1))
    return Interval(max(0.0, low), high, level)


def wider_interval(
    parts: Sequence[Replicates],
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> Interval | None:
    """Interval over tasks of protocol CRL-1: what similar tasks that were not run would show.

    Never narrower than :func:`axis_interval`, and inside the bounds of the number; None for fewer
    than four tasks.
    """
    sizes, estimates = [len(part.values) for part in parts], [part.location for part in parts]
    if not enough_seeds(sizes) or len(parts) < MIN_TASKS:
        return None
    interval = widen(over_tasks(parts), estimates, sizes, count, seed, level)
    return _within(interval, [part.bounds for part in parts])


def wider_difference(
    whole: np.ndarray,
    base: Sequence[Replicates],
    arm: Sequence[Replicates],
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Interval | None:
    """The same of arm minus base over their common tasks.

    Args:
        whole: (R,) replicates of the difference.
        base, arm: of the same tasks in the same order.
    """
    pairs = list(zip(base, arm, strict=True))
    sizes = [len(x.values) for x, _ in pairs]
    interval = widen(whole, [y.location - x.location for x, y in pairs], sizes, count, seed)
    bounds = [
        (y.bounds[0] - x.bounds[1], y.bounds[1] - x.bounds[0]) if x.bounds and y.bounds else None
        for x, y in pairs
    ]
    return None if interval is None else _within(interval, bounds)


def widen(
    within: np.ndarray,
    estimates: Sequence[float],
    sizes: Sequence[int],
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> Interval | None:
    """Interval of a mean over tasks as a sample of tasks; None for fewer than four.

    The union of Student's interval of the tasks' estimates and of a bootstrap over tasks. A
    bootstrap of few means reaches from the worst to the best of them at most, which covers too
    seldom; Student's covers as stated where tasks are normal.

    The spread of the tasks' estimates holds the uncertainty inside tasks already, so that the
    replicates get the larger of the two variances and not their sum.

    Args:
        within: (R,) replicates of the mean over these tasks.
        estimates: of each task.
        sizes: seeds of each task.
    """
    if not enough_seeds(sizes) or len(sizes) < MIN_TASKS:
        return None
    estimates, tasks = np.array(estimates), len(sizes)
    value, inner = float(estimates.mean()), expanded(within, sizes, level)
    between = _means(estimates, _task_index(tasks, count, seed))
    whole = within + between - value
    larger, total = max(np.var(within), np.var(between)), np.var(whole)
    if total > 0:
        whole = value + np.sqrt(min(1.0, larger / total)) * (whole - value)
    union = inner.union(expanded(whole, [tasks], level))
    return union.union(student_interval(estimates, level))


def _means(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """(R,) ``values[index].mean(axis=1)``, to the last bit, of (R, n) positions."""
    if index.shape[1] < BLOCK:
        return mean_of_rows([values[column] for column in index.T])
    return values[np.ascontiguousarray(index)].mean(axis=1)


def _within(interval: Interval, bounds: Sequence[tuple[float, float] | None]) -> Interval:
    """What of an interval a mean of bounded numbers can be; all of it where one has no bounds."""
    if None in bounds:
        return interval
    low, high = (float(np.mean(ends)) for ends in zip(*bounds, strict=True))
    return replace(interval, low=max(low, interval.low), high=min(high, interval.high))


@lru_cache(maxsize=8)
def _task_index(tasks: int, count: int, seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.PCG64(derive(seed, "tasks", tasks)))
    # Stored by column: few long columns are added faster than many short rows.
    return np.asfortranarray(generator.integers(0, tasks, size=(count, tasks)))
