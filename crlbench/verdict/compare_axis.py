"""How entries learned over a chosen x-axis: curves, areas, times to threshold.

Completions, bytes and updates are those of :class:`crlbench.verdict.efficiency.TaskEfficiency`.
FLOPs and labels are what the ledgers of chains say of all their stages: u is the start model's
until a stage has left the policy that the last stage begins from, or one before it.
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
from crlbench.errors import UsageError, ValidationError
from crlbench.stats.charged_area import charged_area
from crlbench.stats.intervals import MIN_SEEDS_TOGETHER, Interval, student_interval
from crlbench.stats.measures import area, unit
from crlbench.stats.thresholds import Arrival
from crlbench.verdict.charged import Charge, charged_curve
from crlbench.verdict.compare_read import Loaded, check_entries, compared_tasks
from crlbench.verdict.compare_unequal import Unequal, refuse, unequal, watermark
from crlbench.verdict.efficiency import TaskEfficiency, arrivals
from crlbench.verdict.load import Runs
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import SeedCurve, rising_seconds

By = Literal["completions", "bytes", "updates", "flops", "labels", "time"]
BY_WORDS: dict[By, str] = {
    "completions": "completions",
    "bytes": "bytes generated",
    "updates": "optimizer updates",
    "flops": "charged FLOPs",
    "labels": "verdicts",
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
        UsageError: ``by`` is a charge and a record has no ledger.
    """
    walls = wall_seconds(one.runs) if by == "time" else {}
    by_task = one.entry.efficiency.tasks
    if by in ("flops", "labels"):
        return {t: _over_charges(by_task[t], one, t, by) for t in tasks if t in by_task}
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


def _over_charges(task: TaskEfficiency, one: Loaded, name: str, by: Charge) -> TaskView:
    """A task over what all stages of a chain were charged; each run's area is over its own total.

    Raises:
        UsageError: a record has no ledger.
    """
    runs = {
        run.record.seed.index: run
        for run in one.runs
        if run.record.arm == "real" and run.record.task.name == name
    }
    paths = {c.seed: _path_of(runs[c.seed], c, by) for c in task.curves if c.seed in runs}
    usual = _usual(task.curves, paths)
    lines, curves, areas = [], [], []
    for c in task.curves:
        spent, us = paths.get(c.seed, ([], []))
        points = min(c.measured, len(spent))
        on_grid = _extended(c, spent[-points:] if points else [], usual)
        x, u = (*spent, *on_grid[points:]), (*us, *c.u[points:])
        record = runs[c.seed].record if c.seed in runs else None
        start = 0.0
        if record is not None:
            start = float(unit(record.splits["id"].start, record.task.floor, record.task.ceiling))
        total = on_grid[-1]
        if total > 0:
            areas.append(float(charged_area(x, np.array(u), start, total).area))
        lines.append(Line(c.seed, c.state, c.measured, (0.0, x[0], *x), (start, start, *u)))
        curves.append(replace(c, x={**c.x, by: on_grid}))
    return TaskView(
        n=task.n,
        E=float(np.mean(areas)) if len(areas) == len(curves) and areas else None,
        H=task.H,
        L=float(np.mean(areas)) - task.H if len(areas) == len(curves) and areas else None,
        saturated=task.saturated,
        total=float(np.mean([line.x[-1] for line in lines])) if lines else None,
        arrivals=arrivals(curves, by) if curves else (),
        lines=tuple(lines),
    )


def _path_of(run: Run, curve: SeedCurve, by: Charge) -> tuple[list[int], list[float]]:
    """What a run had been charged at its evaluations, and their u."""
    found = charged_curve(run.record, curve.u[: curve.measured], by)
    if found is None:
        raise UsageError(
            f"--by {by}: {run.folder / RECORD_NAME} has no ledger of what was charged. Chains of "
            "stages have one, unless their last stage takes trust-region steps. Use --by "
            "completions, bytes, updates or time."
        )
    return found


def _usual(
    curves: Sequence[SeedCurve], paths: Mapping[int, tuple[list[int], list[float]]]
) -> float:
    """Charge per completion of the last stage, over the seeds that measured one."""
    rates = []
    for c in curves:
        last = c.measured - 1
        if last > 0 and c.seed in paths:
            spent = paths[c.seed][0][-c.measured :]
            rates.append((spent[-1] - spent[0]) / c.x["completions"][last])
    return float(np.mean(rates)) if rates else 0.0


def _extended(curve: SeedCurve, spent: Sequence[float], usual: float) -> tuple[float, ...]:
    """Charges at each point of the grid; after a failure they go on at the run's own mean rate."""
    completions, points = curve.x["completions"], len(spent)
    own = completions[points - 1] if points else 0.0
    rate = (spent[-1] - spent[0]) / own if own > 0 else usual
    base = spent[-1] if points else 0.0
    return (*map(float, spent), *(base + rate * (x - own) for x in completions[points:]))


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
