"""Stability under stress (protocol CRL-2): calm runs, and the same at three times the rate.

Three shares of each arm, 1 best and 0 worst, from F, H, G and DD of :mod:`stability`:

==========  ==================================================
dispersion  1 - min(1, GMD(F) / max(mean G, .1))
drawdown    mean of 1 - min(1, DD / max(G, .1))
failure     1 - failed runs / runs
==========  ==================================================

A share of a task is the mean of its calm and its stress share, whatever the numbers of seeds, and
Stab of the task is the geometric mean of the three. No share depends on the number of seeds by
construction: with no failure the last is 1, and :func:`failure_bound` says how much that many runs
show. The worst seeds of :mod:`stability_shares` are no part of it, because their share of n whole
seeds changes with n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crlbench.stats.intervals import (
    REPLICATES,
    ROOT_SEED,
    Replicates,
    times_drawn,
)
from crlbench.stats.sorting import gaps, sum_steps
from crlbench.stats.stability import RunStability, seed_columns
from crlbench.stats.stability_shares import (
    LEAST_GAIN,
    TaskStress,
    gini_mean_difference,
    headline,
    kept,
    mirrored,
)
from crlbench.stats.thresholds import clopper_pearson

STRESS_SEEDS = 3
"""Runs of the stress arm on a task: its first seed indices."""
STRESS_PARTS = ("dispersion", "drawdown", "failure")
"""The shares, in the order of the last axis of :func:`arm_shares`; names as in
:data:`crlbench.stats.stability_shares.PARTS`."""
LEAST_APART = 0.01
"""Share of the variance of draws below which they differ by nothing but repeated seeds."""
COLUMNS = 5
"""F, H, G, DD and whether the run failed, of each arm."""


def arm_shares(columns: np.ndarray) -> np.ndarray:
    """(..., 3) the shares of one arm, from (5, ..., n) F, H, G, DD and whether the run failed."""
    ends, _, peaks, drawdowns, failed = columns
    spread = _spread_share(gini_mean_difference(ends), peaks.mean(axis=-1))
    return np.stack(
        [spread, kept(peaks, drawdowns).mean(axis=-1), 1.0 - failed.mean(axis=-1)], axis=-1
    )


def _spread_share(gmd: np.ndarray, peak: np.ndarray) -> np.ndarray:
    return 1.0 - np.minimum(1.0, gmd / np.maximum(peak, LEAST_GAIN))


def selected_arm_shares(columns: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(..., S, 3) the shares of S selections of seeds of one arm.

    Args:
        columns: (5, ..., m) of all seeds.
        drawn: (m, S) how often each seed is in each selection; columns sum to the same n.
    """
    ends, _, peaks, drawdowns, failed = columns
    n = int(round(float(drawn[:, 0].sum(dtype=np.float64))))
    steps, below = gaps(ends, drawn)
    below = below.astype(np.float64)
    gmd = sum_steps(steps, below * (n - below)) * 2.0 / (n * (n - 1))
    rows = np.stack([peaks, kept(peaks, drawdowns), 1.0 - failed], axis=-2)
    peak, still, runs = np.moveaxis(rows @ drawn.astype(np.float64) / n, -2, 0)
    return np.stack([_spread_share(gmd, peak), still, runs], axis=-1)


def stress_headline(calm: np.ndarray, stress: np.ndarray) -> np.ndarray:
    """(...) Stab of a task from (..., 3) the shares of both arms, which count alike."""
    return headline((calm + stress) / 2)


