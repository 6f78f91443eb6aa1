"""Uncertainty of a mean over tasks and seeds (protocol CRL-1, A.5 and A.6 point 3).

A bootstrap with tasks as strata: inside a task the seed indices are resampled, and with them
the evaluation items, jointly for every seed because all seeds answer the same items. The
draws of a task depend on its name, its number of seeds and of items only, so every model gets
the same resamples, and another entry moves no interval.

The percentile interval of few seeds is too narrow; the *expanded percentile* interval
(Hesterberg 2015) widens its quantiles by ``sqrt(n / (n - 1))`` and Student's t. It widens what the
items bring as well, and with three seeds it covers too much. Protocol CRL-2 therefore takes
Student's interval, from the variances that seeds and items bring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from statistics import NormalDist
from typing import Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from crlbench.seeding import derive
from crlbench.stats.sorting import order_statistics

REPLICATES = 10_000
LEVEL = 0.95
MOST_DF = 1e6
"""Degrees of freedom from which on a variance is as good as known."""
ROOT_SEED = derive(0, "report", "bootstrap")
"""Seed of all resampling in reports; stored with every summary."""

TRIM = 0.25
MIN_SEEDS = 2
"""Fewer seeds than this have no spread."""
MIN_SEEDS_TOGETHER = 3
"""Seeds that several tasks need for an interval of their mean; with two it covers too seldom."""
MIN_SEEDS_ALONE = 5
"""Seeds that one task alone needs: even the whole range of n values misses their true median
with probability 2^(1-n), so that below 5 no bootstrap interval can be near 95 %."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float = LEVEL

    def union(self, other: Interval) -> Interval:
        """The smallest interval of this level that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.level)


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
    index = seed_index(stratum.name, len(stratum.values), count, seed)
    if stratum.resampled is None:
        return stratum.values[index]
    weights = item_weights(stratum.name, stratum.items, count, seed)
    return np.take_along_axis(stratum.resampled(weights), index, axis=-1)


def seed_index(name: str, n: int, count: int, seed: int = ROOT_SEED) -> np.ndarray:
    """(count, n) drawn seed positions of a task in each replicate."""
    generator = np.random.Generator(np.random.PCG64(derive(seed, name, "seeds", n)))
    return generator.integers(0, n, size=(count, n))


@lru_cache(maxsize=32)
def times_drawn(name: str, n: int, count: int, seed: int = ROOT_SEED) -> np.ndarray:
    """(n, count) float32: how often each seed of a task is in each replicate."""
    index = seed_index(name, n, count, seed)
    times = np.stack([(index == i).sum(axis=1, dtype=np.float32) for i in range(n)])
    times.flags.writeable = False
    return times


@lru_cache(maxsize=8)
def item_weights(name: str, items: int, count: int, seed: int = ROOT_SEED) -> np.ndarray:
    """(count, items) shares of the items of a task in each replicate; rows sum to 1."""
    draws = drawn_items(name, items, count, seed)
    weights = np.concatenate([times.T for times in draws]) / items
    weights.flags.writeable = False
    return weights


def drawn_items(
    name: str, items: int, count: int, seed: int = ROOT_SEED, block: int = 200
) -> Iterator[np.ndarray]:
    """(items, up to block) how often each item of a task is in each replicate, in order."""
    generator = np.random.Generator(np.random.PCG64(derive(seed, name, "items", items)))
    for start in range(0, count, block):
        size = min(block, count - start)
        draws = generator.integers(0, items, size=(size, items))
        draws *= size
        draws += np.arange(size)[:, None]
        yield np.bincount(draws.ravel(), minlength=size * items).reshape(items, size)


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
        None for fewer seeds anywhere than :func:`least_seeds`.
    """
    if not enough_seeds(seeds):
        return None
    return expanded(sum(replicates) / len(replicates), seeds, level)


def enough_seeds(seeds: Sequence[int]) -> bool:
    """Whether the numbers of seeds per task allow an interval."""
    return min(seeds, default=0) >= least_seeds(len(seeds))


def least_seeds(tasks: int) -> int:
    """Seeds of every task that an interval of the mean over this many tasks needs."""
    return MIN_SEEDS_ALONE if tasks == 1 else MIN_SEEDS_TOGETHER


def expanded(whole: np.ndarray, seeds: Sequence[int], level: float = LEVEL) -> Interval:
    """Expanded percentile interval from (R,) replicates of a statistic of all tasks."""
    return expanded_at(whole, seeds, (level,))[0]


