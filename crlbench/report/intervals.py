"""Uncertainty of a mean over tasks and seeds (protocol CRL-1, A.5 and A.6 point 3).

A bootstrap with tasks as strata: inside a task the seed indices are resampled, and with them
the evaluation items, jointly for every seed because all seeds answer the same items. The
draws of a task depend on its name, its number of seeds and of items only, so every model gets
the same resamples, and another entry moves no interval.

The percentile interval of few seeds is too narrow; the *expanded percentile* interval
(Hesterberg 2015) widens its quantiles by ``sqrt(n / (n - 1))`` and Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from crlbench.report.estimators import ItemTable
from crlbench.seeding import derive

REPLICATES = 10_000
LEVEL = 0.95
ROOT_SEED = derive(0, "report", "bootstrap")
"""Seed of all resampling in reports; stored with every summary."""

TRIM = 0.25
MIN_SEEDS = 2
"""Fewer seeds than this have no interval."""
MIN_SEEDS_ALONE = 5
"""Seeds that one task alone needs: even the whole range of n values misses their true median
with probability 2^(1-n), so that below 5 no bootstrap interval can be near 95 %."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float = LEVEL


@dataclass(frozen=True)
class Stratum:
    """The seeds of one task.

    ``values`` are (n,) numbers, one per seed; ``resampled``, where given, returns the (R, n)
    numbers that the seeds would have had under (R, N) item weights.
    """

    name: str
    values: np.ndarray
    items: int = 0
    resampled: Callable[[np.ndarray], np.ndarray] | None = None


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """25 %-trimmed mean over the last axis: floor(n/4) values dropped at each end."""
    n = values.shape[-1]
    cut = int(TRIM * n)
    return np.sort(values, axis=-1)[..., cut : n - cut].mean(axis=-1)


def plain_mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis."""
    return values.mean(axis=-1)


Location = Callable[[np.ndarray], np.ndarray]


def over_tasks(strata: Sequence[np.ndarray], location: Location) -> np.ndarray | float:
    """``location`` over the seeds inside each task, then the plain mean over tasks."""
    return sum(location(np.asarray(values)) for values in strata) / len(strata)


def task_balanced_iqm(strata: Sequence[np.ndarray]) -> float:
    """The headline statistic: 25 %-trimmed mean inside each task, then the mean over tasks."""
    return float(over_tasks(strata, trimmed_mean))


def resample(
    stratum: Stratum, count: int = REPLICATES, seed: int = ROOT_SEED
) -> np.ndarray:
    """(count, n) bootstrap resamples of the seeds of one task; apply a location to each row."""
    n = len(stratum.values)
    generator = np.random.Generator(np.random.PCG64(derive(seed, stratum.name, "seeds", n)))
    index = generator.integers(0, n, size=(count, n))
    if stratum.resampled is None:
        return stratum.values[index]
    weights = item_weights(stratum.name, stratum.items, count, seed)
    return np.take_along_axis(stratum.resampled(weights), index, axis=-1)


@lru_cache(maxsize=8)
def item_weights(name: str, items: int, count: int, seed: int = ROOT_SEED) -> np.ndarray:
    """(count, items) shares of the items of a task in each replicate; rows sum to 1."""
    generator = np.random.Generator(np.random.PCG64(derive(seed, name, "items", items)))
    drawn = generator.integers(0, items, size=(count, items))
    rows = np.arange(count)[:, None] * items
    counts = np.bincount((drawn + rows).ravel(), minlength=count * items)
    weights = counts.reshape(count, items) / items
    weights.flags.writeable = False
    return weights


def bootstrap(
    strata: Sequence[Stratum],
    location: Location = trimmed_mean,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> Interval | None:
    """Expanded percentile interval of ``over_tasks``; None where seeds are too few for one."""
    replicates = [location(resample(stratum, count, seed)) for stratum in strata]
    return interval(replicates, [len(stratum.values) for stratum in strata], level)


def interval(
    replicates: Sequence[np.ndarray], seeds: Sequence[int], level: float = LEVEL
) -> Interval | None:
    """Expanded percentile interval of a mean over tasks.

    Args:
        replicates: per task (R,) bootstrap replicates of its location.
        seeds: per task the number of seeds.

    Returns:
        None for a single seed anywhere, and for one task alone with fewer than
        :data:`MIN_SEEDS_ALONE` seeds.
    """
    n = min(seeds, default=0)
    if n < (MIN_SEEDS_ALONE if len(seeds) == 1 else MIN_SEEDS):
        return None
    tail = expanded_tail(n, sum(size - 1 for size in seeds), level)
    low, high = np.quantile(sum(replicates) / len(replicates), [tail, 1.0 - tail])
    return Interval(float(low), float(high), level)


def expanded_tail(n: int, df: int, level: float = LEVEL) -> float:
    """Tail probability of the expanded percentile interval: Φ(-t·sqrt(n/(n-1))).

    ``n`` seeds in the smallest stratum set the bias of the bootstrap variance; the degrees of
    freedom are those of the pooled variance, the sum of n - 1 over the tasks.
    """
    t = student_quantile(0.5 + level / 2, df)
    return NormalDist().cdf(-t * math.sqrt(n / (n - 1)))


def student_quantile(p: float, df: int) -> float:
    """Quantile of Student's t for p > 1/2 and whole degrees of freedom, by bisection."""
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return 0.5 * (low + high)


def student_cdf(t: float, df: int) -> float:
    """Distribution function of Student's t with whole ``df`` (Abramowitz & Stegun 26.7.3-4)."""
    theta = math.atan(t / math.sqrt(df))
    cosine, total = math.cos(theta), 0.0
    if df % 2:
        term = cosine
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        central = 2.0 / math.pi * (theta + math.sin(theta) * total)
    else:
        term = 1.0
        for k in range(0, df - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        central = math.sin(theta) * total
    return 0.5 + 0.5 * central


def lam_stratum(task: str, table: ItemTable) -> Stratum:
    """Λ of the seeds of a task, items resampled."""
    return _stratum(task, table, table.lam)


def gain_stratum(task: str, table: ItemTable) -> Stratum:
    """Raw gain of the seeds of a task, items resampled."""
    return _stratum(task, table, table.gain)


def _stratum(task: str, table: ItemTable, number: Callable[[np.ndarray], np.ndarray]) -> Stratum:
    items = table.learned.shape[1]
    even = np.full((1, items), 1.0 / items)
    return Stratum(task, number(even)[0], items, number)
