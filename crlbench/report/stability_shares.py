"""The four shares that make up the stability of a task (protocol CRL-1, A.2).

Here they are three times: for seeds as they are, for resampled seeds, and for seeds of two models
under label swaps, each in the way that is fast there. Notation as in :mod:`stability`.
"""

from __future__ import annotations

import math

import numpy as np

from crlbench.report.sorting import sorted_rows

WORST_SEEDS = (3, 10)
"""CVaR: three tenths of the seeds, as whole numbers, because 0.3 n rounds."""
LEAST_GAIN = 0.1
"""A gain below this counts as this much where a loss is divided by it."""

PARTS = ("dispersion", "drawdown", "risk", "failure")
"""The four shares of the headline, in the order of the last axis of :func:`shares`."""


def row_at(ordered: np.ndarray, position: float) -> np.ndarray:
    """Sorted rows at a position between two of them."""
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def gini_mean_difference(values: np.ndarray) -> np.ndarray:
    """GMD, (...): mean of |x_i - x_j| over the pairs of the last axis; NaN for one value."""
    return _spread(np.moveaxis(np.sort(values, axis=-1), -1, 0))


def _spread(ordered: np.ndarray) -> np.ndarray:
    """GMD of sorted rows, (n, ...) to (...)."""
    n = len(ordered)
    if n < 2:
        return np.full(ordered.shape[1:], np.nan)
    # In sorted order the i-th value is added i times and subtracted n - 1 - i times.
    total = np.tensordot(2.0 * np.arange(n) - n + 1, ordered, axes=1)
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
    return _combined(
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


def _combined(
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
    risk = np.divide(risk, median, out=np.zeros_like(risk), where=median > 0)
    parts = [
        1.0 - np.minimum(1.0, gmd / np.maximum(peak, LEAST_GAIN)),
        kept,
        np.minimum(1.0, risk),
        1.0 - failure_posterior(failures, n),
    ]
    return np.moveaxis(np.stack(np.broadcast_arrays(*parts)), 0, -1)


def resampled_shares(columns: np.ndarray, index: np.ndarray) -> np.ndarray:
    """(R, 4) the shares of R resamples of n seeds.

    Args:
        columns: (5, n) F, H, G, DD and whether it failed, of each seed.
        index: (n, R) positions of the drawn seeds.
    """
    ends, head, peaks, drawdowns, failed = columns
    n = len(ends)
    ordered = sorted_rows(np.take(ends, index))
    if (head == head[0]).all():
        gains = ordered - head[0]
    else:
        gains = sorted_rows(np.take(ends - head, index))
    peak, still, failures = (np.take(row, index).mean(axis=0) for row in _averaged(columns))
    return _combined(
        gmd=_spread(ordered),
        peak=peak,
        kept=still,
        worst=gains[: rounded_up(n, WORST_SEEDS)].mean(axis=0),
        median=row_at(gains, (n - 1) / 2),
        failures=n * failures,
        n=n,
    )


def _averaged(columns: np.ndarray) -> np.ndarray:
    """(3, n) what enters the shares as a mean over seeds: G, what is kept of it, failures."""
    _, _, peaks, drawdowns, failed = columns
    return np.stack([peaks, kept(peaks, drawdowns), failed])


def swapped_differences(a: np.ndarray, b: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """(S,) differences of Stab of two models under label swaps, without sorting any mixture.

    With v_1 <= ... <= v_2n the ends of both and c_j of the j smallest with one of them, its GMD is
    2 / (n (n - 1)) times the sum of (v_j+1 - v_j) c_j (n - c_j), and the mean of its m lowest gains
    w is w_2n - sum_j (w_j+1 - w_j) min(c_j, m) / m; order statistics, and with them the median,
    are differences of two such sums.

    Args:
        a, b: (n, 5) F, H, G, DD and whether it failed, of the seeds of each.
        mine: (2n, S) integers, 1 where a seed of (a, b) belongs to the first model.
    """
    both = np.concatenate([a, b])
    found = _mixture_headline(both, mine)
    if (mine[:, ::-1] + mine == 1).all():
        # Every swap stands there with the one that swaps the rest, in mirrored order.
        return found - found[::-1]
    return found - _mixture_headline(both, 1 - mine)


def _mixture_headline(both: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """(S,) Stab of n out of 2n seeds, chosen by the ones of ``mine``."""
    n = len(both) // 2
    ends, gains = both[:, 0], both[:, 0] - both[:, 1]
    gaps, counts = _gaps(ends, mine)
    gmd = gaps @ (counts * (n - counts)) * 2.0 / (n * (n - 1))
    if (both[:, 1] != both[0, 1]).any():
        gaps, counts = _gaps(gains, mine)

    def lowest(m: int) -> np.ndarray:
        """Sum of the m lowest gains."""
        return m * gains.max() - gaps @ np.minimum(counts, m)

    halves = n // 2 + 1
    middle = (lowest(halves) - lowest(n - halves)) / (2 * halves - n)
    tail = rounded_up(n, WORST_SEEDS)
    peak, still, failures = _averaged(both.T) @ mine / n
    parts = _combined(gmd, peak, still, lowest(tail) / tail, middle, n * failures, n)
    return headline(parts)


def _gaps(values: np.ndarray, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(2n - 1,) differences of the sorted values, and (2n - 1, S) how many below each are mine."""
    order = np.argsort(values, kind="stable")
    return np.diff(values[order]), np.cumsum(mine[order[:-1]], axis=0, dtype=np.float64)


def headline(parts: np.ndarray) -> np.ndarray:
    """Stab of a task, (...): geometric mean over the last axis."""
    return np.prod(parts, axis=-1) ** (1.0 / parts.shape[-1])
