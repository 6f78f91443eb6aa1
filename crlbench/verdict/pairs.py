"""Two entries against each other, seed by seed (protocol CRL-1, A.6 points 2 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crlbench.stats.intervals import (
    MIN_SEEDS,
    Interval,
    Paired,
    Replicates,
    paired,
    paired_with_replicates,
)
from crlbench.stats.resampling import wider_difference
from crlbench.verdict.axes import AXES, MARGIN, Axis
from crlbench.verdict.entry import Entry


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
    return {axis: _pair(axis, a, b, margin, tasks) for axis in AXES}


def _pair(axis: Axis, a: Entry, b: Entry, margin: float, tasks: Sequence[str] | None) -> AxisPair:
    asked = set(a.task_names) | set(b.task_names) if tasks is None else set(tasks)
    common = sorted(asked & set(a.task_names) & set(b.task_names))
    if axis == "stability":
        common = [t for t in common if t in a.stability.rated and t in b.stability.rated]
    prefix = {t: min(a.evidence.prefix[t], b.evidence.prefix[t]) for t in common}
    least = MIN_SEEDS if axis == "stability" else 1
    found: dict[str, tuple[Replicates, Replicates]] = {}
    for task in common:
        if prefix[task] < least:
            continue
        parts = tuple(e.evidence.replicates(axis, task, prefix[task]) for e in (a, b))
        if None not in parts:
            found[task] = parts
    base, arm = ([parts[side] for parts in found.values()] for side in (0, 1))
    by_variance = axis == "stability"
    effect = wider = None
    if found:
        effect, whole = paired_with_replicates(base, arm, margin, by_variance)
        wider = wider_difference(whole, base, arm, b.evidence.count, b.evidence.seed)
        if wider is not None and effect.interval is not None:
            wider = wider.union(effect.interval)
    return AxisPair(
        axis=axis,
        effect=effect,
        wider=wider,
        by_task={t: paired([x], [y], margin, by_variance) for t, (x, y) in found.items()},
        tasks=tuple(found),
        seeds={task: prefix[task] for task in found},
        left_out=tuple(sorted(asked - set(found))),
        reason=None if found else _reason(axis, a, b),
    )


def _reason(axis: Axis, a: Entry, b: Entry) -> str:
    if not set(a.task_names) & set(b.task_names):
        return "The two have no task in common."
    if axis == "stability":
        return "No task is rated for both: one of them did not learn there, or has too few seeds."
    for entry in (a, b):
        if entry.axes[axis].reason is not None:
            return f"{entry.name}: {entry.axes[axis].reason}"
    return "The two have no seed in common."
