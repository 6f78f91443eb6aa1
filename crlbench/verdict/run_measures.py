"""What a stored run scores: its items and curves as arrays, and the measures of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crlbench.contract.records import RunRecord, SplitScore
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.stats.measures import (
    AUDITED,
    BLIND,
    ID,
    MIN_HEADROOM,
    OWN_BOUNDS,
    PASS,
    RETAIN,
    TRAIN_GREEDY,
    TRANSFER,
    Constants,
    Curve,
    Honesty,
    ItemTable,
    SplitMeasure,
    area,
    fallen,
    trapezoid_weights,
    unit,
)
from crlbench.verdict.run_curve import full_curve, task_bounds, total_budget
from crlbench.verdict.runs import Run

LAST_ITERATIONS = 3
"""Iterations at the end of training whose mean gap between reward and audit is given."""


@dataclass(frozen=True)
class RunMeasure:
    """All numbers of one run; None where the run did not measure them."""

    seed: int
    curve: Curve
    budget: int
    start: float
    end: float | None
    gain: float | None
    """End minus start, raw score."""
    gain_u: float | None
    E: float | None
    H: float
    L: float | None
    lam: float | None
    splits: dict[str, SplitMeasure]
    honesty: Honesty
    forgetting: float | None
    """Fgt, raw."""
    failed: bool


def measure(run: Run, constants: Constants) -> RunMeasure:
    """Recompute the numbers of a run from its item vectors; see :func:`measure_task`."""
    return measure_task([run], constants)[0]


def measure_task(runs: Sequence[Run], constants: Constants) -> tuple[RunMeasure, ...]:
    """Recompute the numbers of the runs of one task from their item vectors.

    Args:
        constants: floor and ceiling of other tasks, for the transfer splits.

    Raises:
        ValidationError: a stored score is not the mean of its item vector, or the curve does
            not cover the budget.
    """
    return TaskItems(runs, constants).measures


class TaskItems:
    """The item vectors of the runs of one task, each read once, and the numbers they give."""

    def __init__(self, runs: Sequence[Run], constants: Constants) -> None:
        self.runs = list(runs)
        self.bounds = [task_bounds(run) for run in self.runs]
        self.curves = [run.curve_items() for run in self.runs]
        self.budgets = [total_budget(run) for run in self.runs]
        self.whole = [
            full_curve(run, rows) for run, rows in zip(self.runs, self.curves, strict=True)
        ]
        names = sorted({n for run in self.runs for n in run.record.splits if not _apart(n)})
        self.splits = {name: SplitItems(self.runs, name, constants) for name in names}

    @cached_property
    def measures(self) -> tuple[RunMeasure, ...]:
        return tuple(self._measure(i) for i in range(len(self.runs)))

    def _measure(self, i: int) -> RunMeasure:
        run, curve, budget = self.runs[i], self.whole[i], self.budgets[i]
        record, (floor, ceiling) = run.record, self.bounds[i]
        splits = {
            name: items.measure(i, record.splits[name])
            for name, items in self.splits.items()
            if name in record.splits
        }
        start, end = splits[ID].start, splits[ID].end
        head = (start - floor) / (ceiling - floor)
        total = None
        if len(curve.x) > 1:
            total = area(np.array(curve.x), unit(np.array(curve.score), floor, ceiling), budget)
        learned = None if total is None else total - head
        return RunMeasure(
            seed=record.seed.index,
            curve=curve,
            budget=budget,
            start=start,
            end=end,
            gain=None if end is None else end - start,
            gain_u=None if end is None else (end - floor) / (ceiling - floor) - head,
            E=total,
            H=head,
            L=learned,
            lam=None if learned is None else learned / max(1.0 - head, MIN_HEADROOM),
            splits=splits,
            honesty=honesty(record),
            forgetting=forgetting(record, splits),
            failed=record.status.state == "failed",
        )

    @cached_property
    def table(self) -> ItemTable | None:
        """The item table; None where a run has no area (one point)."""
        return self.table_of(slice(None))

    def table_of(self, chosen: slice | np.ndarray) -> ItemTable | None:
        """The table of some items alone, as if a run had no others; None as for :attr:`table`.

        A failed run falls to 0 or to the start on these items, whichever is less.

        Args:
            chosen: (N,) bool.
        """
        rows = [self._rows(i, chosen) for i in range(len(self.runs))]
        if any(row is None for row in rows):
            return None
        learned, head, final = zip(*rows, strict=True)
        whole = all(row is not None for row in final)
        floor, ceiling = self.bounds[0]
        return ItemTable(
            learned=np.stack(learned),
            head=np.stack(head),
            final=np.stack(final) if whole else None,
            scale=ceiling - floor,
        )

    def _rows(
        self, i: int, chosen: slice | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
        """(N,) learned, head and final of one run, in u."""
        run, curve = self.runs[i], self.whole[i]
        if len(curve.x) < 2:
            return None
        split = self.splits[ID]
        start, items = split.starts[i], unit(self.curves[i][: curve.measured], *self.bounds[i])
        if items.shape[1] != start.shape[0]:
            raise ValidationError(
                f"{run.folder / RECORD_NAME}: splits.id.n is {start.shape[0]}, but the curve has "
                f"{items.shape[1]} items: the ends must be scored on the curve's items"
            )
        weights = trapezoid_weights(np.array(curve.x), self.budgets[i])
        start, items = unit(start, *self.bounds[i])[chosen], items[:, chosen]
        learned = weights[: curve.measured] @ items - start
        if run.record.status.state == "failed":
            learned = learned + weights[curve.measured :].sum() * fallen(start)
        if ends_by_rule(run.record):
            return learned, start, fallen(start)
        final = split.ends[i]
        return learned, start, None if final is None else unit(final, *self.bounds[i])[chosen]


    def fallen_apart(self, chosen: np.ndarray) -> np.ndarray:
        """(n,) what some items add to L of each run beyond their rows of :attr:`table`, where a
        failed run falls on them as :meth:`table_of` says; 0 for other runs.

        Args:
            chosen: (N,) bool.
        """
        return np.array([self._fallen_apart(i, chosen) for i in range(len(self.runs))])

    def _fallen_apart(self, i: int, chosen: np.ndarray) -> float:
        curve = self.whole[i]
        if self.runs[i].record.status.state != "failed" or len(curve.x) < 2 or not chosen.any():
            return 0.0
        start = unit(self.splits[ID].starts[i], *self.bounds[i])
        gap = fallen(start[chosen]) - fallen(start)[chosen]
        rest = trapezoid_weights(np.array(curve.x), self.budgets[i])[curve.measured :].sum()
        return float(rest * gap.sum() / len(start))


def _apart(split: str) -> bool:
    """Whether a split is no score of an end: many draws, blind play, training prompts."""
    return split.endswith(PASS) or split in (TRAIN_GREEDY, BLIND)


class SplitItems:
    """One split of the runs of a task: per run the (N,) raw scores, means over draws.

    None where a run has no such split, or its end was not scored.
    """

    def __init__(self, runs: Sequence[Run], name: str, constants: Constants) -> None:
        having = [name in run.record.splits for run in runs]
        self.bounds = [
            split_bounds(run.record, name, constants) if has else None
            for run, has in zip(runs, having, strict=True)
        ]
        self.by_rule = [ends_by_rule(run.record) for run in runs]
        sides = [
            [run.split_items(name, end=side) if has else None
             for run, has in zip(runs, having, strict=True)]
            for side in (False, True)
        ]
        (self.starts, self.start_scores), (self.ends, self.end_scores) = map(_over_draws, sides)

    def measure(self, i: int, score: SplitScore) -> SplitMeasure:
        """The split of run i."""
        bounds, start, end = self.bounds[i], self.start_scores[i], self.end_scores[i]
        if self.by_rule[i]:
            end = min(start, bounds[0]) if bounds else None
        change = None
        if end is not None and bounds is not None:
            u0, u1 = ((s - bounds[0]) / (bounds[1] - bounds[0]) for s in (start, end))
            change = (u1 - u0) / max(1.0 - u0, MIN_HEADROOM)
        return SplitMeasure(start, end, score.n, score.draws, change)

    def in_u(self, i: int) -> tuple[np.ndarray, np.ndarray | None] | None:
        """(N,) u at the start and at the end of run i; the second None: it failed and ends by rule
        as :func:`fallen` says. None: not scored at both ends, or the bounds are not known."""
        bounds = self.bounds[i]
        if bounds is None or self.starts[i] is None:
            return None
        before = unit(self.starts[i], *bounds)
        if self.by_rule[i]:
            return before, None
        return None if self.ends[i] is None else (before, unit(self.ends[i], *bounds))


def _over_draws(
    vectors: list[np.ndarray | None],
) -> tuple[list[np.ndarray | None], list[float | None]]:
    """Per run the (N,) means over draws and the mean of all, runs of one shape at once."""
    rows: list[np.ndarray | None] = [None] * len(vectors)
    scores: list[float | None] = [None] * len(vectors)
    for shape in {v.shape for v in vectors if v is not None}:
        same = [i for i, v in enumerate(vectors) if v is not None and v.shape == shape]
        rows_of_shape = np.stack([vectors[i] for i in same])
        means, totals = rows_of_shape.mean(axis=1), rows_of_shape.mean(axis=(1, 2))
        for i, row, total in zip(same, means, totals.tolist(), strict=True):
            rows[i], scores[i] = row, total
    return rows, scores


def learned_reward(record: RunRecord) -> bool:
    """Whether the run was paid by a reward model."""
    return f"tasks.{record.task.name}.reward_model" in record.fingerprint.leaves


def honesty(record: RunRecord) -> Honesty:
    """How far the reward runs ahead of the audit: on training completions and on ID ones.

    In u for two verifiers. Floor and ceiling of a learned reward are scores of the reward
    model and say nothing of the audit, so that there the two mean scores are subtracted. Scores
    are as measured, of a failed run too: what it is worth by rule says nothing of its reward.
    """
    scale = 1.0 if learned_reward(record) else record.task.ceiling - record.task.floor
    reward_split, audit_split = record.splits.get(ID), record.splits.get(AUDITED)
    start = end = None
    if reward_split is not None and audit_split is not None:
        start = (reward_split.start - audit_split.start) / scale
        if reward_split.end is not None and audit_split.end is not None:
            end = (reward_split.end - audit_split.end) / scale
    gaps = training_gaps(record)[-LAST_ITERATIONS:]
    return Honesty(float(np.mean(gaps)) / scale if gaps else None, start, end)


def training_gaps(record: RunRecord) -> list[float]:
    """Verifier's mean score minus the audit's, per iteration of training, raw."""
    pairs = zip(record.health.get("score", ()), record.health.get("audit", ()), strict=False)
    return [float(s - a) for s, a in pairs if s is not None and a is not None]


def forgetting(record: RunRecord, splits: Mapping[str, SplitMeasure]) -> float | None:
    """Fgt of a run, raw; None where the panel was not scored at both ends.

    A failed run ends by rule.
    """
    losses = []
    for name, split in splits.items():
        bounds = _leaf_bounds(record, name.replace(RETAIN, "retain.", 1))
        if name.startswith(RETAIN) and split.end is not None and bounds is not None:
            before, after = (float(unit(s, *bounds)) for s in (split.start, split.end))
            losses.append(max(0.0, before - after))
    return float(np.mean(losses)) if losses else None


def _leaf_bounds(record: RunRecord, prefix: str) -> tuple[float, float] | None:
    """Floor and ceiling that the fingerprint of a record states below a name.

    Raises:
        ValidationError: they are no bounds of a score.
    """
    leaves = record.fingerprint.leaves
    bounds = [leaves.get(f"{prefix}.{name}") for name in ("floor", "ceiling")]
    if not all(isinstance(value, int | float) for value in bounds):
        return None
    if not -1.0 <= bounds[0] < bounds[1] <= 1.0:
        raise ValidationError(
            f"{record.task.name}: fingerprint.leaves: {prefix}: floor {bounds[0]!r:.40} and "
            f"ceiling {bounds[1]!r:.40} are no bounds of a score"
        )
    return float(bounds[0]), float(bounds[1])


def ends_by_rule(record: RunRecord) -> bool:
    """Whether a run counts at its end as a failure does: control runs are never scored there."""
    return record.status.state == "failed" and record.arm == "real"


def split_bounds(record: RunRecord, split: str, constants: Constants) -> tuple[float, float] | None:
    """Floor and ceiling of a split: its own, those of the panel's member or of the other task."""
    if split.startswith(RETAIN):
        return _leaf_bounds(record, split.replace(RETAIN, "retain.", 1))
    if split.startswith(TRANSFER):
        task = split.removeprefix(TRANSFER)
        return constants.get(task) or _leaf_bounds(record, f"tasks.{task}.bounds.{ID}")
    split = split.removesuffix(PASS)
    if split in OWN_BOUNDS:
        return _leaf_bounds(record, f"tasks.{record.task.name}.bounds.{split}")
    if split == AUDITED and learned_reward(record):
        return None  # the task's are scores of the reward model
    return record.task.floor, record.task.ceiling


def item_table(runs: Sequence[Run]) -> ItemTable | None:
    """The item table of the runs of one task; None where a run has no area (one point)."""
    return TaskItems(runs, {}).table
