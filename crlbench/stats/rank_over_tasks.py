"""Rank intervals with tasks resampled: which ranks similar tasks that were not run would allow.

The tasks are a sample. A pair differs if Student's t of its K differences exceeds a bar that all
pairs share; the rank interval of a model among M is [1 + how many are better, M - how many are
worse] (Mogstad, Romano, Shaikh and Wilhelm 2024, "Inference for ranks"). The bar is the 95 %
quantile of the largest |t| among all pairs of M equal models on K tasks. Every pair's t has its own
K - 1 degrees of freedom, whatever the spreads; how the pairs hang together is that of models which
are alike in spread and independent, drawn by a key. Few tasks make a high bar: with four tasks it
is 3.2 for two models and above 10 for eleven.

Resampling the tasks' means instead would be no test: a bootstrap of four values ends at the worst
and the best of them (see :mod:`crlbench.stats.resampling`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import stdtrit

from crlbench.errors import ValidationError
from crlbench.seeding import derive
from crlbench.stats.resampling import MIN_TASKS
from crlbench.stats.task_sample import refusal
from crlbench.stats.tiers import ALPHA, rank_intervals

DRAWS = 40_000
"""Boards of equal models behind a bar; its error is about 1 %."""
TOGETHER = 200_000
"""Pairs of them in memory at a time."""
BAR_SEED = derive(0, "report", "ranks over tasks")


@dataclass(frozen=True)
class RanksOverTasks:
    """What similar tasks would allow."""

    ranks: np.ndarray | None
    """(M, 2) best and worst rank; None with a ``reason``."""
    better: np.ndarray | None
    """(M, M) True where the row's model is better than the column's on such tasks."""
    bar: float
    """|t| above which a pair differs; NaN with a ``reason``."""
    reason: str | None


def rank_over_tasks(
    values: Sequence[Sequence[float]] | np.ndarray, alpha: float = ALPHA
) -> RanksOverTasks:
    """Rank intervals of M models from their scores on K tasks.

    Args:
        values: (M, K) scores of the same tasks.
        alpha: probability that some pair of equal models is told apart.

    Raises:
        ValidationError: not a table of finite numbers.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValidationError(
            f"ranks over tasks: a table of shape {table.shape} must hold a finite score of every "
            "model on every task; leave out tasks that a model lacks"
        )
    models, tasks = table.shape
    if models < 2:
        return RanksOverTasks(None, None, math.nan, "a rank needs two models")
    if tasks < MIN_TASKS:
        return RanksOverTasks(None, None, math.nan, refusal(tasks))
    threshold = bar(models, tasks, alpha)
    better = task_t(table) > threshold
    return RanksOverTasks(rank_intervals(better), better, threshold, None)


def task_t(table: np.ndarray) -> np.ndarray:
    """(..., M, M) Student's t of row minus column over the tasks of (..., M, K)."""
    d = table[..., :, None, :] - table[..., None, :, :]
    mean, error = d.mean(axis=-1), d.std(axis=-1, ddof=1) / math.sqrt(table.shape[-1])
    # A difference that is the same on every task but for rounding has no doubt, and one that is
    # rounding alone is none.
    rounding = 1e-14 * np.abs(table).max(initial=1.0)
    has_error = error > rounding
    sure = np.where(np.abs(mean) <= rounding, 0.0, np.copysign(np.inf, mean))
    return np.divide(mean, error, out=sure, where=has_error)


@lru_cache(maxsize=64)
def bar(models: int, tasks: int, alpha: float = ALPHA, draws: int = DRAWS) -> float:
    """The (1 - alpha) quantile of the largest |t| among all pairs of equal models.

    Two models have one pair, whose t is Student's.
    """
    if models == 2:
        return float(stdtrit(tasks - 1, 1.0 - alpha / 2))
    first, second = np.triu_indices(models, 1)
    generator = np.random.Generator(np.random.PCG64(derive(BAR_SEED, models, tasks, draws)))
    largest, together = np.empty(draws), max(1, TOGETHER // len(first))
    # t follows from the means and the products of the models: no difference is formed task by task.
    for start in range(0, draws, together):
        some = generator.normal(size=(min(together, draws - start), models, tasks))
        mean = some.mean(axis=-1)
        some -= mean[..., None]
        products = some @ some.transpose(0, 2, 1)
        sums = np.einsum("bmm->bm", products)
        squares = sums[:, first] + sums[:, second] - 2.0 * products[:, first, second]
        gaps = mean[:, first] - mean[:, second]
        t = gaps / np.sqrt(squares / (tasks * (tasks - 1)))
        largest[start : start + len(some)] = np.abs(t).max(axis=1)
    return float(np.quantile(largest, 1.0 - alpha, method="higher"))
