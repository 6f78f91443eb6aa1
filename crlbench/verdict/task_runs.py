"""Everything that the three axes need of the runs of one task, each file's vectors read once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crlbench.contract.records import RunRecord
from crlbench.stats.derivatives import TEMPLATES, Blocks, Ends, gen_blocks
from crlbench.stats.generalization import (
    FORMAT,
    HARD,
    PARTS,
    RunGeneralization,
    Templates,
    forgetting,
    run_generalization,
    templates_of_runs,
)
from crlbench.stats.measures import ID, RETAIN, TRANSFER, Constants, Curve, ItemTable, fallen, unit
from crlbench.stats.novelty import Novelty
from crlbench.stats.pass_at_k import PassAtK
from crlbench.stats.stability import RunStability, runs_stability, seed_columns
from crlbench.stats.stress import STRESS_SEEDS, seed_rows
from crlbench.verdict.cells import vanished
from crlbench.verdict.charged import Charged, find_charged
from crlbench.verdict.novelties import find_new_items, passes_of
from crlbench.verdict.protocols import Rules, rules_of
from crlbench.verdict.run_curve import task_bounds
from crlbench.verdict.run_measures import RunMeasure, TaskItems
from crlbench.verdict.runs import Run

XAxis = Literal["completions", "bytes", "updates"]
X_AXES: tuple[XAxis, ...] = ("completions", "bytes", "updates")
CURVE_AXES = (*X_AXES, "tokens")
"""What curves carry. Tokens of two vocabularies are different things: no table compares them."""


@dataclass(frozen=True)
class SeedCurve:
    """The ID curve of one run in u, on three axes of x."""

    seed: int
    state: Literal["completed", "failed", "partial", "vanished"]
    measured: int
    """Points that were measured; the rest follows a failure and is 0."""
    u: tuple[float, ...]
    x: dict[str, tuple[float, ...]]
    """By each of :data:`CURVE_AXES`, what had been spent at each point. After a failure it goes on
    at the run's own mean rate, so that a failure weighs the same on every axis."""


@dataclass(frozen=True)
class TaskRuns:
    """The n runs of one task of one entry."""

    task: str
    runs: tuple[Run, ...]
    measures: tuple[RunMeasure, ...]
    table: ItemTable | None
    """None where a run has no area."""
    curves: tuple[SeedCurve, ...]
    stability: tuple[RunStability, ...] | None
    """None where a curve has one point only, or nobody asked."""
    generalization: tuple[RunGeneralization, ...]
    gen_parts: np.ndarray | None
    """(n, 5) the four λ of Gen and corrected Fgt; None where one is missing."""
    blocks: Blocks | None
    """Derivatives of Gen by the weights of items; None with ``gen_parts``."""
    novelty: Novelty | None
    """What was known before; None without greedy answers of the start model, or without an area."""
    new_table: ItemTable | None
    """Of the new items, where these rank; None for fewer than 64 of them."""
    new_items: np.ndarray | None
    """(N,) bool, which items these are; None with ``new_table``."""
    passes: tuple[PassAtK, ...]
    """pass@k; empty where the conditions ask for no draws."""
    ranks_new: bool
    """Whether Λ_new ranks, and not Λ."""
    stress: tuple[RunStability, ...] | None
    """The stress arm, where Stab rests on it; None without its three runs."""
    stressed: bool
    """Whether Stab rests on the stress arm."""
    charged: Charged | None = None
    """Λ over charged FLOPs, where that ranks; None where it does not."""

    @property
    def lam(self) -> np.ndarray:
        """(n,) Λ over all items."""
        return np.array([m.lam for m in self.measures])

    @property
    def ranked_table(self) -> ItemTable | None:
        """The items that the ranked Λ rests on; None without one."""
        if self.charged is not None:
            return self.charged.table
        return self.new_table if self.ranks_new else self.table

    @property
    def ranked_lam(self) -> np.ndarray:
        """(n,) the Λ that ranks: over charged FLOPs, of the new items or of all; empty where there
        is none."""
        if self.charged is not None:
            return self.charged.lam
        if not self.ranks_new:
            return self.lam
        return np.array([] if self.novelty is None else self.novelty.seeds)

    @property
    def stability_rows(self) -> np.ndarray:
        """(n, q) what Stab of the task is made of, by seed: q is 5, or 10 with a stress arm."""
        calm = seed_columns(self.stability)
        return seed_rows(calm, seed_columns(self.stress)) if self.stressed else calm.T

    @property
    def gen(self) -> np.ndarray:
        """(n,) Gen."""
        return np.array([run.value for run in self.generalization])


