"""The mean of a design over its checkpoints, and the difference of two designs (protocol CRL-2).

A design is pretrained several times, and every checkpoint is trained with every task and seed::

    y = design + checkpoint(design) + task + design x task + checkpoint x task + seed

The *interval on these tasks* asks which mean other checkpoints of the design would have on the same
tasks: Student's t with the variance of :mod:`crlbench.stats.checkpoints` and, where they are given,
of the items. The *wider interval* asks about other tasks as well. It adds the variance of the
design's means between tasks; what a checkpoint does on single tasks is in both parts and counts
twice, which is little. Its half on the side of the tasks' long tail is longer, as far as the tasks
make the sum skewed (:mod:`crlbench.stats.task_sample`).

A bootstrap that draws checkpoints (initialisations and orders crossed), seeds and items gives
replicates (:func:`design_replicates`). Its percentiles are no interval: three checkpoints resampled
reach from the worst to the best of them at most. So the replicates are moved until their spread is
the standard error.

With one checkpoint the intervals are of this checkpoint alone, over seeds and items, and say so.
There the bootstrap is in union with Student's t over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import (
    Layout,
    MeanVariance,
    crossed_table,
    crossed_variance,
    independent_variance,
    read_layout,
)
from crlbench.stats.design_draws import draw_design, seed_variances
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    Interval,
    expanded,
    half_width,
    least_seeds,
    student_quantile,
)
from crlbench.stats.resampling import MIN_TASKS, Rows, trimmed_rows
from crlbench.stats.task_sample import FEWEST_LEVEL, interval_over_tasks, refusal, skewness, stretch


@dataclass(frozen=True, eq=False)
class Design:
    """The runs of one design."""

    name: str
    labels: tuple[str, ...]
    """(R,) of its checkpoints, like ``i0o1``."""
    tasks: tuple[str, ...]
    """(K,) names."""
    seeds: np.ndarray
    """(R, K, n) score of every run."""
    location: Rows = trimmed_rows
    """Over the seeds of a checkpoint and task."""
    items: np.ndarray | None = None
    """(B,) what the mean of the design would be under each draw of items; None: not drawn."""

    def __post_init__(self) -> None:
        shape = (len(self.labels), len(self.tasks))
        if self.seeds.ndim != 3 or self.seeds.shape[:2] != shape or not self.seeds.size:
            raise ValidationError(
                f"design {self.name}: runs of shape {self.seeds.shape} for {shape[0]} checkpoints "
                f"and {shape[1]} tasks; every checkpoint needs the same seeds of every task"
            )
        if not np.isfinite(self.seeds).all():
            raise ValidationError(f"design {self.name}: a score is missing or infinite")

    @cached_property
    def layout(self) -> Layout:
        """How its checkpoints hang together."""
        return read_layout(self.labels)

    @cached_property
    def cells(self) -> np.ndarray:
        """(R, K) location over seeds."""
        return self.location(np.moveaxis(self.seeds, -1, 0))

    @property
    def checkpoint_means(self) -> np.ndarray:
        """(R,) means over tasks."""
        return self.cells.mean(axis=1)

    @property
    def task_means(self) -> np.ndarray:
        """(K,) means over checkpoints."""
        return self.cells.mean(axis=0)

    @property
    def value(self) -> float:
        """The estimate: the mean over checkpoints and tasks."""
        return float(self.cells.mean())


@dataclass(frozen=True)
class DesignEstimate:
    """A mean or a difference of designs."""

    value: float
    about: str
    """What the intervals are about: the design, or one checkpoint alone."""
    checkpoints: int
    """R (the smaller number, of a difference)."""
    error: float | None
    """Standard error on these tasks; None where there is no interval of a design."""
    df: float | None
    """Degrees of freedom of the error."""
    interval: Interval | None
    """95 % on these tasks."""
    reason: str | None
    """Why there is none."""
    wider: Interval | None
    """95 % over other tasks as well."""
    wider_reason: str | None
    """Why there is none."""

    @property
    def of_designs(self) -> bool:
        """Whether a sentence on a design may rest on it."""
        return self.checkpoints > 1 and self.interval is not None


def design_mean(
    design: Design,
    others: Sequence[Design] = (),
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> DesignEstimate:
    """The mean of one design.

    Args:
        others: designs of the same board. The variance of crossed checkpoints is pooled over all
            designs with the same crossing, as if it were the same in all; alone it is refused.
        count, seed: of the bootstrap of one checkpoint.
        level: of the intervals.
    """
    if design.layout.plan == "one":
        return _of_one_checkpoint(design, count, seed, level)
    spread, reason = _mean_variance(design, (design, *others))
    return _estimate(_Sides(design), spread, reason, level)


def design_difference(
    base: Design, design: Design, others: Sequence[Design] = (), level: float = LEVEL
) -> DesignEstimate:
    """The mean of ``design`` minus that of ``base`` on their common tasks.

    The variance is that of these two designs; the two may differ in it.

    Args:
        others: designs of the same board with the same crossing. The variance of crossed
            checkpoints is pooled over them too, as if it were the same in all: shorter, and too
            short if these two vary more than the others. Name them before any result.
        level: of the intervals.

    Raises:
        ValidationError: the tasks are not the same in the same order.
    """
    if design.tasks != base.tasks:
        raise ValidationError(
            f"designs {base.name} and {design.name}: the difference needs the same tasks"
        )
    single = [one.name for one in (base, design) if one.layout.plan == "one"]
    sides = _Sides(design, base)
    if single:
        reason = f"{' and '.join(single)}: one checkpoint, which says nothing about its design"
        return _refuse(sides, reason)
    same = base.layout.plan == design.layout.plan == "crossed"
    pool = (base, design, *others) if same and _shape(base) == _shape(design) else None
    parts, reasons = [], []
    for one in (base, design):
        spread, reason = _mean_variance(one, pool or (one,))
        parts.append(spread)
        reasons.append(reason)
    reason = next((text for text in reasons if text is not None), None)
    whole = None
    if reason is None:
        # Pooled mean squares are the same for both, and so are their degrees of freedom.
        variance = parts[0].variance + parts[1].variance
        whole = MeanVariance(variance, parts[0].df if pool else _satterthwaite(parts))
    return _estimate(sides, whole, reason, level)


def design_replicates(
    estimate: DesignEstimate,
    design: Design,
    base: Design | None = None,
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
) -> np.ndarray:
    """(count,) bootstrap replicates around an estimate, with the spread of its standard error.

    Args:
        estimate: what :func:`design_mean` or :func:`design_difference` gave for the designs.
        base: of a difference.

    Raises:
        ValidationError: the estimate has no standard error.
    """
    if estimate.error is None:
        raise ValidationError(
            f"design {design.name}: no replicates without a standard error"
            + ("" if estimate.reason is None else f" ({estimate.reason})")
        )
    replicates = draw_design(design, count, seed)
    if base is not None:
        replicates = replicates - draw_design(base, count, seed)
    spread = float(replicates.std())
    scale = estimate.error / spread if spread > 0 else 0.0
    return estimate.value + scale * (replicates - replicates.mean())


@dataclass(frozen=True)
class _Sides:
    """One design, or two of which the second is taken off the first."""

    design: Design
    base: Design | None = None

    @property
    def value(self) -> float:
        return self.design.value - (0.0 if self.base is None else self.base.value)

    @property
    def task_means(self) -> np.ndarray:
        off = 0.0 if self.base is None else self.base.task_means
        return self.design.task_means - off

    @property
    def checkpoints(self) -> int:
        return min(len(one.labels) for one in (self.design, self.base) if one is not None)

    @property
    def about(self) -> str:
        if self.base is None:
            return self.design.layout.about
        about = [one.layout.about for one in (self.base, self.design)]
        return "two designs" if about == ["the design"] * 2 else f"{about[1]} minus {about[0]}"

    @property
    def items(self) -> float:
        """Variance that the choice of items adds."""
        rows = [one.items for one in (self.design, self.base) if one is not None]
        if any(row is None for row in rows):
            return 0.0
        return float(np.var(rows[0] - rows[1] if len(rows) == 2 else rows[0]))


def _mean_variance(
    design: Design, pool: Sequence[Design]
) -> tuple[MeanVariance | None, str | None]:
    """Of the mean of a design's checkpoints, or why there is none."""
    layout = design.layout
    if layout.refusal is not None:
        return None, f"{design.name}: {layout.refusal}"
    if layout.plan != "crossed":
        return independent_variance(design.checkpoint_means), None
    same_crossing = [
        one for one in pool if one.layout.plan == "crossed" and _shape(one) == _shape(design)
    ]
    if len(same_crossing) < 2:
        return None, (
            f"{design.name}: the variance of few crossed checkpoints is not known from one design; "
            "give at least two designs with the same crossing"
        )
    return crossed_variance(
        np.stack([crossed_table(one.checkpoint_means, one.layout) for one in same_crossing])
    ), None