def stress_replicates(
    task: str,
    calm: np.ndarray,
    stress: np.ndarray,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> Replicates:
    """Stab of one rated task, the seeds of both arms resampled, each among its own.

    Replicates are moved so that their mean is the estimate, as in
    :func:`crlbench.stats.resampling.stability_replicates`. All entries have the same draws, and a
    draw that repeats seeds spreads less in every entry. In a difference of two that would count as
    a correlation; so draws are moved to a common mean among those that repeat alike.

    The bootstrap variance of n seeds is (n - 1) / n of the unbiased one, and the arms have
    different n. So each arm is resampled alone too. The replicates are stretched until n / (n - 1)
    of their variance is the sum of the unbiased ones, for the n whose degrees of freedom are those
    of Welch and Satterthwaite.

    Args:
        calm, stress: (5, n) and (5, m), as :func:`crlbench.stats.stability.seed_columns` gives.
    """
    arms = [calm, stress]
    whole = [arm_shares(columns) for columns in arms]
    value = float(stress_headline(*whole))
    drawn = [
        times_drawn(name, columns.shape[1], count, seed)
        for name, columns in zip((task, f"{task}/stress"), arms, strict=True)
    ]
    parts = [selected_arm_shares(*one) for one in zip(arms, drawn, strict=True)]
    draws = _apart_from_repeats(stress_headline(*parts), drawn)
    alone = [stress_headline(parts[0], whole[1]), stress_headline(whole[0], parts[1])]
    variance, worth = _unbiased(alone, [calm.shape[1], stress.shape[1]])
    biased = float(np.var(draws))
    stretch = math.sqrt(variance * (worth - 1) / worth / biased) if biased > 0 else 1.0
    draws = value + stretch * (draws - draws.mean())
    return Replicates(
        *(calm[0], value, draws, draws, np.full(count, value)),
        bounds=(0.0, 1.0),
        worth=worth,
        rule="shares",
    )


def _apart_from_repeats(draws: np.ndarray, drawn: Sequence[np.ndarray]) -> np.ndarray:
    """(R,) draws, less the mean of those whose seeds are repeated alike; as they are where little
    else tells them apart.

    Args:
        drawn: (n, R) how often each seed of each arm is in each draw. The sum of squares over the
            seeds is what the expected dispersion depends on.
    """
    repeats = np.stack([(one.astype(np.float64) ** 2).sum(axis=0) for one in drawn])
    group = np.unique(repeats, axis=1, return_inverse=True)[1].ravel()
    centred = draws - (np.bincount(group, draws) / np.bincount(group))[group]
    return centred if np.var(centred) > LEAST_APART * np.var(draws) else draws


def _unbiased(alone: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[float, float]:
    """The variance of a number of two arms, and the seeds whose degrees of freedom it has.

    Args:
        alone: (R,) replicates for each arm, the other one as it is.
        sizes: seeds of each arm.
    """
    parts = [float(np.var(draws)) * n / (n - 1) for draws, n in zip(alone, sizes, strict=True)]
    total = sum(parts)
    if total <= 0:
        return 0.0, float(sizes[0])
    weights = (part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
    return total, 1 + total**2 / sum(weights)


def seed_rows(calm: np.ndarray, stress: np.ndarray) -> np.ndarray:
    """(n, 10) the seeds of a task for the label-swap test: a seed's calm run, then its stress run.

    Rows from the fourth on have no stress run and hold 0 there.

    Args:
        calm, stress: (5, n) and (5, 3).
    """
    rows = np.zeros((calm.shape[1], 2 * COLUMNS))
    rows[:, :COLUMNS] = calm.T
    rows[:STRESS_SEEDS, COLUMNS:] = stress.T
    return rows


def rows_headline(seeds: np.ndarray) -> np.ndarray:
    """(S, n, 10) rows of :func:`seed_rows` to (S,) Stab of the task."""
    columns = np.moveaxis(seeds, -1, 0)
    stress = columns[COLUMNS:, ..., :STRESS_SEEDS]
    return stress_headline(arm_shares(columns[:COLUMNS]), arm_shares(stress))


def swapped_stress_differences(a: np.ndarray, b: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """(..., S) differences of Stab of two models under label swaps; a seed moves with both arms.

    Args:
        a, b: (..., n, 10) rows of :func:`seed_rows`.
        mine: (2n, S) 1 where a seed of (a, b) belongs to the first model.
    """
    n = a.shape[-2]
    both = np.moveaxis(np.concatenate([a, b], axis=-2), -1, 0)
    few = [*range(STRESS_SEEDS), *range(n, n + STRESS_SEEDS)]

    def stab(owned: np.ndarray) -> np.ndarray:
        calm = selected_arm_shares(both[:COLUMNS], owned)
        stress = selected_arm_shares(both[COLUMNS:, ..., few], owned[few])
        return stress_headline(calm, stress)

    values = stab(mine)
    return values - (values[..., ::-1] if mirrored(mine) else stab(1 - mine))


def task_stress(calm: Sequence[RunStability], stress: Sequence[RunStability]) -> TaskStress:
    """Stability of one task from at least two runs of each arm, failed ones included."""
    arms = [arm_shares(seed_columns(runs)) for runs in (calm, stress)]
    failures = sum(run.failed for run in (*calm, *stress))
    runs = len(calm) + len(stress)
    by_name = [_named(shares) for shares in (*arms, (arms[0] + arms[1]) / 2)]
    return TaskStress(
        calm=by_name[0],
        stress=by_name[1],
        shares=by_name[2],
        value=float(stress_headline(*arms)),
        runs=runs,
        failures=failures,
        bound=failure_bound(failures, runs),
    )


def _named(shares: np.ndarray) -> dict[str, float]:
    return dict(zip(STRESS_PARTS, map(float, shares), strict=True))


def failure_bound(failures: int, runs: int) -> float:
    """Upper end of the 95 % Clopper-Pearson interval of a failure rate: what runs leave open."""
    return clopper_pearson(failures, runs).high
