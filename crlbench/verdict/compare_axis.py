"""How entries learned over a chosen x-axis: curves, areas, times to threshold.

Completions, bytes and updates are those of :class:`crlbench.verdict.efficiency.TaskEfficiency`.
Wall time is read from the part of a record that no digest covers: seconds since the first
evaluation, not reproducible, comparable inside one class of hardware only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Literal

import numpy as np

from crlbench.disk.names import RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.stats.intervals import MIN_SEEDS_TOGETHER, Interval, student_interval
from crlbench.stats.measures import area
from crlbench.stats.thresholds import Arrival
from crlbench.verdict.compare_read import Loaded, check_entries, compared_tasks
from crlbench.verdict.compare_unequal import Unequal, refuse, unequal, watermark
from crlbench.verdict.efficiency import TaskEfficiency, arrivals
from crlbench.verdict.runs import Run, Runs
from crlbench.verdict.task_runs import SeedCurve, rising_seconds

By = Literal["completions", "bytes", "updates", "time"]
BY_WORDS: dict[By, str] = {
    "completions": "completions",
    "bytes": "bytes generated",
    "updates": "optimizer updates",
    "time": "seconds",
}
"""Labels of the axes."""


@dataclass(frozen=True)
class Line:
    """The curve of one seed in u."""

    seed: int
    state: str
    measured: int
    """Points that were measured; the rest follows a failure and is 0."""
    x: tuple[float, ...]
    u: tuple[float, ...]


@dataclass(frozen=True)
class TaskView:
    """One task of one entry over the chosen axis; E and L are means over seeds of areas over it."""

    n: int
    E: float | None
    H: float
    L: float | None
    saturated: bool
    total: float | None
    """Mean of what a run spent."""
    arrivals: tuple[Arrival, ...]
    lines: tuple[Line, ...]

    @property
    def mean(self) -> list[tuple[float, float]]:
        """Mean x and mean u over seeds at each evaluation; empty where grids differ."""
        return mean_curve([(line.x, line.u) for line in self.lines])

    @property
    def band(self) -> list[Interval]:
        """Student's 95 % interval of the mean u over seeds at each evaluation, pointwise.

        Empty where grids differ, and for fewer seeds than an interval over tasks needs.
        """
        if not self.mean or len(self.lines) < MIN_SEEDS_TOGETHER:
            return []
        return [student_interval(us) for us in zip(*(line.u for line in self.lines), strict=True)]


def mean_curve(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> list[tuple[float, float]]:
    """Mean x and mean u of curves at each evaluation; empty where grids differ."""
    if len({len(x) for x, _ in curves}) != 1:
        return []
    xs, us = (np.mean(rows, axis=0) for rows in zip(*curves, strict=True))
    return [(float(x), float(u)) for x, u in zip(xs, us, strict=True)]


@dataclass(frozen=True)
class Learned:
    """One entry's curves."""

    key: str
    """A, B, ... in the order given."""
    name: str
    """``model/recipe``."""
    tasks: dict[str, TaskView]


@dataclass(frozen=True)
class Learning:
    """Curves of entries over one axis."""

    by: By
    tasks: tuple[str, ...]
    entries: tuple[Learned, ...]
    watermark: str | None
    """Why these entries are not comparable; None where they are."""


def learning(
    loaded: Sequence[Loaded],
    tasks: Sequence[str] | None = None,
    by: By = "completions",
    force: bool = False,
) -> Learning:
    """The curves of entries, in the order given.

    Args:
        tasks: only these; None for all that any entry has.
        by: the x-axis.
        force: go on where conditions are unequal, under a watermark.

    Raises:
        UsageError: the same entry twice, or an unknown task.
        NotComparable: unequal conditions and no ``force``; or wall time of unequal hardware.
        ValidationError: ``by`` is time and a record does not say how long it took.
    """
    by_letter, names, differing_entries = set_side_by_side(loaded, tasks, by, force)
    entries = tuple(Learned(k, one.entry.name, task_views(one, names, by)) for k, one in by_letter)
    return Learning(by, names, entries, watermark(differing_entries))


