"""The interval over tasks of protocol CRL-2: what tasks that were not run would show.

The tasks of a track are taken as a sample of tasks. The interval is the union of the bootstrap of
:func:`crlbench.stats.resampling.widen` with Student's t over the K values of the tasks (K - 1
degrees of freedom). Student's t covers as stated where the values are normal. Where they are
skewed it misses on the side of the long tail: few tasks hold none of its values, and the sample
looks narrow. So its half on that side is multiplied by ``exp(|g| sqrt(4 / K))``, with g the
skewness of the sample (the half on the other side stays): Student's t needs less help the more
tasks there are. Hall (1992, "On the removal of skewness by transformation") is the classical
remedy and needs more values than a track has tasks; this one is bounded. Its coverage is simulated
(``python benchmarks/simulations.py --part tasks``).

Fewer than four tasks are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    Interval,
)
from crlbench.stats.resampling import MIN_TASKS, widen

FEWEST_TAIL = 0.7
"""Share of the tail that Student's quantile leaves out for one entry on four tasks: 3.5 % in place
of 5 %. With the whole tail the interval covers 92 % of boards whose tasks are as skewed as an
exponential distribution, which no sample of four shows."""


@dataclass(frozen=True)
class OverTasks:
    """A mean over tasks as a statement on similar tasks."""

    value: float
    """Mean over the tasks."""
    interval: Interval | None
    """None with a ``reason``."""
    tasks: int
    """K, the tasks that the interval rests on."""
    reason: str | None
    """Why there is no interval; None where there is one."""


def interval_over_tasks(
    values: Sequence[float] | np.ndarray,
    within: np.ndarray | None = None,
    seeds: Sequence[int] = (),
    difference: bool = False,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> OverTasks:
    """The interval over tasks of one entry's score, or of the difference of two entries.

    Args:
        values: (K,) the score (or the difference) on each task.
        within: (R,) replicates of the mean over these tasks, seeds and items resampled; None
            where they are not known. The interval is never narrower than theirs.
        seeds: (K,) seeds of each task; needed with ``within``.
        difference: the values are differences of two entries on the same tasks. What both share
            is gone from them, skewness with it.
        bounds: between which the mean lies by its definition; the interval ends there.
        count, seed: of the bootstrap over tasks.
        level: of the interval.

    Raises:
        ValidationError: a value that is not finite, or ``within`` without ``seeds``.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise ValidationError(
            f"interval over tasks: {numbers.tolist()} must be one finite number for each task"
        )
    tasks = len(numbers)
    if within is not None and len(seeds) != tasks:
        raise ValidationError(
            f"interval over tasks: {tasks} tasks and seeds for {len(seeds)}; replicates need the "
            "number of seeds of every task"
        )
    middle = float(numbers.mean()) if tasks else math.nan
    if tasks < MIN_TASKS:
        return OverTasks(middle, None, tasks, refusal(tasks))
    interval = Interval(*map(float, student_ends(numbers, difference, level)), level)
    # Without replicates, seeds play no part in the bootstrap: any number that is enough.
    replicates = np.full(1, middle) if within is None else within
    sizes = list(seeds) if within is not None else [MIN_TASKS] * tasks
    bootstrap = widen(replicates, numbers.tolist(), sizes, count, seed, level)
    if bootstrap is None:
        few = f"{min(sizes)} seeds on a task say too little about how seeds differ"
        return OverTasks(middle, None, tasks, few)
    union = interval.union(bootstrap)
    low, high = max(bounds[0], union.low), min(bounds[1], union.high)
    return OverTasks(middle, Interval(low, high, level), tasks, None)


def refusal(tasks: int) -> str:
    """Why so few tasks have no interval over tasks."""
    number = "1 task" if tasks == 1 else f"{tasks} tasks"
    return f"{number}: an interval over tasks needs at least {MIN_TASKS}, or it covers too seldom"


def student_ends(
    values: np.ndarray, difference: bool = False, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Student's interval of the mean, the half towards the long tail made longer.

    Args:
        values: (..., K) numbers of K tasks, four or more.
        difference: see :func:`interval_over_tasks`.

    Returns:
        Two (...) arrays.
    """
    tasks = values.shape[-1]
    error = values.std(axis=-1, ddof=1) / math.sqrt(tasks)
    quantile = stdtrit(tasks - 1, 0.5 + task_level(level, tasks, difference) / 2)
    return stretch(values.mean(axis=-1), quantile * error, skewness(values), tasks)


def task_level(
    level: float, tasks: int, difference: bool, share: float | np.ndarray = 1.0
) -> float | np.ndarray:
    """Level of Student's quantile behind an interval over tasks; it rises with ``level``.

    Args:
        level: of the interval.
        tasks: K.
        difference: of two entries.
        share: of the variance that tasks bring; the rest has no long tail.
    """
    if difference or tasks > MIN_TASKS:
        return level
    return 1.0 - (1.0 - level) * (1.0 - (1.0 - FEWEST_TAIL) * share)


def stretch(
    value: np.ndarray, half: np.ndarray, skew: np.ndarray, tasks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ends ``value`` ± ``half``, the half on the side of the long tail made longer.

    Args:
        value, half: (...)
        skew: (...) skewness of the K values of the tasks.
        tasks: K; the factor is exp(abs(skew) sqrt(4 / K)).
    """
    log = skew * math.sqrt(MIN_TASKS / tasks)
    low = value - half * np.exp(np.maximum(0.0, -log))
    return low, value + half * np.exp(np.maximum(0.0, log))


def skewness(values: np.ndarray) -> np.ndarray:
    """(...) third central moment of (..., K) over the 3/2 power of the second; 0 without spread."""
    deviations = values - values.mean(axis=-1, keepdims=True)
    second = np.mean(deviations**2, axis=-1)
    third = np.mean(deviations**3, axis=-1)
    scale = np.abs(values).max(axis=-1)
    spread = second > (1e-12 * scale) ** 2
    return np.where(spread, third / np.where(spread, second, 1.0) ** 1.5, 0.0)