def expanded_at(
    whole: np.ndarray, seeds: Sequence[int], levels: Sequence[float]
) -> list[Interval]:
    """The same at several levels, for one look at the replicates."""
    n, df, last = min(seeds), sum(size - 1 for size in seeds), len(whole) - 1
    tails = [expanded_tail(n, df, level) for level in levels]
    ends = order_statistics(whole, *(q * last for tail in tails for q in (tail, 1.0 - tail)))
    return [Interval(*pair) for pair in zip(ends[::2], ends[1::2], levels, strict=True)]


def half_width(
    variances: Sequence[float], seeds: Sequence[float], level: float = LEVEL
) -> float:
    """Of Student's interval of a mean over tasks, from the variances of each task's replicates.

    For statistics whose percentiles stay too near to the estimate, such as the dispersion of few
    seeds. Degrees of freedom are those of Welch and Satterthwaite, rounded down.
    """
    shares = [v * n / (n - 1) / len(seeds) ** 2 for v, n in zip(variances, seeds, strict=True)]
    total = sum(shares)
    if total <= 0:
        return 0.0
    weights = ((v / total) ** 2 / (n - 1) for v, n in zip(shares, seeds, strict=True))
    df = max(1, int(1.0 / sum(weights)))
    return student_quantile(0.5 + level / 2, df) * math.sqrt(total)


def seed_shares(rows: Sequence[np.ndarray], seeds: Sequence[int], tasks: int) -> list[float]:
    """Variance that the seeds of each part bring to a mean over tasks; unbiased.

    The bootstrap variance of n seeds is (n - 1) / n of it.

    Args:
        rows: (R,) replicates of each part, seeds alone resampled; the parts share no seeds.
        seeds: of each part.
    """
    return [
        float(np.var(row)) * n / (n - 1) / tasks**2 for row, n in zip(rows, seeds, strict=True)
    ]


def satterthwaite(
    shares: Sequence[float], seeds: Sequence[int], known: float
) -> tuple[float, float]:
    """Variance of a mean over tasks or of a difference, and the degrees of freedom of Welch and
    Satterthwaite, at most :data:`MOST_DF`.

    Args:
        shares: what :func:`seed_shares` gives for the parts.
        seeds: of each part; n seeds have n - 1 degrees of freedom.
        known: variance that no seed brings, as items do.
    """
    variance = sum(shares) + known
    wobble = sum(share**2 / (n - 1) for share, n in zip(shares, seeds, strict=True))
    return variance, min(MOST_DF, variance**2 / wobble) if wobble > 0 else MOST_DF


def student_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's interval of the mean of independent numbers, two or more.

    Exact where they are normal. ``mean ± t(K - 1) · s / √K``.
    """
    count = len(values)
    middle = float(np.mean(values))
    width = student_quantile(0.5 + level / 2, count - 1) * float(np.std(values, ddof=1))
    width /= math.sqrt(count)
    return Interval(middle - width, middle + width, level)


def student_around(value: float, variance: float, df: float, level: float = LEVEL) -> Interval:
    """Student's interval of an estimate of that variance."""
    width = student_quantile(0.5 + level / 2, df) * math.sqrt(variance)
    return Interval(value - width, value + width, level)


def expanded_tail(n: int, df: int, level: float = LEVEL) -> float:
    """Tail probability of the expanded percentile interval: Φ(-t·sqrt(n/(n-1))).

    ``n`` seeds in the smallest stratum set the bias of the bootstrap variance; the degrees of
    freedom are those of the pooled variance, the sum of n - 1 over the tasks.
    """
    t = student_quantile(0.5 + level / 2, df)
    return NormalDist().cdf(-t * math.sqrt(n / (n - 1)))


def student_quantile(p: float, df: float) -> float:
    """Quantile of Student's t."""
    return float(stdtrit(df, p))


def student_cdf(t: float, df: int) -> float:
    """Distribution function of Student's t."""
    return float(stdtr(df, t))


IntervalRule = Literal["percentile", "variance", "shares"]
"""How an interval comes from replicates.

==========  ====================================================================================
percentile  the expanded percentile interval (CRL-1: Λ and Gen)
variance    Student's, from the variances that seeds and items bring (CRL-2: Λ and Gen)
shares      Student's, of shares in [0, 1] that are resampled over seeds (Stab)
==========  ====================================================================================
"""
RULE_WORDS: dict[IntervalRule, str] = {
    "percentile": "expanded percentile",
    "variance": "Student's t of the variances of seeds and items",
}
"""Of Λ and Gen, for people."""