def _shape(design: Design) -> tuple[int, int]:
    return len(set(design.layout.initialisations)), len(set(design.layout.orders))


def _satterthwaite(parts: Sequence[MeanVariance]) -> np.ndarray:
    """Degrees of freedom of a sum of independent variances."""
    total = sum(part.variance for part in parts)
    weights = sum(part.variance**2 / part.df for part in parts)
    return total**2 / weights if weights > 0 else min(part.df for part in parts)


def _estimate(
    sides: _Sides,
    checkpoints: MeanVariance | None,
    reason: str | None,
    level: float,
) -> DesignEstimate:
    value, tasks = sides.value, len(sides.task_means)
    if checkpoints is None:
        return _refuse(sides, reason)
    items = MeanVariance(np.array(sides.items), np.array(math.inf))
    inner = MeanVariance(
        checkpoints.variance + items.variance, _satterthwaite((checkpoints, items))
    )
    error, df = math.sqrt(float(inner.variance)), float(inner.df)
    half = student_quantile(0.5 + level / 2, df) * error
    interval = Interval(value - half, value + half, level)
    wider, wider_reason = None, refusal(tasks)
    if tasks >= MIN_TASKS:
        wider = _wider(sides, checkpoints, level).union(interval)
        wider_reason = None
    return DesignEstimate(
        value=value,
        about=sides.about,
        checkpoints=sides.checkpoints,
        error=error,
        df=df,
        interval=interval,
        reason=None,
        wider=wider,
        wider_reason=wider_reason,
    )


