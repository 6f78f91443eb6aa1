"""How wide intervals of designs are: formulas on plain arrays, for one board or many at once.

:mod:`crlbench.stats.designs` says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy.special import stdtrit

from crlbench.stats.checkpoints import MeanVariance, independent_variance
from crlbench.stats.intervals import MOST_DF
from crlbench.stats.task_sample import skewness, stretch, task_level

ORDER_TAIL = 1.4
"""How much of the tail the part of a union leaves out that is about orders: the union covers more
often than this part alone. Simulated, with orders that do nothing to all designs up to orders that
do most."""


def add(parts: Sequence[MeanVariance]) -> MeanVariance:
    """A sum of independent variances, with the degrees of freedom of Welch and Satterthwaite."""
    total = sum(part.variance for part in parts)
    weights = sum(part.variance**2 / part.df for part in parts)
    least = reduce(np.minimum, (part.df for part in parts))
    df = np.where(weights > 0, total**2 / np.where(weights > 0, weights, 1.0), least)
    return MeanVariance(np.asarray(total), df)


def student_half_width(parts: Sequence[MeanVariance], level: float) -> np.ndarray:
    """(...) of an interval of a mean whose variance is a sum of independent parts.

    Every part with Student's quantile of its own, as squares: never too short, whatever the parts
    (Banerjee 1960, "Approximate confidence interval for linear functions of means of k populations
    when the population variances are not equal"). Satterthwaite's is, where the part with one or
    two degrees of freedom comes out small.
    """
    squares = (
        stdtrit(np.minimum(part.df, MOST_DF), 0.5 + level / 2) ** 2 * part.variance
        for part in parts
    )
    return np.sqrt(sum(squares))


def either_half_width(
    own: Sequence[MeanVariance], orders: MeanVariance, level: float
) -> np.ndarray:
    """(...) of the union of two intervals around one mean: of all but the orders, and of these."""
    either = max(0.0, 1.0 - ORDER_TAIL * (1.0 - level))
    return np.maximum(student_half_width(own, level), student_half_width([orders], either))


def wider_ends(
    means: np.ndarray, checkpoints: MeanVariance, is_difference: bool, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval over other checkpoints and other tasks.

    Args:
        means: (..., K) of the tasks.
        checkpoints: (...) variance that checkpoints bring.
        is_difference: of two designs.
    """
    between, tasks = independent_variance(means), means.shape[-1]
    whole = add((between, checkpoints))
    # Checkpoints make the sum less skewed than the tasks are.
    safe = np.where(whole.variance > 0, whole.variance, 1.0)
    share = np.where(whole.variance > 0, between.variance / safe, 0.0)
    quantile = stdtrit(whole.df, 0.5 + task_level(level, tasks, is_difference, share) / 2)
    half = quantile * np.sqrt(whole.variance)
    return stretch(means.mean(axis=-1), half, skewness(means) * share**1.5, tasks)