@dataclass(frozen=True)
class Replicates:
    """One task of one arm: its seeds and the bootstrap replicates of their location."""

    values: np.ndarray
    """(n,) one number per seed, in the order of the seed indices."""
    location: float
    drawn: np.ndarray
    """(R,) seeds and items resampled."""
    seeds: np.ndarray
    """(R,) seeds resampled only, with the same indices."""
    items: np.ndarray
    """(R,) items resampled only, with the same weights."""
    bounds: tuple[float, float] | None = None
    """Between which the location lies by its definition; None where nothing bounds it."""
    worth: float | None = None
    """Seeds whose degrees of freedom the spread has, where it rests on less than ``values``."""
    rule: IntervalRule = "percentile"

    @property
    def size(self) -> float:
        """Seeds that the spread is worth."""
        return len(self.values) if self.worth is None else self.worth


def common_rule(parts: Sequence[Replicates]) -> IntervalRule:
    """The rule of parts that one interval is made of; there is one, because they are of one
    protocol."""
    rules = {part.rule for part in parts}
    if len(rules) > 1:
        raise ValueError(f"replicates with several interval rules: {', '.join(sorted(rules))}")
    return rules.pop()


def replicate(
    stratum: Stratum,
    location: Location = trimmed_mean,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """Replicates of one task; strata with equal name, seeds and items share every draw."""
    value = float(location(stratum.values))
    by_seed = location(resample(Stratum(stratum.name, stratum.values), count, seed))
    if stratum.resampled is None:
        return Replicates(stratum.values, value, by_seed, by_seed, np.full(count, value))
    weights = item_weights(stratum.name, stratum.items, count, seed)
    by_item = location(stratum.resampled(weights))
    draws = location(resample(stratum, count, seed))
    return Replicates(stratum.values, value, draws, by_seed, by_item)


def mean_of_rows(rows: Sequence[np.ndarray]) -> np.ndarray:
    """``np.mean(rows, axis=0)``, to the last bit, without a copy of them all in one array; of one
    row the row itself."""
    return reduce(np.add, rows) / len(rows) if len(rows) > 1 else rows[0]


def noise_once(
    value: float, drawn: np.ndarray, by_seed: np.ndarray, by_item: np.ndarray
) -> np.ndarray:
    """(R,) ``drawn`` moved towards ``value`` until the noise of single answers counts once.

    Args:
        drawn, by_seed, by_item: (R,) replicates of one statistic, as in :class:`Replicates`.
    """
    total, seeds, items = variance_parts(drawn, by_seed, by_item)
    return shrunk(value, drawn, total, seeds + items)


def arms_interval(arm: Sequence[Replicates], other: Sequence[Replicates]) -> Interval:
    """Interval of the mean over tasks of an arm minus another, which has the same tasks and items
    and seeds of its own.

    By the rule of the replicates: Student's corrects the spread of each arm for its own number of
    seeds, and items add what their choice moves, without the noise of answers. The expanded
    percentile interval takes the smaller number of seeds for both arms.
    """
    pairs = list(zip(arm, other, strict=True))
    value = float(np.mean([one.location - two.location for one, two in pairs]))
    drawn, by_seed, by_item = (
        mean_of_rows([getattr(one, name) - getattr(two, name) for one, two in pairs])
        for name in ("drawn", "seeds", "items")
    )
    if common_rule([*arm, *other]) != "variance":
        sizes = [min(len(one.values), len(two.values)) for one, two in pairs]
        return expanded(noise_once(value, drawn, by_seed, by_item), sizes)
    _, _, items = variance_parts(drawn, by_seed, by_item)
    sizes = [len(part.values) for part in (*arm, *other)]
    shares = seed_shares([part.seeds for part in (*arm, *other)], sizes, len(pairs))
    return student_around(value, *satterthwaite(shares, sizes, items))


def shrunk(value: float, drawn: np.ndarray, total: float, variance: float) -> np.ndarray:
    """(R,) ``drawn``, of variance ``total``, moved towards ``value`` until they have the other
    variance, where it is less."""
    if total <= 0:
        return drawn
    return value + math.sqrt(min(1.0, variance / total)) * (drawn - value)


def variance_parts(
    drawn: np.ndarray, by_seed: np.ndarray, by_item: np.ndarray
) -> tuple[float, float, float]:
    """Variance of ``drawn``; from the choice of seeds (with the noise of answers); of items.

    Resampling both at once counts the noise of single answers three times (Owen 2007, "The
    pigeonhole bootstrap"): var(both) = S + I + 3 N, var(seeds) = S + N, var(items) = I + N.
    The interval should have S + I + N, or few items make it far too wide.
    """
    total = float(np.var(drawn))
    single = total if by_seed is drawn else float(np.var(by_seed))
    seeds, items = split_variance(total, single, float(np.var(by_item)))
    return total, float(seeds), float(items)


def split_variance(
    both: np.ndarray, seeds: np.ndarray, items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same from the variances of the three kinds of replicates, (...) each."""
    noise = np.maximum(0.0, both - seeds - items)
    return seeds, np.maximum(0.0, items - noise)


