"""The four shares that make up the stability of a task (protocol CRL-1, A.2).

Here they are twice: for seeds as they are, and for many selections of them, which is what resamples
and label swaps are. Notation as in :mod:`stability`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crlbench.stats.sorting import gaps, mean_of_ranks, row_at, sum_steps

WORST_SEEDS = (3, 10)
"""CVaR: three tenths of the seeds, as whole numbers, because 0.3 n rounds."""
LEAST_GAIN = 0.1
"""A gain below this counts as this much where a loss is divided by it."""
NO_GAIN = 1e-12
"""A median gain up to this is 0, whichever way it was summed."""

PARTS = ("dispersion", "drawdown", "risk", "failure")
"""The four shares of the headline, in the order of the last axis of :func:`shares`."""


def gini_mean_difference(values: np.ndarray) -> np.ndarray:
    """GMD, (...): mean of |x_i - x_j| over the pairs of the last axis; NaN for one value."""
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    # In sorted order the i-th value is added i times and subtracted n - 1 - i times.
    total = np.sort(values, axis=-1) @ (2.0 * np.arange(n) - n + 1)
    return np.maximum(0.0, total) * 2.0 / (n * (n - 1))


def worst_seeds(values: np.ndarray) -> np.ndarray:
    """CVaR.3, (...): mean of the worst ⌈.3 n⌉ of the last axis."""
    return mean_of_worst(values, WORST_SEEDS)


def mean_of_worst(values: np.ndarray, share: tuple[int, int]) -> np.ndarray:
    """Mean of the lowest values of the last axis; ``share`` of them, rounded up."""
    count = rounded_up(values.shape[-1], share)
    return np.sort(values, axis=-1)[..., :count].mean(axis=-1)


def rounded_up(n: int, share: tuple[int, int]) -> int:
    part, whole = share
    return -(-part * n // whole)


def failure_posterior(failures: np.ndarray | int, n: int) -> np.ndarray | float:
    """(x + ½) / (n + 1): Jeffreys' posterior mean, neither 0 nor 1 for any number of runs."""
    return (failures + 0.5) / (n + 1)


def shares(
    ends: np.ndarray,
    head: np.ndarray,
    peaks: np.ndarray,
    drawdowns: np.ndarray,
    failed: np.ndarray,
) -> np.ndarray:
    """(..., 4) the four shares of a task's headline, 1 best and 0 worst, from (..., n) seeds.

    Any leading axes, such as bootstrap replicates. A median gain of 0 or less leaves nothing to
    be at risk; its share is 0.

    Args:
        ends, head, peaks: F, H and G of each seed.
        drawdowns: corrected and floored.
        failed: whether the run failed.
    """
    n = ends.shape[-1]
    gains = np.moveaxis(np.sort(ends - head, axis=-1), -1, 0)
    return _combine(
        gmd=gini_mean_difference(ends),
        peak=peaks.mean(axis=-1),
        kept=kept(peaks, drawdowns).mean(axis=-1),
        worst=gains[: rounded_up(n, WORST_SEEDS)].mean(axis=0),
        median=row_at(gains, (n - 1) / 2),
        failures=np.asarray(failed).sum(axis=-1),
        n=n,
    )


def kept(peaks: np.ndarray, drawdowns: np.ndarray) -> np.ndarray:
    """1 - min(1, DD / max(G, .1)) of each run."""
    return 1.0 - np.minimum(1.0, drawdowns / np.maximum(peaks, LEAST_GAIN))


def _combine(
    gmd: np.ndarray,
    peak: np.ndarray,
    kept: np.ndarray,
    worst: np.ndarray,
    median: np.ndarray,
    failures: np.ndarray,
    n: int,
) -> np.ndarray:
    """(..., 4) the shares, from what they are made of: all (...)."""
    risk = np.maximum(0.0, worst)
    risk = np.divide(risk, median, out=np.zeros_like(risk), where=median > NO_GAIN)
    parts = np.empty((len(PARTS), *np.shape(gmd)))
    parts[0] = 1.0 - np.minimum(1.0, gmd / np.maximum(peak, LEAST_GAIN))
    parts[1] = kept
    parts[2] = np.minimum(1.0, risk)
    parts[3] = 1.0 - failure_posterior(failures, n)
    return np.moveaxis(parts, 0, -1)


def selected_shares(columns: np.ndarray, drawn: np.ndarray, n: int) -> np.ndarray:
    """(..., S, 4) the shares of S selections of n seeds, without sorting any of them.

    With v_1 <= ... <= v_m the ends of all seeds and c_j of the j smallest drawn, the GMD of a
    selection is 2 / (n (n - 1)) times the sum of (v_j+1 - v_j) c_j (n - c_j).

    Args:
        columns: (5, ..., m) F, H, G, DD and whether it failed, of each seed.
        drawn: (m, S) how often each seed is in each selection; columns sum to n.
    """
    ends, head = columns[:2]
    steps, below = gaps(ends, drawn)
    gmd = sum_steps(steps, below * (n - below)) * 2.0 / (n * (n - 1))
    gains = ends - head
    if (head != head[..., :1]).any():
        steps, below = gaps(gains, drawn)
    half = n // 2 + 1
    peak, still, failures = np.moveaxis(_average(columns) @ drawn.astype(np.float64) / n, -2, 0)
    return _combine(
        gmd=gmd,
        peak=peak,
        kept=still,
        worst=mean_of_ranks(gains, steps, below, 0, rounded_up(n, WORST_SEEDS)),
        median=mean_of_ranks(gains, steps, below, n - half, half),
        failures=n * failures,
        n=n,
    )


def _average(columns: np.ndarray) -> np.ndarray:
    """(..., 3, m) what enters the shares as a mean over seeds: G, what is kept of it, failures."""
    _, _, peaks, drawdowns, failed = columns
    return np.stack([peaks, kept(peaks, drawdowns), failed], axis=-2)


def swapped_differences(a: np.ndarray, b: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """(..., S) differences of Stab of two models under label swaps.

    Args:
        a, b: (..., n, 5) F, H, G, DD and whether it failed, of the seeds of each.
        mine: (2n, S) 1 where a seed of (a, b) belongs to the first model.
    """
    both, n = np.moveaxis(np.concatenate([a, b], axis=-2), -1, 0), a.shape[-2]
    values = headline(selected_shares(both, mine, n))
    if mirrored(mine):
        return values - values[..., ::-1]
    return values - headline(selected_shares(both, 1 - mine, n))


def mirrored(mine: np.ndarray) -> bool:
    """Whether every swap stands there with the one that swaps the rest, in mirrored order."""
    return bool((mine[:, ::-1] + mine == 1).all())


def headline(parts: np.ndarray) -> np.ndarray:
    """Stab of a task, (...): geometric mean over the last axis."""
    return np.prod(parts, axis=-1) ** (1.0 / parts.shape[-1])


@dataclass(frozen=True)
class TaskStress:
    """Stability of one model on one task with a stress arm (protocol CRL-2)."""

    calm: dict[str, float]
    """Shares of the calm runs: dispersion, drawdown, failure."""
    stress: dict[str, float]
    """Shares of the stress runs."""
    shares: dict[str, float]
    """Their means, of which Stab is the geometric mean."""
    value: float
    """Stab of the task, whether rated or not."""
    runs: int
    """Runs of both arms: what the share of failures rests on."""
    failures: int
    bound: float
    """Upper end of the 95 % Clopper-Pearson interval of the failure rate."""
