"""What the noise of single answers alone does to a statistic (protocol CRL-1, A.1 to A.3).

A largest drop, a spread and a positive part are raised by noise, so that uncorrected they rank
sizes of evaluation sets. Their expectation *under the null* is subtracted.

The null of a curve: the same N items are scored at every evaluation with fresh draws, item k
with its own probability, and the mean over items never falls. It has three parts.

*Mean.* The isotonic regression of the measured curve.

*Noise.* A mean over fixed items of unequal probabilities varies by Σ_k p_k(1 - p_k) / N², which
is less than the binomial m(1 - m) / N by the variance of the p_k over N: fresh binomial draws
would over-correct. The variance comes from pairs: half the variance over items of the change
from one evaluation to the next, averaged over :data:`NEIGHBOURS` pairs on either side. In a change
an item's probability cancels and its draws do not, so that this is
unbiased as long as an item's probability moves little in one step, whatever the probabilities
are, and it holds for partial credit. Items that change on their own, apart from what all items do
together, count as noise too. The other way, item probabilities from shares smoothed
over w evaluations and shifted on the logit scale until their mean hits the fit, has
1 - 1/w of the variance where probabilities stand still and too much of it where an item is
learned at once, and needs a rule for shares of 0 and 1.

*Draws.* One normal number a point: a mean over N independent items is near enough to normal for
statistics that are read to the second decimal.

An isotonic fit takes part of the noise for learning: at its ends it rises where the truth is
flat, so that its replicates drop less than the truth would. Replicates are therefore fitted
again, and drawn from again, which shows how much a statistic loses by one fit; this is given
back (the iterated bootstrap's correction of bias, Hall & Martin 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crlbench.errors import ValidationError
from crlbench.seeding import derive

REPLICATES = 200
ROOT_SEED = derive(0, "report", "null")
"""Seed of all draws under a null; task and seed index name the stream, so that every model
meets the same draws and another entry changes nobody's correction."""
NEIGHBOURS = 3
"""Pairs of neighbouring evaluations, on either side of a point, that its noise is measured on."""

Statistic = Callable[[np.ndarray], np.ndarray]
"""(..., T) curves to (...) numbers."""


def isotonic(y: np.ndarray) -> np.ndarray:
    """(..., T) least-squares fit to (..., T) that never falls, equal weights.

    By the max-min formula, max over a ≤ j of min over b ≥ j of mean(y_a .. y_b): what pooling
    adjacent violators ends in (Robertson, Wright & Dykstra 1988, theorem 1.4.4), for many curves
    at once, in O(T²) a curve.
    """
    y = np.asarray(y, dtype=np.float64)
    first = np.ascontiguousarray(np.moveaxis(y, -1, 0))
    fit = _isotonic_rows(first.reshape(len(first), -1))
    return np.moveaxis(fit.reshape(first.shape), 0, -1)


def _isotonic_rows(first: np.ndarray) -> np.ndarray:
    """(T, C) fits of the columns."""
    points, curves = first.shape
    sums = np.zeros((points + 1, curves))
    for at, row in enumerate(first):
        np.add(sums[at], row, out=sums[at + 1])
    shares = 1.0 / np.arange(1.0, points + 1)[:, None]
    fit, room = np.full(first.shape, -np.inf), np.empty(first.shape)
    for a in range(points):
        means = np.subtract(sums[a + 1 :], sums[a], out=room[a:])
        means *= shares[: points - a]
        for b in range(len(means) - 1, 0, -1):
            np.minimum(means[b - 1], means[b], out=means[b - 1])
        np.maximum(fit[a:], means, out=fit[a:])
    return fit


def mean_noise(items: np.ndarray) -> np.ndarray:
    """(T,) standard deviation of the mean of each row, from (T, N) scores of the same items.

    In the units of ``items``; 0 for a single row.

    Raises:
        ValidationError: fewer than two items, whose noise cannot be seen.
    """
    points, count = items.shape
    if count < 2:
        raise ValidationError(
            f"a curve of {count} item: the noise of an evaluation needs at least 2 items. "
            "Raise evaluation.curve_items."
        )
    if points < 2:
        return np.zeros(points)
    change = np.diff(items, axis=0)
    square = np.einsum("ij,ij->i", change, change) - change.sum(axis=1) ** 2 / count
    pairs = np.maximum(0.0, square) / ((count - 1) * 2 * count)
    return np.sqrt(_neighbourhood(points) @ pairs)


