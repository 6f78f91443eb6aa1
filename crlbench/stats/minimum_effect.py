"""Minimum-effect tiers of protocol CRL-2: a tier breaks only where the margin is exceeded.

All pairs of M entries get simultaneous 95 % bounds of their differences. One entry *beats* another
if the bound next to 0 lies beyond the margin. Entries stand by estimate. The first of a tier is its
anchor, and the tier ends where two things hold: the anchor beats every entry below, and no entry
above is equivalent to one below. So whoever stands in a lower tier is worse than the anchor by more
than the margin, and no pair is in two tiers and equivalent at once. Two members of neighbouring
tiers need not differ by as much.

Entries with the same estimate are in one tier, and a tier that begins with several has them all as
its anchor: no tier depends on the order in which entries come.

Each pair has its own standard error, as in the procedure of Games and Howell (1976). The bar is the
quantile of the largest |t| among all pairs of equal entries (:func:`crlbench.stats.rank_over_tasks.
bar`), at the pair's degrees of freedom. Where all pairs share one variance, it is that of the
studentised range (Tukey). That both hold for unequal spreads, degrees of freedom and noise of items
is simulated, at the hypothesis's boundary too: a true difference equal to the margin
(``python benchmarks/simulations.py --part effects``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.false_discovery import equivalence_p
from crlbench.stats.intervals import split_variance
from crlbench.stats.paired import EQUIVALENCE_LEVEL
from crlbench.stats.rank_over_tasks import bar
from crlbench.stats.tiers import ALPHA, rank_intervals

DF_STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 30, 60)
"""Degrees of freedom count as the next lower of these, whose bar is a little higher; above the last
the bar hardly falls."""
ROUNDING = 1e-6
"""By so much degrees of freedom that are a whole number may come out lower."""
NOTHING = 1e-12
"""A variance below this share of its parts is rounding."""


@dataclass(frozen=True)
class MinimumEffect:
    """M entries in tiers that differ by more than a margin."""

    order: tuple[int, ...]
    """Positions of the entries by estimate, the highest first; equal ones by name."""
    tier: np.ndarray
    """(M,) from 1 on."""
    anchors: tuple[int, ...]
    """Position of the first entry of each tier, in ``order``."""
    beats: np.ndarray
    """(M, M) True where the row is better than the column by more than the margin."""
    ranks: np.ndarray
    """(M, 2) best and worst rank, where "better" is by more than the margin."""
    low: np.ndarray
    """(M, M) simultaneous lower bounds of row minus column; NaN where a pair is not compared."""
    high: np.ndarray
    """(M, M) simultaneous upper bounds."""
    margin: float


def minimum_effect_tiers(
    estimates: Sequence[float] | np.ndarray,
    errors: np.ndarray,
    df: float | np.ndarray,
    margin: float,
    alpha: float = ALPHA,
    equivalent: np.ndarray | None = None,
    difference: np.ndarray | None = None,
    better: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    has_one_variance: bool = False,
) -> MinimumEffect:
    """Tiers of M entries.

    Args:
        estimates: (M,) headlines, finite.
        errors: (M, M) standard error of each difference; NaN for a pair that is not compared. The
            diagonal is not read.
        df: degrees of freedom of the errors, one number or (M, M).
        margin: that a difference must exceed; 0 gives plain simultaneous tiers.
        alpha: probability that some entry beats another one falsely.
        equivalent: (M, M) pairs whose verdict, as the page shows it, is equivalent; None: those
            whose 90 % interval, from the same errors, lies inside the margin.
        difference: (M, M) row minus column, where it is not that of the estimates (entries that
            were compared on fewer tasks than they have).
        better: (M, M) True where the page's verdict says that the row is better than the column.
            No other pair is separated. None: the bounds alone decide.
        names: (M,) of the entries; they order entries with the same estimate. None: these stand in
            the order in which they come.
        has_one_variance: the errors are from one variance of all entries
            (:func:`crlbench.stats.design_pairs.design_pairs`).

    Raises:
        ValidationError: shapes that do not fit, an estimate that is not finite, an error below 0, a
            name that occurs twice.
    """
    values = np.asarray(estimates, dtype=np.float64)
    models = len(values)
    table = np.array(errors, dtype=np.float64)
    _check(values, table, margin, names)
    d = values[:, None] - values if difference is None else np.asarray(difference, np.float64)
    np.fill_diagonal(table, 0.0)
    reach = critical(models, df, alpha, has_one_variance) * table
    low, high = d - reach, d + reach
    if equivalent is None:
        equivalent = equivalence_p(d, table, df, margin) <= (1.0 - EQUIVALENCE_LEVEL) / 2
    beats = (low > margin) & ~np.asarray(equivalent, dtype=bool)
    if better is not None:
        beats &= np.asarray(better, dtype=bool)
    np.fill_diagonal(beats, False)
    places = np.argsort(names, kind="stable") if names is not None else np.arange(models)
    order = places[np.argsort(-values[places], kind="stable")]
    tier, anchors = break_tiers(order, beats, np.asarray(equivalent, dtype=bool), values)
    return MinimumEffect(
        order=tuple(order.tolist()),
        tier=tier,
        anchors=anchors,
        beats=beats,
        ranks=rank_intervals(beats),
        low=low,
        high=high,
        margin=margin,
    )


def break_tiers(
    order: np.ndarray, beats: np.ndarray, equivalent: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, tuple[int, ...]]:
    """(M,) tiers, and the positions of their first entries.

    Args:
        order: (M,) positions from the first to the last.
        beats, equivalent: (M, M) by position.
        values: (M,) estimates; equal ones are never parted.
    """
    tiers, anchors = np.empty(len(order), dtype=int), list[int]()
    top = order[:0]
    for place, entry in enumerate(order):
        above, below = order[:place], order[place:]
        breaks = not anchors or (
            values[above[-1]] > values[entry]
            and beats[np.ix_(top, below)].all()
            and not equivalent[np.ix_(above, below)].any()
        )
        if breaks:
            anchors.append(int(entry))
            top = order[values[order] == values[entry]]
        tiers[entry] = len(anchors)
    return tiers, tuple(anchors)


def critical(
    models: int, df: float | np.ndarray, alpha: float = ALPHA, has_one_variance: bool = False
) -> np.ndarray:
    """Bar of |t| for all pairs of that many entries, of the shape of ``df``."""
    known = np.nan_to_num(np.asarray(df, np.float64), nan=1.0)
    if models < 2:
        return np.zeros(known.shape)
    steps = np.maximum(0, np.searchsorted(DF_STEPS, known + ROUNDING, side="right") - 1)
    used, index = np.unique(steps, return_inverse=True)
    one_bar = _range_bar if has_one_variance else _pairs_bar
    bars = np.array([one_bar(models, DF_STEPS[step], alpha) for step in used])
    return bars[index].reshape(known.shape)


def _pairs_bar(models: int, df: int, alpha: float) -> float:
    """Where every pair has an error of its own."""
    return bar(models, df + 1, alpha)


@lru_cache(maxsize=256)
def _range_bar(models: int, df: int, alpha: float) -> float:
    """Where all pairs have one variance: Tukey's."""
    # Imported here: scipy.stats takes longer to import than the rest of the package's statistics.
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1.0 - alpha, models, df)) / math.sqrt(2.0)


