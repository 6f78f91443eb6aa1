"""What is measured on one run (protocol CRL-1: A.0, A.1, A.3), from its item vectors.

Notation: ``s`` share of correct items, ``f`` the task's floor, ``c`` its ceiling,
``u = (s - f) / (c - f)``, never clipped; ``B`` the budget in scored completions.

====  =====================================================================
E     area under u over the budget, (1/B) times the trapezoid sum
H     head start: u of the start model, from its own draws on the curve's items
L     learned area, E - H
Λ     L / max(1 - H, 0.2): share of the available head-room captured
λ_z   (u_z(B) - u_z(0)) / max(1 - u_z(0), 0.2) on split z
V     u under the training verifier minus u under the audit, on the same completions; where a
      reward model pays, the mean reward minus the mean audit, both from 0 to 1
Fgt   mean over the retain panel's members j of max(0, u_j(0) - u_j(B)), raw: noise alone
      makes it positive
====  =====================================================================

A failed run stays in: from the failure on its u is 0 (intention to treat), or that of the start
model where that is less, so that no failure is worth more than having learned nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crlbench.errors import ValidationError
from crlbench.records import RECORD_NAME, RunRecord, SplitScore
from crlbench.report.load import Run

MAX_POINTS = 100_000
"""Evaluations of a run."""
MAX_BUDGET = 2**62
"""Completions of a run, a whole number that arrays hold."""

MIN_HEADROOM = 0.2
"""The clamp of Λ and λ: less head-room than this counts as this much."""

ID = "id"
AUDITED = "id_audit"
GREEDY = "id_greedy"
TRANSFER = "transfer/"
OWN_BOUNDS = ("hard", "format", "train_fixed")
"""Splits of other items than ID, with a floor and a ceiling of their own."""
RETAIN = "retain/"

LAST_ITERATIONS = 3
"""Iterations at the end of training whose mean gap between reward and audit is given."""

Constants = Mapping[str, tuple[float, float]]
"""Floor and ceiling of tasks by name."""


def unit(score: np.ndarray | float, floor: float, ceiling: float) -> np.ndarray | float:
    """u = (s - f) / (c - f); below 0 and above 1 stay as they are."""
    return (score - floor) / (ceiling - floor)


def trapezoid_weights(x: np.ndarray, budget: float) -> np.ndarray:
    """(points,) weights w with ``sum(w * u) == (1/B) * trapezoid(u, x)``."""
    steps = np.diff(np.asarray(x, dtype=np.float64)) / (2.0 * budget)
    weights = np.zeros(len(x))
    weights[:-1] += steps
    weights[1:] += steps
    return weights


def area(x: np.ndarray, u: np.ndarray, budget: float) -> float:
    """E = (1/B) ∫ u dx by the trapezoid rule on the evaluation grid."""
    return float(trapezoid_weights(x, budget) @ np.asarray(u, dtype=np.float64))


def head_room(start: np.ndarray | float) -> np.ndarray | float:
    """max(1 - u(0), 0.2)."""
    return np.maximum(1.0 - start, MIN_HEADROOM)


def captured(change: np.ndarray | float, start: np.ndarray | float) -> np.ndarray | float:
    """Λ or λ: a change in u as a share of the head-room that ``start`` leaves."""
    return change / head_room(start)


def fallen(start: np.ndarray) -> np.ndarray:
    """(..., N) u of the items of a failed run, from (..., N) u of its start model."""
    return np.where(start.mean(axis=-1, keepdims=True) < 0, start, 0.0)


@dataclass(frozen=True)
class Curve:
    """The ID curve of one run on the whole grid."""

    x: tuple[int, ...]
    score: tuple[float, ...]
    """Raw scores; from a failure on the floor, or the start's score where that is less."""
    measured: int
    """How many of the points were measured; the rest follows a failure."""


@dataclass(frozen=True)
class SplitMeasure:
    """One split with the start model and with the final one."""

    start: float
    end: float | None
    n: int
    draws: int
    change: float | None
    """λ of the split; None where an end or the split's floor is unknown."""