def set_side_by_side(
    loaded: Sequence[Loaded], tasks: Sequence[str] | None, by: By, force: bool
) -> tuple[list[tuple[str, Loaded]], tuple[str, ...], tuple[Unequal, ...]]:
    """The entries by letter, the tasks to compare, and where conditions are unequal.

    Raises:
        UsageError: the same entry twice, or an unknown task.
        NotComparable: unequal conditions and no ``force``; or wall time of unequal hardware.
    """
    check_entries(loaded)
    by_letter = list(zip(ascii_uppercase, loaded, strict=False))
    differing_entries = tuple(
        unequal(
            [(key, one.board, one.leaves) for key, one in by_letter],
            {key: one.products for key, one in by_letter},
        )
    )
    if differing_entries:
        refuse(differing_entries, force=force, by=by)
    return by_letter, compared_tasks(loaded, tasks), differing_entries


def task_views(one: Loaded, tasks: Sequence[str], by: By) -> dict[str, TaskView]:
    """An entry's learning on those of the tasks that it has.

    Raises:
        ValidationError: ``by`` is time and a record does not say how long it took.
    """
    walls = wall_seconds(one.runs) if by == "time" else {}
    by_task = one.entry.efficiency.tasks
    return {t: task_view(by_task[t], by, walls.get(t, {})) for t in tasks if t in by_task}


Walls = Mapping[int, Sequence[float]]
"""Seconds at each stored evaluation, by seed index."""


def task_view(task: TaskEfficiency, by: By, walls: Walls) -> TaskView:
    """A task over an axis; ``walls`` are needed for time only."""
    if by == "time":
        return _over_time(task, walls)
    return _view(task, task.curves, by, task.areas[by], task.arrivals[by])


def _view(
    task: TaskEfficiency,
    curves: Sequence[SeedCurve],
    by: By,
    total: float | None,
    task_arrivals: tuple[Arrival, ...],
) -> TaskView:
    lines = tuple(Line(c.seed, c.state, c.measured, tuple(c.x[by]), c.u) for c in curves)
    return TaskView(
        n=task.n,
        E=total,
        H=task.H,
        L=None if total is None else total - task.H,
        saturated=task.saturated,
        total=float(np.mean([line.x[-1] for line in lines])) if lines else None,
        arrivals=task_arrivals,
        lines=lines,
    )


def _over_time(task: TaskEfficiency, walls: Walls) -> TaskView:
    rates = [_rate(c, walls[c.seed]) for c in task.curves if c.measured > 1 and c.seed in walls]
    if not rates:
        return _view(task, (), "time", None, ())
    usual = float(np.mean(rates))
    timed_curves = [
        replace(c, x={**c.x, "time": _seconds(c, walls.get(c.seed, ()), usual)})
        for c in task.curves
    ]
    areas = [area(np.array(c.x["time"]), np.array(c.u), c.x["time"][-1]) for c in timed_curves]
    return _view(task, timed_curves, "time", float(np.mean(areas)), arrivals(timed_curves, "time"))


def _rate(curve: SeedCurve, wall: Sequence[float]) -> float:
    """Seconds per completion of one run, over what it measured."""
    last = curve.measured - 1
    return (wall[last] - wall[0]) / curve.x["completions"][last]


def _seconds(curve: SeedCurve, wall: Sequence[float], usual: float) -> tuple[float, ...]:
    """Seconds since the first evaluation; after a failure they go on at the run's own mean rate.

    A run that measured no more than its start goes at the usual rate of the entry's other seeds.
    """
    completions, points = curve.x["completions"], min(curve.measured, len(wall))
    seconds = [float(t - wall[0]) for t in wall[:points]]
    rate = _rate(curve, wall) if points > 1 else usual
    base, at = (seconds[-1], completions[points - 1]) if seconds else (0.0, 0.0)
    return (*seconds, *(base + rate * (x - at) for x in completions[points:]))


def wall_seconds(runs: Runs) -> dict[str, dict[int, list[float]]]:
    """Seconds at each evaluation of the real runs, by task and seed index.

    Raises:
        ValidationError: a record does not say how long it took.
    """
    by_task: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        if run.record.arm == "real":
            wall = _wall(run)
            by_task.setdefault(run.record.task.name, {})[run.record.seed.index] = wall
    return by_task


def _wall(run: Run) -> list[float]:
    wall = rising_seconds(run.record)
    if wall is None:
        raise ValidationError(
            f"{run.folder / RECORD_NAME}: volatile.wall_s: must be {len(run.record.curve)} rising "
            "seconds, one for each evaluation. Without them there is no wall time: use --by "
            "completions, bytes or updates."
        )
    return wall
