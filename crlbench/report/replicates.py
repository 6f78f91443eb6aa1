"""Bootstrap replicates of the three axes, and intervals that count every noise once.

Λ and Gen are resampled over seeds and items, Stab over seeds (protocol CRL-1, A.6 point 3). Draws
are named: the seeds of a task by its name and their number, its items by its name and theirs, so
that every entry meets the same draws and none moves another one's interval.

Arrays stand seed by replicate, (n, R), so that one operation serves all replicates of a seed.
Weights of items are kept in single precision: a replicate moves by 1e-7 of its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from crlbench.report.derivatives import Blocks
from crlbench.report.estimators import ItemTable, captured
from crlbench.report.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    TRIM,
    Interval,
    Replicates,
    drawn_items,
    enough_seeds,
    expanded,
    noise_once,
    seed_index,
)
from crlbench.report.sorting import list_of_sorted_rows
from crlbench.report.stability_shares import headline, resampled_shares, shares
from crlbench.seeding import derive

MIN_TASKS = 3
"""Fewer tasks say nothing about other tasks."""


@lru_cache(maxsize=32)
def _index(task: str, n: int, count: int, seed: int) -> np.ndarray:
    """(n, R) drawn seed positions of each replicate."""
    return np.ascontiguousarray(seed_index(task, n, count, seed).T)


@lru_cache(maxsize=32)
def _flat_index(task: str, n: int, count: int, seed: int) -> np.ndarray:
    """(n, R) positions of the drawn seeds in a flattened (n, R) array."""
    return _index(task, n, count, seed) * count + np.arange(count)


@lru_cache(maxsize=16)
def _item_shares(name: str, items: int, count: int, seed: int) -> np.ndarray:
    """(N, R) float32: what each item weighs in each replicate; columns sum to 1."""
    shares, start = np.empty((items, count), dtype=np.float32), 0
    for times in drawn_items(name, items, count, seed):
        shares[:, start : start + len(times)] = times.T
        start += len(times)
    shares /= items
    return shares


Rows = Callable[[np.ndarray], np.ndarray]
"""A location over the first axis, (n, R) to (R,)."""


def trimmed_rows(rows: np.ndarray) -> np.ndarray:
    """25 %-trimmed mean over the first axis."""
    n = len(rows)
    cut = int(TRIM * n)
    return sum(list_of_sorted_rows(rows)[cut : n - cut]) / (n - 2 * cut) if cut else mean_rows(rows)


def mean_rows(rows: np.ndarray) -> np.ndarray:
    """Mean over the first axis."""
    return rows.mean(axis=0)


def crossed(
    task: str,
    values: np.ndarray,
    by_weight: np.ndarray | None,
    location: Rows,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """Replicates of one task from its seeds' numbers under every draw of items.

    Args:
        values: (n,) one number per seed.
        by_weight: (n, R) the numbers that the seeds would have had under each draw of items;
            None where items are not resampled.
    """
    n = len(values)
    value = float(location(values[:, None])[0])
    by_seed = location(np.take(values, _index(task, n, count, seed)))
    if by_weight is None:
        return Replicates(values, value, by_seed, by_seed, np.full(count, value))
    drawn = location(np.take(by_weight.ravel(), _flat_index(task, n, count, seed)))
    return Replicates(values, value, drawn, by_seed, location(by_weight))


def efficiency_replicates(
    task: str,
    table: ItemTable,
    values: np.ndarray | None = None,
    location: Rows = trimmed_rows,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """Λ of one task, seeds and items resampled.

    Args:
        table: of its n seeds.
        values: (n,) Λ of each seed, where they are known in full precision.
    """
    if values is None:
        items = table.learned.shape[1]
        values = table.lam(np.full((1, items), 1.0 / items))[0]
    return crossed(task, values, _lam_by_weight(task, table, count, seed), location, count, seed)


def _lam_by_weight(task: str, table: ItemTable, count: int, seed: int) -> np.ndarray:
    """(n, R) Λ of each seed under each draw of items."""
    shares = _item_shares(task, table.learned.shape[1], count, seed)
    learned = (table.learned.astype(np.float32) @ shares).astype(np.float64)
    heads = table.head
    if (heads == heads[0]).all():
        # The start model is scored once for all seeds of a task.
        heads = heads[:1]
    return captured(learned, (heads.astype(np.float32) @ shares).astype(np.float64))


def gain_replicates(
    task: str, table: ItemTable, count: int = REPLICATES, seed: int = ROOT_SEED
) -> Replicates:
    """Gain in u of one task, plain mean over seeds; seeds and items resampled."""
    rows = table.final - table.head
    shares = _item_shares(task, rows.shape[1], count, seed)
    by_weight = (rows.astype(np.float32) @ shares).astype(np.float64)
    return crossed(task, rows.mean(axis=1), by_weight, mean_rows, count, seed)


POSITIONS = "generalization items"


def linear_replicates(
    task: str,
    values: np.ndarray,
    blocks: Blocks,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """A plain mean over the seeds of a task, seeds and clusters of items resampled.

    To first order in the weights. Clusters are drawn by their position in a split, with the same
    draw for every task and every split of N clusters: an item set that several tasks are scored
    on is drawn as one, and sets that have nothing to do with one another are independent row by
    row, so that drawing them together adds nothing on average.

    Args:
        values: (n,) one number per seed.
        blocks: (n, N) derivatives by the clusters' weights; empty: seeds only.
    """
    if not blocks:
        return crossed(task, values, None, mean_rows, count, seed)
    moved = np.zeros((len(values), count))
    for clusters, rows in sorted(blocks.items()):
        centred = rows - rows.mean(axis=1, keepdims=True)
        moved += centred.astype(np.float32) @ _item_shares(POSITIONS, clusters, count, seed)
    return crossed(task, values, values[:, None] + moved, mean_rows, count, seed)


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
    drawn = headline(resampled_shares(columns, _index(task, columns.shape[1], count, seed)))
    drawn += value - drawn.mean()
    return Replicates(columns[0], value, drawn, drawn, np.full(count, value))


def scaled(part: Replicates, factor: float) -> Replicates:
    """The same in another unit."""
    return Replicates(
        part.values * factor,
        part.location * factor,
        part.drawn * factor,
        part.seeds * factor,
        part.items * factor,
    )


def spread(parts: Sequence[Replicates]) -> np.ndarray:
    """(3, R) replicates of the mean over tasks: seeds and items, seeds alone, items alone."""
    names = ("drawn", "seeds", "items")
    return np.stack([sum(getattr(part, name) for part in parts) / len(parts) for name in names])


def over_tasks(parts: Sequence[Replicates]) -> np.ndarray:
    """(R,) replicates of the mean over tasks, the noise of single answers counted once.

    Resampling seeds and items together counts it three times; see
    :func:`crlbench.report.intervals.noise_once`.
    """
    if all(part.drawn is part.seeds for part in parts):
        return sum(part.drawn for part in parts) / len(parts)
    return noise_once(float(np.mean([part.location for part in parts])), *spread(parts))


def axis_interval(parts: Sequence[Replicates], level: float = LEVEL) -> Interval | None:
    """Expanded percentile interval of the mean over tasks; None where seeds are too few."""
    sizes = [len(part.values) for part in parts]
    return expanded(over_tasks(parts), sizes, level) if enough_seeds(sizes) else None


def shortfall_interval(parts: Sequence[Replicates], level: float = LEVEL) -> Interval | None:
    """:func:`axis_interval` of a score below 1, on the scale log(1 - score).

    A high Stab comes with a short spread of its replicates, a low one with a long spread, so that
    an interval on the score itself misses the truth on one side; on this scale the spreads agree.
    """
    sizes = [len(part.values) for part in parts]
    value = float(np.mean([part.location for part in parts]))
    whole = over_tasks(parts)
    if not enough_seeds(sizes) or value >= 1 or whole.max() >= 1:
        return axis_interval(parts, level)
    short = np.log1p(-whole)
    short += np.log1p(-value) - short.mean()
    found = expanded(short, sizes, level)
    return Interval(float(-np.expm1(found.high)), float(-np.expm1(found.low)), level)


def wider_interval(
    parts: Sequence[Replicates],
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> Interval | None:
    """The same with tasks resampled too: what would be found on other tasks of the kind.

    The spread of the tasks' estimates holds the uncertainty inside tasks already, so that the
    replicates get the larger of the two variances and not their sum. Never narrower than
    :func:`axis_interval`; None for fewer than three tasks.
    """
    inner, tasks = axis_interval(parts, level), len(parts)
    if inner is None or tasks < MIN_TASKS:
        return None
    estimates = np.array([part.location for part in parts])
    value, within = float(estimates.mean()), over_tasks(parts)
    between = estimates[_task_index(tasks, count, seed)].mean(axis=1)
    whole = within + between - value
    larger, total = max(float(within.var()), float(between.var())), float(whole.var())
    if total > 0:
        whole = value + np.sqrt(min(1.0, larger / total)) * (whole - value)
    outer = expanded(whole, [tasks], level)
    return Interval(min(inner.low, outer.low), max(inner.high, outer.high), level)


@lru_cache(maxsize=8)
def _task_index(tasks: int, count: int, seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.PCG64(derive(seed, "tasks", tasks)))
    return generator.integers(0, tasks, size=(count, tasks))