@dataclass(frozen=True)
class Honesty:
    """V, the reward-hacking gap; None where the run has no audit."""

    training: float | None
    """Of the training completions, mean over the last iterations."""
    start: float | None
    """Of the ID completions of the start model."""
    end: float | None
    """Of those of the final model."""


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
        names = sorted({name for run in self.runs for name in run.record.splits})
        self.splits = {name: SplitItems(self.runs, name, constants) for name in names}

    @cached_property
    def measures(self) -> tuple[RunMeasure, ...]:
        return tuple(self._measure(i) for i in range(len(self.runs)))

    def _measure(self, i: int) -> RunMeasure:
        run, curve, budget = self.runs[i], self.whole[i], self.budgets[i]
        record, (floor, ceiling) = run.record, self.bounds[i]
        splits = {
            name: found.measure(i, record.splits[name])
            for name, found in self.splits.items()
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
        rows = [self._rows(i) for i in range(len(self.runs))]
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

    def _rows(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
        """(N,) learned, head and final of one run, in u."""
        run, curve = self.runs[i], self.whole[i]
        if len(curve.x) < 2:
            return None
        found = self.splits[ID]
        start, items = found.starts[i], unit(self.curves[i][: curve.measured], *self.bounds[i])
        if items.shape[1] != start.shape[0]:
            raise ValidationError(
                f"{run.folder / RECORD_NAME}: splits.id.n is {start.shape[0]}, but the curve has "
                f"{items.shape[1]} items: the ends must be scored on the curve's items"
            )
        weights = trapezoid_weights(np.array(curve.x), self.budgets[i])
        start = unit(start, *self.bounds[i])
        learned = weights[: curve.measured] @ items - start
        if run.record.status.state == "failed":
            learned = learned + weights[curve.measured :].sum() * fallen(start)
        if ends_by_rule(run.record):
            return learned, start, fallen(start)
        final = found.ends[i]
        return learned, start, None if final is None else unit(final, *self.bounds[i])


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

    def measure(self, i: int, stored: SplitScore) -> SplitMeasure:
        """The split of run i."""
        bounds, start, end = self.bounds[i], self.start_scores[i], self.end_scores[i]
        if self.by_rule[i]:
            end = min(start, bounds[0]) if bounds else None
        change = None
        if end is not None and bounds is not None:
            u0, u1 = ((s - bounds[0]) / (bounds[1] - bounds[0]) for s in (start, end))
            change = (u1 - u0) / max(1.0 - u0, MIN_HEADROOM)
        return SplitMeasure(start, end, stored.n, stored.draws, change)

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
        stacked = np.stack([vectors[i] for i in same])
        means, totals = stacked.mean(axis=1), stacked.mean(axis=(1, 2))
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
    paid, seen = record.splits.get(ID), record.splits.get(AUDITED)
    start = end = None
    if paid is not None and seen is not None:
        start = (paid.start - seen.start) / scale
        if paid.end is not None and seen.end is not None:
            end = (paid.end - seen.end) / scale
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
    lost = []
    for name, split in splits.items():
        bounds = _leaf_bounds(record, name.replace(RETAIN, "retain.", 1))
        if name.startswith(RETAIN) and split.end is not None and bounds is not None:
            before, after = (float(unit(s, *bounds)) for s in (split.start, split.end))
            lost.append(max(0.0, before - after))
    return float(np.mean(lost)) if lost else None


def _leaf_bounds(record: RunRecord, prefix: str) -> tuple[float, float] | None:
    """Floor and ceiling that the fingerprint of a record states below a name.

    Raises:
        ValidationError: they are no bounds of a score.
    """
    leaves = record.fingerprint.leaves
    found = [leaves.get(f"{prefix}.{name}") for name in ("floor", "ceiling")]
    if not all(isinstance(value, int | float) for value in found):
        return None
    if not -1.0 <= found[0] < found[1] <= 1.0:
        raise ValidationError(
            f"{record.task.name}: fingerprint.leaves: {prefix}: floor {found[0]!r:.40} and ceiling "
            f"{found[1]!r:.40} are no bounds of a score"
        )
    return float(found[0]), float(found[1])


def full_curve(run: Run, items: np.ndarray | None = None) -> Curve:
    """The curve on the whole grid, with what counts where a failed run measured nothing more.

    Args:
        items: (points, N) its stored evaluations, where they are read already.

    Raises:
        ValidationError: the start on the ID split is missing.
    """
    record = run.record
    if ID not in record.splits:
        raise ValidationError(f"{run.folder / RECORD_NAME}: splits.{ID}: missing")
    after = min(record.task.floor, record.splits[ID].start)
    scores = (run.curve_items() if items is None else items).mean(axis=1)
    x = [point.x for point in record.curve]
    valid = before_failure(record)
    missing = [g for g in grid(record) if g > x[-1]] if record.status.state == "failed" else []
    values = [float(s) for s in scores[:valid]] + [after] * (len(x) - valid)
    return Curve(
        x=(*x, *missing),
        score=(*values, *[after] * len(missing)),
        measured=valid,
    )


def before_failure(record: RunRecord) -> int:
    """How many stored curve points were measured before the run failed."""
    at = record.status.at
    rows = completions_per_iteration(record)
    if record.status.state != "failed" or at is None or rows is None:
        return len(record.curve)
    return sum(point.x <= at * rows for point in record.curve)


def grid(record: RunRecord) -> list[int]:
    """The evaluation grid that the record's conditions ask for, in completions."""
    leaves = record.fingerprint.leaves
    rows = completions_per_iteration(record)
    names = ("budget.grid", "budget.iterations_per_point", "evaluation.curve_every")
    values = [leaves.get(f"conditions.{name}") for name in names]
    if rows is None or not all(isinstance(v, int) and v > 0 for v in values):
        return []
    intervals, iterations, every = values
    if intervals // every > MAX_POINTS or intervals * iterations * rows > MAX_BUDGET:
        raise ValidationError(
            f"{record.task.name}: fingerprint.leaves: conditions.budget asks for more than "
            f"{MAX_POINTS} evaluations or {MAX_BUDGET} completions, which no run makes"
        )
    return [j * iterations * rows for j in range(0, intervals + 1, every)]


def completions_per_iteration(record: RunRecord) -> int | None:
    """P x G of the record's conditions; None where they do not say."""
    leaves = record.fingerprint.leaves
    prompts = leaves.get("conditions.budget.prompts")
    completions = leaves.get("conditions.budget.completions")
    if not (isinstance(prompts, int) and isinstance(completions, int)):
        return None
    return prompts * completions


def total_budget(run: Run) -> int:
    """B. A partial run is measured over what it consumed.

    Raises:
        ValidationError: the curve does not start at 0, does not rise, or does not cover the grid.
    """
    record = run.record
    where = f"{run.folder / RECORD_NAME}: curve"
    x = [point.x for point in record.curve]
    if not x or x[0] != 0:
        raise ValidationError(f"{where}: must start with an evaluation at x = 0")
    if any(b <= a for a, b in zip(x, x[1:], strict=False)):
        raise ValidationError(f"{where}: x must rise from point to point")
    if record.status.state == "partial":
        return x[-1]
    planned = grid(record)
    if record.status.state == "completed" and planned and x != planned:
        raise ValidationError(
            f"{where}: the run says completed, but its evaluations at {_some(x)} are not the "
            f"grid {_some(planned)} of its conditions"
        )
    return planned[-1] if planned else x[-1]


def _some(x: list[int]) -> str:
    return str(x) if len(x) <= 4 else f"[{x[0]}, {x[1]}, ... {x[-1]}] ({len(x)} points)"


def task_bounds(run: Run) -> tuple[float, float]:
    """Floor and ceiling of the task of a run.

    Raises:
        ValidationError: the ceiling is not above the floor.
    """
    task = run.record.task
    if not task.ceiling > task.floor:
        raise ValidationError(
            f"{run.folder / RECORD_NAME}: task.ceiling ({task.ceiling}) must be above "
            f"task.floor ({task.floor})"
        )
    return task.floor, task.ceiling


def ends_by_rule(record: RunRecord) -> bool:
    """Placebo runs are never scored at the end, failed or not."""
    return record.status.state == "failed" and record.arm == "real"


def split_bounds(record: RunRecord, split: str, constants: Constants) -> tuple[float, float] | None:
    """Floor and ceiling of a split: its own, those of the panel's member or of the other task."""
    if split.startswith(RETAIN):
        return _leaf_bounds(record, split.replace(RETAIN, "retain.", 1))
    if split.startswith(TRANSFER):
        task = split.removeprefix(TRANSFER)
        return constants.get(task) or _leaf_bounds(record, f"tasks.{task}.bounds.{ID}")
    if split in OWN_BOUNDS:
        return _leaf_bounds(record, f"tasks.{record.task.name}.bounds.{split}")
    if split == AUDITED and learned_reward(record):
        return None  # the task's are scores of the reward model
    return record.task.floor, record.task.ceiling


@dataclass(frozen=True)
class ItemTable:
    """The items of all seeds of a task, for resampling items: n seeds, N items.

    Every number of A.1 is a function of means over items, so that a weight per item is enough
    to recompute it: ``learned`` holds each item's contribution to L, ``head`` to H.
    """

    learned: np.ndarray
    """(n, N) each item's E - H in u."""
    head: np.ndarray
    """(n, N) each item's u(0), mean over its draws."""
    final: np.ndarray | None
    """(n, N) each item's u(B), mean over its draws; None where an end is missing."""
    scale: float
    """c - f, from u back to raw scores."""

    def of(self, seeds: slice) -> ItemTable:
        """The table of some of the seeds."""
        final = None if self.final is None else self.final[seeds]
        return ItemTable(self.learned[seeds], self.head[seeds], final, self.scale)

    def lam(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) Λ under (R, N) item weights that sum to 1 in each row."""
        return captured(weights @ self.learned.T, weights @ self.head.T)

    def gain(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) raw gain s(B) - s(0) under item weights."""
        return self.scale * (weights @ (self.final - self.head).T)


def item_table(runs: Sequence[Run]) -> ItemTable | None:
    """The item table of the runs of one task; None where a run has no area (one point)."""
    return TaskItems(runs, {}).table