@lru_cache(maxsize=64)
def _neighbourhood(points: int) -> np.ndarray:
    """(T, T - 1) weights of the pairs (i, i + 1) around every point; rows sum to 1."""
    point, pair = np.arange(points)[:, None], np.arange(points - 1)[None, :]
    near = (pair >= point - NEIGHBOURS) & (pair < point + NEIGHBOURS)
    return near / near.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class CurveNull:
    """Curves of T points as they would be if the mean never fell: R replicates of each level.

    One run, or several at once: then every array has the runs as its first axis.
    """

    fit: np.ndarray
    """(..., T) isotonic fit of the measured curve."""
    noise: np.ndarray
    """(..., T) standard deviation of an evaluation."""
    drawn: np.ndarray
    """(..., R, T) the fit with noise."""
    redrawn: np.ndarray
    """(..., R, T) the isotonic fits of ``drawn`` with fresh noise."""

    def expectation(self, statistic: Statistic) -> float:
        """Mean of a statistic of one run under the null."""
        return float(self.expectations(statistic))

    def expectations(self, statistic: Statistic) -> np.ndarray:
        """(...) mean of a statistic of each run under the null."""
        first, second = (statistic(x).mean(axis=-1) for x in (self.drawn, self.redrawn))
        return 2 * first - second


def curve_null(items: np.ndarray, task: str, seed_index: int, count: int = REPLICATES) -> CurveNull:
    """The null of one run's curve.

    Args:
        items: (T, N) scores of the same items at every measured evaluation, in u. Points after a
            failure are no measurements and do not belong here.
        task, seed_index: name the stream of draws.
        count: R.
    """
    items = np.asarray(items, dtype=np.float64)
    draws = _normals(task, (seed_index,), len(items), count)
    return _null(items.mean(axis=1), mean_noise(items), draws[:, :, 0])


def curve_nulls(
    items: Sequence[np.ndarray], task: str, seed_indices: Sequence[int], count: int = REPLICATES
) -> CurveNull:
    """The nulls of several runs of a task with equally many measured evaluations T.

    Args:
        items: per run (T, N), as for :func:`curve_null`.
        seed_indices: per run.
    """
    means, noise = (
        np.stack(rows) for rows in ([x.mean(axis=1) for x in items], [mean_noise(x) for x in items])
    )
    return _null(means, noise, _normals(task, tuple(seed_indices), len(items[0]), count))


def _null(means: np.ndarray, noise: np.ndarray, draws: np.ndarray) -> CurveNull:
    """From (..., T) means and noise and (2, T, ..., R) draws.

    Time stands first in memory, so that one operation serves all replicates of an evaluation.
    """
    fit = isotonic(means)
    level, scale = (np.moveaxis(x, -1, 0)[..., None] for x in (fit, noise))
    values = np.moveaxis(level + scale * draws[0], 0, -1)
    again = np.moveaxis(isotonic(values), -1, 0)
    return CurveNull(fit, noise, values, np.moveaxis(again + scale * draws[1], 0, -1))


@lru_cache(maxsize=256)
def _normals(task: str, seed_indices: tuple[int, ...], points: int, count: int) -> np.ndarray:
    """(2, T, n, R) standard normal numbers of n seed indices of a task; each has its own stream."""
    draws = []
    for index in seed_indices:
        path = ("curve", task, index, points)
        generator = np.random.Generator(np.random.PCG64(derive(ROOT_SEED, *path)))
        draws.append(generator.standard_normal((2, count, points)))
    return _frozen(np.ascontiguousarray(np.stack(draws).transpose(1, 3, 0, 2)))


def positive_part(
    before: np.ndarray, after: np.ndarray, task: str, seed_index: int, count: int = REPLICATES
) -> float:
    """Expectation of max(0, mean(before) - mean(after)) if nothing changed.

    Without a change the two scores of an item could as well have stood the other way round, so
    that the labels are exchanged item by item. Each replicate is counted with its mirror image,
    in which every item is exchanged that was not: half the mean of absolute differences.

    Args:
        before, after: (N,) scores of the same items.
    """
    change = np.asarray(before, dtype=np.float64) - np.asarray(after, dtype=np.float64)
    swaps = _signs(task, seed_index, len(change), count) @ change
    return float(np.abs(swaps).mean() / (2 * len(change)))


@lru_cache(maxsize=256)
def _signs(task: str, seed_index: int, items: int, count: int) -> np.ndarray:
    """(R, N) of -1 and 1: which items change sides."""
    path = ("swap", task, seed_index, items)
    generator = np.random.Generator(np.random.PCG64(derive(ROOT_SEED, *path)))
    return _frozen((2 * generator.integers(0, 2, size=(count, items)) - 1).astype(np.float64))


def _frozen(draws: np.ndarray) -> np.ndarray:
    draws.flags.writeable = False
    return draws
