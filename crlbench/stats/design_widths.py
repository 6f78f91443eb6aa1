"""How wide intervals of designs are: formulas on plain arrays, for one board or many at once.

:mod:`crlbench.stats.designs` says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy.special import stdtrit

from crlbench.stats.checkpoints import MeanVariance, independent_variance
from crlbench.stats.task_sample import skewness, stretch, task_level

EITHER_TAIL = 1.3
"""How much of the tail either part of a union of two leaves out: their union covers more often than
one of them. Simulated, with orders that do nothing to all designs up to orders that do most."""


def add(parts: Sequence[MeanVariance]) -> MeanVariance:
    """A sum of independent variances, with the degrees of freedom of Welch and Satterthwaite."""
    total = sum(part.variance for part in parts)
    weights = sum(part.variance**2 / part.df for part in parts)
    least = reduce(np.minimum, (part.df for part in parts))
    df = np.where(weights > 0, total**2 / np.where(weights > 0, weights, 1.0), least)
    return MeanVariance(np.asarray(total), df)


def student_half_width(spread: MeanVariance, level: float) -> np.ndarray:
    """(...) of Student's interval."""
    return stdtrit(spread.df, 0.5 + level / 2) * np.sqrt(spread.variance)


def either_half_width(own: MeanVariance, shared: MeanVariance, level: float) -> np.ndarray:
    """(...) of the union of two Student's intervals around one mean."""
    either = max(0.0, 1.0 - EITHER_TAIL * (1.0 - level))
    return np.maximum(student_half_width(own, either), student_half_width(shared, either))


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
