"""Samples to threshold (protocol CRL-1, A.1): times, how many arrive, and the speed profile.

A time is the *second* of the first two consecutive evaluations with u ≥ τ: a single hit would
fire early on noise; two in a row are moved by about a hundredth of the budget where the curve
crosses steeply, less than an estimate of that shift would err, so that times are not corrected. A
curve that levels off near τ crosses it by chance. A run that does not arrive within the budget is
censored and has the time ``inf``; it is never dropped and never given a number.

Times are in scored completions. :func:`on_axis` carries them to bytes generated or to optimizer
updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from crlbench.errors import ValidationError
from crlbench.stats.intervals import LEVEL, Interval

TAUS = (0.25, 0.5, 0.75)
"""Thresholds on u."""
ROUNDING = 1e-12
"""A score that equals a threshold counts as reaching it, whatever (s - f) / (c - f) rounds to."""
USABLE_SHARE = 0.5
"""Share of the reference entry's seeds that must arrive."""
Threshold = tuple[str, float]
"""A task and a τ."""
WIDEST = 4.0
"""The speed profile compares from 1/4 of the reference's time to 4 times it."""


def reach(x: np.ndarray, u: np.ndarray, tau: float) -> np.ndarray:
    """(...) x of the second of the first two consecutive points with u ≥ τ; inf where none.

    Args:
        x: (T,) the grid.
        u: (..., T) curves on it.
    """
    above = np.asarray(u) >= tau - ROUNDING
    twice = above[..., 1:] & above[..., :-1]
    if twice.shape[-1] == 0:
        return np.full(twice.shape[:-1], np.inf)
    second = np.argmax(twice, axis=-1) + 1
    return np.where(twice.any(axis=-1), np.asarray(x, dtype=np.float64)[second], np.inf)


def on_axis(x: np.ndarray | float, grid: np.ndarray, cumulative: np.ndarray) -> np.ndarray | float:
    """Completions carried to another axis: bytes generated, tokens or updates.

    Between two evaluations by straight lines; inf where x is inf or beyond what was measured.

    Args:
        grid: (T,) completions at the stored evaluations, rising from 0.
        cumulative: (T,) what had been spent by then.
    """
    return np.interp(x, grid, cumulative, right=np.inf)


@dataclass(frozen=True)
class Arrival:
    """How the n seeds of one task meet one threshold."""

    tau: float
    n: int
    arrived: int
    share: float
    """P_τ."""
    interval: Interval
    """Clopper-Pearson, exact."""
    restricted_mean: float
    """RMST: mean of min(T, B). All runs share the point of censoring, so this is unbiased for
    its population value; B for a run that never arrives."""
    censored: tuple[bool, ...]
    """Per seed: not within the budget."""


def arrival(times: np.ndarray, budget: np.ndarray | float, tau: float) -> Arrival:
    """P_τ and the restricted mean of (n,) times, inf where a run never arrives.

    Args:
        budget: B, or (n,) what each run spent on another axis than completions.

    Raises:
        ValidationError: there is no run.
    """
    times = np.asarray(times, dtype=np.float64)
    if times.size == 0:
        raise ValidationError(f"samples to threshold {tau}: no runs, so nothing can be said")
    within = times <= budget
    arrived, n = int(within.sum()), len(times)
    return Arrival(
        tau=tau,
        n=n,
        arrived=arrived,
        share=arrived / n,
        interval=clopper_pearson(arrived, n),
        restricted_mean=float(np.minimum(times, budget).mean()),
        censored=tuple(bool(late) for late in ~within),
    )


def clopper_pearson(count: int, n: int, level: float = LEVEL) -> Interval:
    """Exact interval of a share of ``n`` independent trials (Clopper & Pearson 1934)."""
    tail = (1.0 - level) / 2
    low = betaincinv(count, n - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, n - count, 1.0 - tail) if count < n else 1.0
    return Interval(float(low), float(high), level)


def reference_times(times: Mapping[Threshold, np.ndarray]) -> dict[Threshold, float]:
    """T_ref of the usable thresholds, from the (n,) times of the frozen reference entry.

    T_ref is when half of the reference's seeds have arrived (the ⌈n/2⌉-th time). A threshold
    that fewer reach within the budget is not usable and left out.
    """
    middle = {key: _halfway(np.asarray(t, dtype=np.float64)) for key, t in times.items()}
    return {key: time for key, time in middle.items() if np.isfinite(time)}


def _halfway(times: np.ndarray) -> float:
    if times.size == 0:
        return np.inf
    return float(np.sort(times)[math.ceil(USABLE_SHARE * times.size) - 1])


def speed_ratios(
    times: Mapping[Threshold, np.ndarray], reference: Mapping[Threshold, float]
) -> np.ndarray:
    """T / T_ref of every (task, threshold, seed) over the reference's usable thresholds.

    Args:
        times: per (task, threshold) the (n,) times of an entry.
        reference: what :func:`reference_times` gave. It belongs to the track and not to the
            board, so that no entry moves another one's score.

    Raises:
        ValidationError: no threshold is usable, or the entry lacks one.
    """
    if not reference:
        raise ValidationError(
            "speed profile: the reference entry reaches no threshold with half of its seeds; "
            "show the shares that arrive instead"
        )
    lacking = [f"{task} at {tau}" for task, tau in sorted(reference) if (task, tau) not in times]
    if lacking:
        raise ValidationError(
            f"speed profile: no runs for {', '.join(lacking)}, which the reference entry has. "
            "Run the missing tasks."
        )
    return np.concatenate([np.asarray(times[key]) / time for key, time in reference.items()])


def speed_profile(ratios: np.ndarray, a: np.ndarray) -> np.ndarray:
    """ρ(a): (A,) share of the ratios that are at most a."""
    return np.searchsorted(np.sort(ratios), np.asarray(a), side="right") / len(ratios)


def speed_score(ratios: np.ndarray) -> float:
    """Mean height of ρ over log a from log 1/4 to log 4, exact.

    ρ is a mean of steps, and a step at r stands for the share of the axis to the right of log r:
    1 for r ≤ 1/4, 1/2 at the reference's own speed, 0 from 4 on and for censored runs.
    """
    widest = math.log(WIDEST)
    heights = (widest - np.log(np.asarray(ratios, dtype=np.float64))) / (2 * widest)
    return float(np.clip(heights, 0.0, 1.0).mean())