def pair_degrees(seeds: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """(M, M) degrees of freedom of the errors of single checkpoints (Welch and Satterthwaite).

    Every task brings n - 1, as far as it brings variance. What no seed brings, as items do, is as
    good as known.

    Args:
        seeds: (M, K, n) score of every seed; seeds with the same index are paired.
        errors: (M, M) standard errors of the differences, as :func:`pair_errors` gives them.
    """
    tasks, n = seeds.shape[1:]
    d = seeds[:, None] - seeds[None]
    by_task = d.var(axis=-1, ddof=1) / (n * tasks**2)
    total = np.maximum(errors**2, by_task.sum(axis=-1))
    weights = (by_task**2).sum(axis=-1) / (n - 1)
    most = np.full(total.shape, math.inf)
    return np.divide(total**2, weights, out=most, where=weights > 0)


def pair_errors(spreads: np.ndarray, seeds: int) -> np.ndarray:
    """(M, M) standard errors of all differences, seeds and items paired, every noise counted once.

    Args:
        spreads: (M, 3, R) replicates of each headline with shared draws, as
            :func:`crlbench.stats.resampling.spread` gives them: seeds and items, seeds, items.
        seeds: per task, the fewest; the bootstrap variance of n is (n - 1) / n of the unbiased.

    Raises:
        ValidationError: a single seed, which says nothing about how seeds differ.
    """
    if seeds < 2:
        raise ValidationError("standard errors of differences need at least 2 seeds per task")
    both, by_seed, by_item = (_difference_variances(spreads[:, kind]) for kind in range(3))
    by_seed, by_item = split_variance(both, by_seed, by_item)
    return np.sqrt(by_seed * seeds / (seeds - 1) + by_item)


def _difference_variances(replicates: np.ndarray) -> np.ndarray:
    """(M, M) variances of the differences of (M, R) replicates."""
    products = np.atleast_2d(np.cov(replicates, bias=True))
    diagonal = np.diag(products)
    sums = diagonal[:, None] + diagonal
    variances = sums - 2.0 * products
    # What is left of two equal rows is rounding.
    return np.where(variances > NOTHING * sums, variances, 0.0)


def _check(
    values: np.ndarray, errors: np.ndarray, margin: float, names: Sequence[str] | None
) -> None:
    if names is not None and len(set(names)) != len(values):
        raise ValidationError(
            f"tiers: {len(values)} estimates and the names {', '.join(names)}; each needs its own"
        )
    if not np.isfinite(values).all():
        raise ValidationError("tiers: every entry needs a finite estimate; leave the others out")
    if errors.shape != (len(values), len(values)):
        raise ValidationError(
            f"tiers: {len(values)} estimates and standard errors of shape {errors.shape}; one is "
            "needed for each pair"
        )
    if (errors < 0).any() or margin < 0:
        raise ValidationError("tiers: standard errors and the margin must not be below 0")
