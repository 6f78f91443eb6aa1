"""What is printed beside the headline (protocol CRL-1, A.5), defined as in rliable.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
and its package rliable, with which the tests compare. A board of theirs has equally many runs
of every task. Where ours does not, every task still weighs the same, save in the pooled IQM.

Everything here takes, per task, an array whose last axis are the runs of the task, so that one
call serves one model, (n,), all models, (M, n), or the resamples of one model, (R, n), from
:func:`crlbench.stats.intervals.resample`. Missing values are refused, not skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    Stratum,
    enough_seeds,
    expanded_tail,
    resample,
    times_drawn,
    trimmed_mean,
)
from crlbench.stats.sorting import row_at

Strata = Sequence[np.ndarray]

_UNKNOWN = (
    "has a value that is missing or infinite; a run that failed or vanished has the value of a "
    "failed run, and a task that a model was not rated on is left out"
)


def pooled_iqm(strata: Strata) -> np.ndarray:
    """(...) mean of the middle half of all runs of all tasks, floor(N/4) dropped at each end.

    What is dropped are mostly whole tasks, the easiest and the hardest; the headline,
    :func:`crlbench.stats.intervals.task_balanced_iqm`, trims inside each task instead.
    """
    return trimmed_mean(np.concatenate(_check(strata), axis=-1))


def mean(strata: Strata) -> np.ndarray:
    """(...) mean over tasks of the mean over runs."""
    return _task_means(strata).mean(axis=0)


def median(strata: Strata) -> np.ndarray:
    """(...) median over tasks of the mean over runs."""
    return np.median(_task_means(strata), axis=0)


def optimality_gap(strata: Strata) -> np.ndarray:
    """(...) 1 - mean(min(u, 1)): how far the runs stay behind the ceiling on average.

    What is above the ceiling makes up for nothing; what is below the floor counts fully.
    """
    return 1.0 - _task_means([np.minimum(rows, 1.0) for rows in _check(strata)]).mean(axis=0)


def share_above(strata: Strata, thresholds: np.ndarray) -> np.ndarray:
    """(..., T) performance profile: share of runs strictly above each of (T,) thresholds.

    Strictly, as in rliable: a run that ends exactly on a threshold is not above it. At the
    threshold 0, runs that learned nothing at all do not count.
    """
    tau = np.asarray(thresholds, dtype=np.float64)
    if not np.isfinite(tau).all():
        raise ValidationError("thresholds of a performance profile must be finite")
    shares = []
    for rows in _check(strata):
        count = np.zeros((*rows.shape[:-1], len(tau)), dtype=np.int32)
        for run in np.moveaxis(rows, -1, 0):
            count += run[..., None] > tau
        shares.append(count / rows.shape[-1])
    return sum(shares) / len(shares)


@dataclass(frozen=True, eq=False)
class Profile:
    """The performance profile of one model."""

    thresholds: np.ndarray
    """(T,)"""
    share: np.ndarray
    """(T,) share of runs strictly above each threshold, from 1 down to 0."""
    low: np.ndarray | None
    high: np.ndarray | None
    """(T,) bounds of the band; None where seeds are too few for one."""
    level: float
    """Of the band at each threshold by itself, not of the band as a whole."""


def profile(
    strata: Sequence[Stratum],
    thresholds: np.ndarray,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> Profile:
    """The profile of one model and its pointwise band.

    The band is the expanded percentile interval of the share at each threshold, from resamples
    of seeds inside tasks (and of items, where a stratum has them) that all models share.

    Raises:
        ValidationError: no task, a task without runs, a value that is missing or infinite.
    """
    tau = np.asarray(thresholds, dtype=np.float64)
    share = share_above([stratum.values for stratum in strata], tau)
    sizes = [len(stratum.values) for stratum in strata]
    if not enough_seeds(sizes):
        return Profile(tau, share, None, None, level)
    draws = sum(_drawn_share(stratum, tau, count, seed) for stratum in strata) / len(strata)
    tail = expanded_tail(min(sizes), sum(n - 1 for n in sizes), level)
    sorted_draws = np.sort(draws, axis=1).T
    low, high = (row_at(sorted_draws, q * (count - 1)) for q in (tail, 1.0 - tail))
    return Profile(tau, share, low, high, level)


def _drawn_share(stratum: Stratum, tau: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(T, count) shares above each threshold of the resamples of one task."""
    if stratum.resampled is not None:
        return share_above([resample(stratum, count, seed)], tau).T
    above = (stratum.values > tau[:, None]).astype(np.float64)
    n = len(stratum.values)
    return above @ times_drawn(stratum.name, n, count, seed) / n


def improvement(strata: Strata) -> np.ndarray:
    """(M, M) probability that the row's model beats the column's on a task drawn at random.

    The mean over tasks of P(a > b) + P(tie) / 2 over all pairs of a run of a and a run of b,
    the Mann-Whitney statistic. Seeds are not paired here: it asks about the next run.

    Args:
        strata: per task (M, n) numbers, NaN where a model has fewer seeds. A row of NaN: not rated
            on the task; a pair is compared on the tasks that are rated for both.

    Returns:
        1/2 on the diagonal; NaN for a pair without a common task.
    """
    if not len(strata):
        raise ValidationError("no task: the probability of improvement is not defined")
    models = len(strata[0])
    total, tasks = np.zeros((models, models)), np.zeros((models, models))
    for k, rows in enumerate(np.asarray(rows, dtype=np.float64) for rows in strata):
        seeds = _seeds(rows, f"task {k} of {len(strata)}")
        both = np.outer(seeds, seeds)
        total += _wins(rows) / np.maximum(both, 1)
        tasks += both > 0
    chances = np.full((models, models), np.nan)
    np.divide(total, tasks, out=chances, where=tasks > 0)
    np.fill_diagonal(chances, 0.5)
    return chances


def _wins(rows: np.ndarray) -> np.ndarray:
    """(M, M) pairs of runs that the row's model wins, ties by halves; NaN meets nothing."""
    a, b = rows[:, None, :, None], rows[None, :, None, :]
    return ((a > b).sum(axis=(2, 3)) + (a >= b).sum(axis=(2, 3))) / 2.0


def _seeds(rows: np.ndarray, where: str) -> np.ndarray:
    """(M,) how many seeds each model has; they stand first."""
    finite = np.isfinite(rows)
    counts = finite.sum(axis=1)
    gaps = (finite != (np.arange(rows.shape[1]) < counts[:, None])).any() or np.isinf(rows).any()
    if gaps or not rows.shape[1]:
        raise ValidationError(f"{where} {_UNKNOWN if gaps else 'has no runs'}")
    return counts


def _task_means(strata: Strata) -> np.ndarray:
    """(K, ...) mean over the runs of each task."""
    return np.stack([rows.mean(axis=-1) for rows in _check(strata)])


def _check(strata: Strata) -> list[np.ndarray]:
    """The arrays of the tasks, all of them with runs and without missing values."""
    if not len(strata):
        raise ValidationError("no task: there is nothing to aggregate")
    values = [np.asarray(rows, dtype=np.float64) for rows in strata]
    for k, rows in enumerate(values):
        if rows.shape[-1] == 0:
            raise ValidationError(f"task {k} of {len(values)} has no runs")
        if not np.isfinite(rows).all():
            raise ValidationError(f"task {k} of {len(values)} {_UNKNOWN}")
    return values
