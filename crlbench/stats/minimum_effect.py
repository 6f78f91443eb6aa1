"""Minimum-effect tiers of protocol CRL-2: a tier breaks only where the margin is exceeded.

All pairs of M entries get simultaneous 95 % bounds of their differences. One entry *beats* another
if the bound next to 0 lies beyond the margin. Entries stand by estimate. The first of a tier is its
anchor, and the tier ends where two things hold: the anchor beats every entry below, and no entry
above is equivalent to one below. So whoever stands in a lower tier is worse than the anchor by more
than the margin, and no pair is in two tiers and equivalent at once. Two members of neighbouring
tiers need not differ by as much.

The bar of the bounds is the quantile of the largest |t| among all pairs of equal entries, each with
its own standard error (:func:`crlbench.stats.rank_over_tasks.bar`). It is the procedure of Games
and Howell (1976) with a bar for unequal errors. Equal spreads and sizes are the worst case of such
bars (Hayter 1984). The boundary of the hypothesis is a true difference equal to the margin; the
error there is simulated (``python benchmarks/simulations.py --part effects``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.false_discovery import equivalence_p
from crlbench.stats.intervals import EQUIVALENCE_LEVEL, split_variance
from crlbench.stats.rank_over_tasks import bar
from crlbench.stats.tiers import ALPHA, rank_intervals

MOST_DF = 60
"""Degrees of freedom above this count as this many: the bar hardly falls any further."""
NOTHING = 1e-12
"""A variance below this share of its parts is rounding."""


@dataclass(frozen=True)
class MinimumEffect:
    """M entries in tiers that differ by more than a margin."""

    order: tuple[int, ...]
    """Positions of the entries by estimate, the highest first."""
    tier: np.ndarray
    """(M,) from 1 on."""
    anchors: tuple[int, ...]
    """Position of the first entry of each tier."""
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
) -> MinimumEffect:
    """Tiers of M entries.

    Args:
        estimates: (M,) headlines, finite.
        errors: (M, M) standard error of each difference; NaN for a pair that is not compared. The
            diagonal is not read.
        df: degrees of freedom of the errors, one number or (M, M).
        margin: that a difference must exceed; 0 gives plain simultaneous tiers.
        alpha: probability that some entry beats another one falsely.
        equivalent: (M, M) pairs whose verdict is equivalent; None: those whose 90 % interval, from
            the same errors, lies inside the margin.
        difference: (M, M) row minus column, where it is not that of the estimates (entries that
            were compared on fewer tasks than they have).

    Raises:
        ValidationError: shapes that do not fit, an estimate that is not finite, an error below 0.
    """
    values = np.asarray(estimates, dtype=np.float64)
    models = len(values)
    table = np.array(errors, dtype=np.float64)
    _check(values, table, margin)
    d = values[:, None] - values if difference is None else np.asarray(difference, np.float64)
    np.fill_diagonal(table, 0.0)
    reach = critical(models, df, alpha) * table
    low, high = d - reach, d + reach
    if equivalent is None:
        equivalent = equivalence_p(d, table, df, margin) <= (1.0 - EQUIVALENCE_LEVEL) / 2
    beats = (low > margin) & ~np.asarray(equivalent, dtype=bool)
    np.fill_diagonal(beats, False)
    order = np.argsort(-values, kind="stable")
    tier, anchors = break_tiers(order, beats, np.asarray(equivalent, dtype=bool))
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
    order: np.ndarray, beats: np.ndarray, equivalent: np.ndarray
) -> tuple[np.ndarray, tuple[int, ...]]:
    """(M,) tiers, and the positions of their anchors.

    Args:
        order: (M,) positions from the first to the last.
        beats, equivalent: (M, M) by position.
    """
    tiers, anchors = np.empty(len(order), dtype=int), list[int]()
    for place, entry in enumerate(order):
        above, below = order[:place], order[place:]
        breaks = not anchors or (
            beats[anchors[-1], below].all() and not equivalent[np.ix_(above, below)].any()
        )
        if breaks:
            anchors.append(int(entry))
        tiers[entry] = len(anchors)
    return tiers, tuple(anchors)


def critical(models: int, df: float | np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """Bar of |t| for all pairs of that many entries, of the shape of ``df``."""
    whole = np.clip(np.floor(np.nan_to_num(np.asarray(df, np.float64), nan=1.0)), 1, MOST_DF)
    if models < 2:
        return np.zeros(whole.shape)
    degrees, index = np.unique(whole, return_inverse=True)
    bars = np.array([bar(models, int(one) + 1, alpha) for one in degrees])
    return bars[index].reshape(whole.shape)


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


def _check(values: np.ndarray, errors: np.ndarray, margin: float) -> None:
    if not np.isfinite(values).all():
        raise ValidationError("tiers: every entry needs a finite estimate; leave the others out")
    if errors.shape != (len(values), len(values)):
        raise ValidationError(
            f"tiers: {len(values)} estimates and standard errors of shape {errors.shape}; one is "
            "needed for each pair"
        )
    if (errors < 0).any() or margin < 0:
        raise ValidationError("tiers: standard errors and the margin must not be below 0")