def read_task(
    task: str,
    runs: Sequence[Run],
    constants: Constants,
    stability: bool = True,
    stress: Sequence[Run] = (),
) -> TaskRuns:
    """Measure the runs of one task.

    Args:
        runs: by seed index, vanished ones included; at least one.
        constants: floor and ceiling of other tasks, for the transfer splits.
        stability: whether it is asked for; the null of a curve is costly.
        stress: runs of the stress arm by seed index, vanished ones included.

    Raises:
        ValidationError: as :func:`crlbench.verdict.run_measures.measure_task`.
    """
    items, rules = TaskItems(runs, constants), rules_of(runs[0].record)
    general = _generalization(task, items, rules.weights)
    found = find_new_items(items)
    ranked = rules.ranks_new and found is not None and found.table is not None
    whole = all(run.value is not None for run in general)
    return TaskRuns(
        task=task,
        runs=tuple(runs),
        measures=items.measures,
        table=items.table,
        curves=_spending([seed_curve(r, m) for r, m in zip(runs, items.measures, strict=True)]),
        stability=_stability(task, items) if stability else None,
        generalization=general,
        gen_parts=_gen_parts(general) if whole else None,
        blocks=_blocks(items, general, rules) if whole else None,
        novelty=None if found is None else found.novelty,
        new_table=found.table if ranked and found is not None else None,
        new_items=found.chosen if ranked and found is not None else None,
        passes=passes_of(runs, constants),
        ranks_new=rules.ranks_new,
        stress=_stress(task, stress) if stability and rules.stressed else None,
        stressed=rules.stressed,
        charged=find_charged(items),
    )


def _stress(task: str, runs: Sequence[Run]) -> tuple[RunStability, ...] | None:
    """The first three runs of a task's stress arm; None where one is not there or shortened."""
    first = runs[:STRESS_SEEDS]
    if [run.seed for run in first] != [*range(STRESS_SEEDS)]:
        return None
    if any(run.record.status.state == "partial" for run in first):
        return None
    return _stability(f"{task}/stress", TaskItems(first, {}))


def seed_curve(run: Run, m: RunMeasure) -> SeedCurve:
    """The curve of a run in u and what it had spent at each point."""
    u = unit(np.array(m.curve.score), *task_bounds(run))
    spending = {axis: _sum_spending(run.record, m.curve, axis) for axis in CURVE_AXES}
    return SeedCurve(
        seed=m.seed,
        state="vanished" if vanished(run) else run.record.status.state,
        measured=m.curve.measured,
        u=tuple(map(float, u)),
        x=spending,
    )


def _spending(curves: Sequence[SeedCurve]) -> tuple[SeedCurve, ...]:
    """The same, where a run that spent nothing is given what the others spent on average."""
    complete = [curve.x for curve in curves if all(x[-1] > 0 for x in curve.x.values())]
    if not complete:
        return tuple(curves)
    usual = {a: tuple(map(float, np.mean([x[a] for x in complete], axis=0))) for a in CURVE_AXES}
    return tuple(
        curve if curve.x in complete else dataclasses.replace(curve, x=usual) for curve in curves
    )


