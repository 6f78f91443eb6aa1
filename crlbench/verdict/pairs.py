"""Two entries against each other, seed by seed (protocol CRL-1, A.6 points 2 and 6).

:func:`paired_axes` has the differences, :func:`compare_pair` what may be said of them: the product
that tables, pages and the site show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from crlbench.base.added import added_field
from crlbench.stats.intervals import (
    MIN_SEEDS,
    MIN_SEEDS_TOGETHER,
    Interval,
    Replicates,
    trimmed_mean,
)
from crlbench.stats.paired import (
    Paired,
    Verdict,
    paired,
    paired_with_replicates,
)
from crlbench.stats.paired_error import differences, paired_error
from crlbench.stats.profiles import improvement
from crlbench.stats.resampling import wider_difference
from crlbench.stats.stability import headline, shares
from crlbench.stats.stress import COLUMNS, rows_headline
from crlbench.stats.task_sample import interval_over_tasks
from crlbench.verdict.axes import AXES, IN_MEMORY, LIMITS, MARGIN, Axis
from crlbench.verdict.entry import Entry

Call = Literal["better", "equivalent", "worse", "undecided", "preview"]
"""A verdict, or ``preview`` where an entry of the pair has not the seeds that were to be run."""


@dataclass(frozen=True)
class AxisPair:
    """Entry b minus entry a on one axis."""

    axis: Axis
    effect: Paired | None
    """Over ``tasks``; None with a ``reason``."""
    wider: Interval | None
    """95 % of the difference over other tasks of the kind; None for fewer than four tasks."""
    by_task: dict[str, Paired]
    tasks: tuple[str, ...]
    """Compared: both have them (stability: rated for both)."""
    seeds: dict[str, int]
    """Common prefix of seed indices by task."""
    left_out: tuple[str, ...]
    """Tasks of either, of those asked for, that were not compared."""
    reason: str | None
    error: float | None = None
    """Standard error of the difference; under protocol CRL-2, where two seeds say it."""
    df: float | None = None
    """Its degrees of freedom."""


@dataclass(frozen=True)
class Effect:
    """The difference of a pair, second minus first."""

    value: float
    first: float
    second: float
    """Both over the compared tasks and seeds, so that ``value`` is their difference."""
    interval: Interval | None
    """95 %, over seeds and items."""
    inner: Interval | None
    """90 %, which decides on equivalence."""
    wider: Interval | None
    """95 % over other tasks of the kind; None for fewer than four tasks."""
    call: Call | None
    """Of the second entry; None under a watermark."""
    correlation: float | None
    """Achieved correlation of the paired seeds."""
    more_seeds: int | None
    """Further seeds that would likely settle what is undecided; None without a verdict."""
    n: int

    @property
    def verdict(self) -> Verdict:
        """As figures draw it: what is no verdict has the sign of none."""
        return "undecided" if self.call in (None, "preview") else self.call


@dataclass(frozen=True)
class PairAxis:
    """A pair on one axis."""

    effect: Effect | None
    """None with a ``reason``."""
    by_task: dict[str, Effect]
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    reason: str | None
    error: float | None = field(default=None, metadata=IN_MEMORY)
    """Standard error of the difference, under protocol CRL-2."""
    df: float | None = field(default=None, metadata=IN_MEMORY)
    """Its degrees of freedom."""
    q: float | None = added_field(None)
    """Smallest false-discovery rate at which the verdict stays, where a page draws the line."""

    @property
    def call(self) -> Call | None:
        """The verdict; None without a number or under a watermark."""
        return None if self.effect is None else self.effect.call


@dataclass(frozen=True)
class Pair:
    """Two entries; a difference is that of ``second`` minus ``first``."""

    first: str
    second: str
    axes: dict[Axis, PairAxis]
    improvement: float | None
    """P(second > first) on Λ, for a run each of a compared task, drawn at random; None for fewer
    than three seeds of one of them."""


def paired_axes(
    a: Entry, b: Entry, margin: float = MARGIN, tasks: Sequence[str] | None = None
) -> dict[Axis, AxisPair]:
    """b minus a on every axis: better means that b is better.

    Over the common prefix of seeds of each task that both have; for stability, over the tasks that
    are rated for both with all their seeds. The verdict on one task needs five seeds. Works across
    fingerprints too, where seeds pair by index and items need not be the same.

    Args:
        margin: half-width of the region of equivalence.
        tasks: only these; None for all that both have.
    """
    return {axis: paired_axis(axis, a, b, margin, tasks) for axis in AXES}


def paired_axis(
    axis: Axis, a: Entry, b: Entry, margin: float = MARGIN, tasks: Sequence[str] | None = None
) -> AxisPair:
    """The same on one axis."""
    task_names = set(a.task_names) | set(b.task_names) if tasks is None else set(tasks)
    common = sorted(task_names & set(a.task_names) & set(b.task_names))
    if axis == "stability":
        common = [t for t in common if t in a.stability.rated and t in b.stability.rated]
    if _protocols_differ(a, b):
        common = []
    prefix = {t: min(a.evidence.prefix[t], b.evidence.prefix[t]) for t in common}
    least = MIN_SEEDS if axis == "stability" else 1
    replicates: dict[str, tuple[Replicates, Replicates]] = {}
    for task in common:
        if prefix[task] < least:
            continue
        parts = tuple(e.evidence.replicates(axis, task, prefix[task]) for e in (a, b))
        if None not in parts:
            replicates[task] = parts
    base, arm = ([parts[side] for parts in replicates.values()] for side in (0, 1))
    effect = wider = error = None
    apart = differences(base, arm)
    is_second = b.axes["efficiency"].new
    if replicates:
        effect, whole = paired_with_replicates(base, arm, margin, apart)
        if is_second:
            wider = _over_tasks(axis, whole, base, arm, b)
            error = paired_error(apart, [len(part.values) for part in base])
        else:
            wider = wider_difference(whole, base, arm, b.evidence.count, b.evidence.seed)
        if wider is not None and effect.interval is not None:
            wider = wider.union(effect.interval)
    return AxisPair(
        axis=axis,
        effect=effect,
        wider=wider,
        by_task={
            task: paired([x], [y], margin, [one])
            for (task, (x, y)), one in zip(replicates.items(), apart, strict=True)
        },
        tasks=tuple(replicates),
        seeds={task: prefix[task] for task in replicates},
        left_out=tuple(sorted(task_names - set(replicates))),
        reason=None if replicates else _reason(axis, a, b),
        error=None if error is None else error[0],
        df=None if error is None else error[1],
    )


def _over_tasks(
    axis: Axis,
    whole: np.ndarray,
    base: Sequence[Replicates],
    arm: Sequence[Replicates],
    entry: Entry,
) -> Interval | None:
    """The difference over other tasks by the rules of protocol CRL-2."""
    sizes = [len(part.values) for part in base]
    low, high = LIMITS[axis]
    return interval_over_tasks(
        [y.location - x.location for x, y in zip(base, arm, strict=True)],
        whole,
        sizes,
        difference=True,
        bounds=(low - high, high - low),
        count=entry.evidence.count,
        seed=entry.evidence.seed,
    ).interval


def _protocols_differ(a: Entry, b: Entry) -> bool:
    """Whether the axes of two entries measure different things."""
    first, second = a.axes["efficiency"], b.axes["efficiency"]
    return (first.new, first.charged) != (second.new, second.charged)


def _reason(axis: Axis, a: Entry, b: Entry) -> str:
    if a.axes["efficiency"].new != b.axes["efficiency"].new:
        return "The two are of different protocols: their axes measure different things."
    if _protocols_differ(a, b):
        return "The two are ranked by different numbers: their axes measure different things."
    if not set(a.task_names) & set(b.task_names):
        return "The two have no task in common."
    if axis == "stability":
        return "No task is rated for both: one of them did not learn there, or has too few seeds."
    for entry in (a, b):
        if entry.axes[axis].reason is not None:
            return f"{entry.name}: {entry.axes[axis].reason}"
    return "The two have no seed in common."


def compare_pair(
    a: Entry,
    b: Entry,
    axes: Sequence[Axis] = AXES,
    margin: float = MARGIN,
    tasks: Sequence[str] | None = None,
    names: tuple[str, str] | None = None,
    forced: bool = False,
) -> Pair:
    """b minus a on some axes, with the verdicts that both entries may bear.

    Args:
        tasks: only these; None for all that both have.
        names: what the two are called; their own names where it is None.
        forced: conditions are unequal: no verdict at all.
    """
    by_axis = paired_axes(a, b, margin, tasks)
    silence: Silence = "forced" if forced else None if a.decides and b.decides else "preview"
    chance = _improvement(a, b, by_axis["efficiency"]) if "efficiency" in axes else None
    return Pair(
        *(names or (a.name, b.name)),
        axes={axis: _pair_axis(by_axis[axis], a, b, silence) for axis in axes},
        improvement=chance,
    )


Silence = Literal["forced", "preview"] | None
"""Why there is no verdict; None where there is one."""


def _pair_axis(pair: AxisPair, a: Entry, b: Entry, silence: Silence) -> PairAxis:
    places = {
        task: tuple(_location(e, pair.axis, task, n) for e in (a, b))
        for task, n in pair.seeds.items()
    }
    effect = None
    if pair.effect is not None:
        first, second = np.mean(list(places.values()), axis=0)
        effect = _effect(pair.effect, (float(first), float(second)), pair.wider, silence)
    return PairAxis(
        effect=effect,
        by_task={
            task: _effect(one, places[task], None, silence)
            for task, one in sorted(pair.by_task.items())
        },
        tasks=pair.tasks,
        left_out=pair.left_out,
        reason=pair.reason,
        error=pair.error,
        df=pair.df,
    )


def _location(entry: Entry, axis: Axis, task: str, n: int) -> float:
    """Λ, Stab or Gen of one task over its first n seeds."""
    seeds = entry.evidence.seeds(axis, task)[:n]
    if axis == "efficiency":
        return float(trimmed_mean(seeds))
    if axis == "generalization":
        return float(seeds.mean())
    if seeds.shape[1] == COLUMNS:
        return float(headline(shares(*seeds.T)))
    return float(rows_headline(seeds[None])[0])


def _effect(
    difference: Paired, places: tuple[float, float], wider: Interval | None, silence: Silence
) -> Effect:
    call: Call | None = difference.verdict
    if silence is not None:
        call = None if silence == "forced" else "preview"
    return Effect(
        value=difference.value,
        first=places[0],
        second=places[1],
        interval=difference.interval,
        inner=difference.inner,
        wider=wider,
        call=call,
        correlation=difference.correlation,
        more_seeds=difference.more_seeds if silence is None else None,
        n=difference.n,
    )


def _improvement(a: Entry, b: Entry, pair: AxisPair) -> float | None:
    """P(b > a) over the tasks and seeds that were compared, where these are enough."""
    if min(pair.seeds.values(), default=0) < MIN_SEEDS_TOGETHER:
        return None
    strata = [
        np.stack([entry.evidence.seeds("efficiency", task)[:n] for entry in (a, b)])
        for task, n in pair.seeds.items()
    ]
    return float(improvement(strata)[1, 0])
