"""The mean of a design over its checkpoints, and the difference of two designs (protocol CRL-2).

A design is pretrained several times, and every checkpoint is trained with every task and seed::

    y = design + checkpoint(design) + task + design x task + checkpoint x task + seed

The *interval on these tasks* asks which mean other checkpoints of the design would have on the same
tasks: Student's t with the variance of :mod:`crlbench.stats.checkpoints` and, where they are given,
of the items. Corpus orders are the same documents for all designs: a difference pairs them, so that
what an order does to all designs is not in it. The mean of crossed checkpoints may be moved by the
orders; so its interval is the union of two, one from all that is the design's own and one from the
orders alone (Student's t with J - 1 degrees of freedom).

The *wider interval* asks about other tasks as well. It adds the variance of the design's means
between tasks; what a checkpoint does on single tasks is in both parts and counts twice, which is
little. Its half on the side of the tasks' long tail is longer, as far as the tasks make the sum
skewed (:mod:`crlbench.stats.task_sample`).

A bootstrap that draws checkpoints (initialisations and orders crossed), seeds and items gives
replicates (:func:`design_replicates`). Its percentiles are no interval: three checkpoints resampled
reach from the worst to the best of them at most. So the replicates are moved until their spread is
the standard error.

With one checkpoint the intervals are of this checkpoint alone, over seeds and items, and say so.
They are Student's, with items as known. With one order or one initialisation they are about the
design on it, and say so too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import Layout, MeanVariance, independent_variance, read_layout
from crlbench.stats.design_draws import draw_design, draw_seeds
from crlbench.stats.design_pool import Pool, check_board, check_names, make_pool
from crlbench.stats.design_widths import add, either_half_width, student_half_width, wider_ends
from crlbench.stats.intervals import (
    LEVEL,
    REPLICATES,
    ROOT_SEED,
    Interval,
    least_seeds,
    satterthwaite,
    seed_shares,
    student_around,
)
from crlbench.stats.resampling import MIN_TASKS, Rows, trimmed_rows
from crlbench.stats.task_sample import interval_over_tasks, refusal


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
    """(B,) what the mean of the design would be under each draw of items; None: not drawn. The
    noise of single answers is in it and in the seeds, and counts twice."""

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
    """What the intervals are about: the design, the design on one corpus order or from one
    initialisation, or one checkpoint alone."""
    is_about_designs: bool
    """Whether ``about`` is the design itself, or two designs."""
    checkpoints: int
    """R (the smaller number, of a difference)."""
    error: float | None
    """Standard error on these tasks; None where there is no interval."""
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
    warning: str | None = None
    """Which design's checkpoints vary more than the others'; None where none do."""

    @property
    def of_designs(self) -> bool:
        """Whether a sentence on a design may rest on it; on one corpus order, or from one
        initialisation, only one that says so (``about``)."""
        return self.is_about_designs and self.interval is not None


def design_mean(
    design: Design,
    others: Sequence[Design] = (),
    count: int = REPLICATES,
    seed: int = ROOT_SEED,
    level: float = LEVEL,
) -> DesignEstimate:
    """The mean of one design.

    Args:
        others: further designs of the same board, whose tasks may be others. The variance of
            crossed checkpoints is pooled over all designs with the same crossing; alone it is
            refused.
        count, seed: of the bootstrap of one checkpoint.
        level: of the intervals. Where a variance is pooled, at most .95: no more is simulated.

    Raises:
        ValidationError: a name occurs twice.
    """
    check_names((design, *others))
    sides, layout = _Sides(design), design.layout
    if layout.plan == "one":
        return _of_one_checkpoint(design, count, seed, level)
    if layout.refusal is not None:
        return _refuse(sides, f"{design.name}: {layout.refusal}")
    if layout.plan != "crossed":
        return _estimate(sides, independent_variance(design.checkpoint_means), level)
    others = [one for one in others if one.layout.crossing == layout.crossing]
    pool = _pool((design,), others, level)
    if isinstance(pool, str):
        return _refuse(sides, pool)
    return _estimate(sides, pool.of_mean(design.name), level, pool.warn([design.name]), pool)


def design_difference(
    base: Design, design: Design, others: Sequence[Design] = (), level: float = LEVEL
) -> DesignEstimate:
    """The mean of ``design`` minus that of ``base``; corpus orders that both have are paired.

    Without ``others``, Student's t of the differences by order where both designs have the same
    orders, one checkpoint each; else Welch's t. Crossed checkpoints need others.

    Args:
        others: further designs of the same board. The variance is pooled over all that have the
            same crossing as these two (:mod:`crlbench.stats.design_pool`). Name them before any
            result.
        level: of the intervals. Where a variance is pooled, at most .95: no more is simulated.

    Raises:
        ValidationError: a name occurs twice, or the tasks are not the same in the same order.
    """
    check_board((base, design, *others))
    sides, pair = _Sides(design, base), (base, design)
    for one in pair:
        if one.layout.plan == "one":
            single = " and ".join(each.name for each in pair if each.layout.plan == "one")
            return _refuse(sides, f"{single}: one checkpoint, which says nothing about its design")
        if one.layout.refusal is not None:
            return _refuse(sides, f"{one.name}: {one.layout.refusal}")
    plans, alike = {one.layout.plan for one in pair}, base.layout.crossing == design.layout.crossing
    if "crossed" in plans and not alike:
        return _refuse(
            sides, f"{base.name} and {design.name}: crossed checkpoints and others are not pooled"
        )
    others = [one for one in others if one.layout.crossing == base.layout.crossing]
    if alike and (others or plans != {"one order"}):
        pool = _pool(pair, others, level)
        if isinstance(pool, str):
            return _refuse(sides, pool)
        return pooled_difference(pool, base, design, level)
    return _estimate(
        sides, add([independent_variance(one.checkpoint_means) for one in pair]), level
    )


def pooled_difference(
    pool: Pool, base: Design, design: Design, level: float = LEVEL
) -> DesignEstimate:
    """The mean of ``design`` minus that of ``base``, two of a pool."""
    spread = pool.of_difference(base.name, design.name)
    warning = pool.warn([base.name, design.name])
    return _estimate(_Sides(design, base), spread, level, warning)


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
        base, design = self.base.layout.about, self.design.layout.about
        if base == design:
            return "two designs" + base.removeprefix("the design")
        return f"{design} minus {base}"

    @property
    def is_about_designs(self) -> bool:
        sides = (self.design, self.base)
        return all(one.layout.is_of_design for one in sides if one is not None)

    @property
    def items(self) -> float:
        """Variance that the choice of items adds."""
        rows = [one.items for one in (self.design, self.base) if one is not None]
        if any(row is None for row in rows):
            return 0.0
        return float(np.var(rows[0] - rows[1] if len(rows) == 2 else rows[0]))


def _pool(chosen: Sequence[Design], others: Sequence[Design], level: float) -> Pool | str:
    """The pool of designs of one crossing; a text: why there is none for the chosen ones."""
    pool = make_pool([*chosen, *others])
    if isinstance(pool, str):
        return pool
    if len(pool.names) > 2 and level > LEVEL:
        return f"a pooled interval at {level:.1%}: its coverage is not simulated above {LEVEL:.0%}"
    return pool


def _estimate(
    sides: _Sides,
    checkpoints: MeanVariance,
    level: float,
    warning: str | None = None,
    pool: Pool | None = None,
) -> DesignEstimate:
    """
    Args:
        checkpoints: variance that checkpoints bring.
        pool: of a mean of crossed checkpoints, whose orders may move all designs.
    """
    value, tasks = sides.value, len(sides.task_means)
    items = MeanVariance(np.array(sides.items), np.array(math.inf))
    parts = [checkpoints, items]
    half = float(student_half_width(parts, level))
    if pool is not None:
        half = float(either_half_width(parts, pool.of_orders, level))
        parts.append(pool.of_orders)
    whole = add(parts)
    interval = Interval(value - half, value + half, level)
    wider, wider_reason = None, refusal(tasks)
    if tasks >= MIN_TASKS:
        is_difference = sides.base is not None
        ends = wider_ends(sides.task_means, checkpoints, is_difference, level)
        wider, wider_reason = Interval(*map(float, ends), level).union(interval), None
    return DesignEstimate(
        value=value,
        about=sides.about,
        is_about_designs=sides.is_about_designs,
        checkpoints=sides.checkpoints,
        error=math.sqrt(float(whole.variance)),
        df=float(whole.df),
        interval=interval,
        reason=None,
        wider=wider,
        wider_reason=wider_reason,
        warning=warning,
    )


def _of_one_checkpoint(design: Design, count: int, seed: int, level: float) -> DesignEstimate:
    """Over seeds and items; over tasks as of this checkpoint alone."""
    n, tasks = design.seeds.shape[2], len(design.tasks)
    if n < least_seeds(tasks):
        reason = f"{design.name}: {n} seeds of a task; an interval needs {least_seeds(tasks)}"
        return _refuse(_Sides(design), reason)
    replicates, sizes = draw_design(design, count, seed), [n] * tasks
    shares = seed_shares(draw_seeds(design, count, seed), sizes, tasks)
    items = 0.0 if design.items is None else float(np.var(design.items))
    variance, df = satterthwaite(shares, sizes, items)
    interval = student_around(design.value, variance, df, level)
    wide = interval_over_tasks(
        design.task_means, replicates, sizes, count=count, seed=seed, level=level
    )
    return DesignEstimate(
        value=design.value,
        about=design.layout.about,
        is_about_designs=False,
        checkpoints=1,
        error=math.sqrt(variance),
        df=df,
        interval=interval,
        reason=None,
        wider=None if wide.interval is None else wide.interval.union(interval),
        wider_reason=wide.reason,
    )


def _refuse(sides: _Sides, reason: str) -> DesignEstimate:
    return DesignEstimate(
        value=sides.value,
        about=sides.about,
        is_about_designs=sides.is_about_designs,
        checkpoints=sides.checkpoints,
        error=None,
        df=None,
        interval=None,
        reason=reason,
        wider=None,
        wider_reason=reason,
    )