def _sum_spending(record: RunRecord, curve: Curve, axis: str) -> tuple[float, ...]:
    points = [float(p.x if axis == "completions" else getattr(p, axis)) for p in record.curve]
    rest = curve.x[len(points) :]
    last = record.curve[-1]
    rate = 1.0 if axis == "completions" else points[-1] / last.x if last.x else 0.0
    return (*points, *(points[-1] + rate * (x - last.x) for x in rest))


def _stability(task: str, items: TaskItems) -> tuple[RunStability, ...] | None:
    measures = items.measures
    if any(len(m.curve.x) < 2 for m in measures):
        return None
    return runs_stability(
        [unit(np.array(m.curve.score), *b) for m, b in zip(measures, items.bounds, strict=True)],
        [m.H for m in measures],
        [
            unit(rows[: m.curve.measured], *b)
            for rows, m, b in zip(items.curves, measures, items.bounds, strict=True)
        ],
        task,
        [m.seed for m in measures],
        [m.failed for m in measures],
    )


def _generalization(
    task: str, items: TaskItems, weights: Sequence[float]
) -> tuple[RunGeneralization, ...]:
    """The parts of Gen of every run."""
    members = {n.removeprefix(RETAIN): s for n, s in items.splits.items() if n.startswith(RETAIN)}
    templates = _templates(items)
    results = []
    for i, m in enumerate(items.measures):
        panel = {name: split.in_u(i) for name, split in members.items()}
        loss = None
        if all(ends is not None for ends in panel.values()):
            loss = forgetting(panel, task, m.seed)
        results.append(run_generalization(m.splits, m.honesty, loss, templates[i], weights))
    return tuple(results)


def _templates(items: TaskItems) -> list[Templates | None]:
    """FORMAT of every run by template; None where it was not scored."""
    templates: list[Templates | None] = [None] * len(items.runs)
    if FORMAT not in items.splits:
        return templates
    ends = [items.splits[FORMAT].in_u(i) for i in range(len(templates))]
    scored_runs = [i for i, e in enumerate(ends) if e is not None and len(e[0]) >= TEMPLATES]
    if scored_runs:
        parts = templates_of_runs(*_both_ends([ends[i] for i in scored_runs]), TEMPLATES)
        for i, part in zip(scored_runs, parts, strict=True):
            templates[i] = part
    return templates


def _both_ends(ends: Sequence[Ends]) -> tuple[np.ndarray, np.ndarray]:
    """(n, N) at the start and at the end."""
    before = np.stack([start for start, _ in ends])
    return before, np.stack([fallen(s) if e is None else e for s, e in ends])


def _blocks(items: TaskItems, general: Sequence[RunGeneralization], rules: Rules) -> Blocks:
    """Derivatives of Gen of every run, all of which were scored on everything."""

    def ends(name: str) -> tuple[np.ndarray, np.ndarray]:
        return _both_ends([items.splits[name].in_u(i) for i in range(len(items.runs))])

    names = [ID, HARD, FORMAT, *(TRANSFER + name for name in general[0].transfers)]
    panel = [name for name in items.splits if name.startswith(RETAIN)]
    splits, members = ({n: ends(n) for n in some} for some in (names, panel))
    return gen_blocks(splits, members, rules.weights, rules.unchanged)


def _gen_parts(runs: Sequence[RunGeneralization]) -> np.ndarray:
    rows = [[*(getattr(r, part) for part in PARTS), r.forgetting.corrected] for r in runs]
    return np.array(rows)


def rising_seconds(record: RunRecord) -> list[float] | None:
    """Seconds since the start of training at each evaluation; None where they are none."""
    wall = record.volatile.get("wall_s")
    sound = isinstance(wall, list) and len(wall) == len(record.curve) and all(map(_seconds, wall))
    if not sound or any(b <= a for a, b in zip(wall, wall[1:], strict=False)):
        return None
    return [float(t) for t in wall]


def _seconds(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < float("inf")