def _wider(sides: _Sides, checkpoints: MeanVariance, level: float) -> Interval:
    """Over other checkpoints and other tasks."""
    means = sides.task_means
    between = independent_variance(means)
    total = float(between.variance + checkpoints.variance)
    # Checkpoints make the sum less skewed than the tasks are.
    share = float(between.variance) / total if total > 0 else 0.0
    is_fewest = sides.base is None and len(means) == MIN_TASKS and level == LEVEL
    level_here = level + (FEWEST_LEVEL - LEVEL) * share if is_fewest else level
    quantile = student_quantile(0.5 + level_here / 2, float(_satterthwaite((between, checkpoints))))
    skew = skewness(means) * share**1.5
    low, high = stretch(sides.value, quantile * math.sqrt(total), skew)
    return Interval(float(low), float(high), level)


def _of_one_checkpoint(design: Design, count: int, seed: int, level: float) -> DesignEstimate:
    """Over seeds and items; over tasks as of this checkpoint alone."""
    n, tasks = design.seeds.shape[2], len(design.tasks)
    if n < least_seeds(tasks):
        reason = f"{design.name}: {n} seeds of a task; an interval needs {least_seeds(tasks)}"
        return _refuse(_Sides(design), reason)
    replicates, sizes = draw_design(design, count, seed), [n] * tasks
    interval = expanded(replicates, sizes, level)
    half = half_width(seed_variances(design, count, seed), sizes, level)
    students = Interval(design.value - half, design.value + half, level)
    wide = interval_over_tasks(
        design.task_means, replicates, sizes, count=count, seed=seed, level=level
    )
    return DesignEstimate(
        value=design.value,
        about=design.layout.about,
        checkpoints=1,
        error=None,
        df=None,
        interval=interval.union(students),
        reason=None,
        wider=wide.interval,
        wider_reason=wide.reason,
    )


def _refuse(sides: _Sides, reason: str) -> DesignEstimate:
    return DesignEstimate(
        sides.value, sides.about, sides.checkpoints, None, None, None, reason, None, reason
    )
