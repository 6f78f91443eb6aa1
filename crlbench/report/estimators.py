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

A failed run stays in: from the failure on its u is 0 (intention to treat).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.records import RunRecord
from crlbench.report.load import RECORD, Run

MIN_HEADROOM = 0.2
"""The clamp of Λ and λ: less head-room than this counts as this much."""

ID = "id"
AUDITED = "id_audit"
TRANSFER = "transfer/"
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


@dataclass(frozen=True)
class Curve:
    """The ID curve of one run on the whole grid."""

    x: tuple[int, ...]
    score: tuple[float, ...]
    """Raw scores; the floor from a failure on."""
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
    """Recompute the numbers of a run from its item vectors.

    Args:
        constants: floor and ceiling of other tasks, for the transfer splits.

    Raises:
        ValidationError: a stored score is not the mean of its item vector, or the curve does
            not cover the budget.
    """
    record = run.record
    floor, ceiling = _constants(run)
    curve = full_curve(run)
    budget = total_budget(run)
    start, end = _ends(run, ID)
    head = float(unit(start, floor, ceiling))
    total = None
    if len(curve.x) > 1:
        total = area(np.array(curve.x), unit(np.array(curve.score), floor, ceiling), budget)
    learned = None if total is None else total - head
    splits = {name: _split(run, name, constants) for name in sorted(record.splits)}
    return RunMeasure(
        seed=record.seed.index,
        curve=curve,
        budget=budget,
        start=start,
        end=end,
        gain=None if end is None else end - start,
        gain_u=None if end is None else float(unit(end, floor, ceiling)) - head,
        E=total,
        H=head,
        L=learned,
        lam=None if learned is None else float(captured(learned, head)),
        splits=splits,
        honesty=honesty(record, splits),
        forgetting=forgetting(record, splits),
        failed=record.status.state == "failed",
    )


def learned_reward(record: RunRecord) -> bool:
    """Whether the run was paid by a reward model."""
    return f"tasks.{record.task.name}.reward_model" in record.fingerprint.leaves


def honesty(record: RunRecord, splits: Mapping[str, SplitMeasure]) -> Honesty:
    """How far the reward runs ahead of the audit: on training completions and on ID ones.

    In u for two verifiers. Floor and ceiling of a learned reward are scores of the reward
    model and say nothing of the audit, so that there the two mean scores are subtracted.
    """
    scale = 1.0 if learned_reward(record) else record.task.ceiling - record.task.floor
    audited = splits.get(AUDITED)
    start = end = None
    if audited is not None:
        start = (splits[ID].start - audited.start) / scale
        if record.splits[AUDITED].end is not None:
            end = (splits[ID].end - audited.end) / scale
    gaps = training_gaps(record)[-LAST_ITERATIONS:]
    return Honesty(float(np.mean(gaps)) / scale if gaps else None, start, end)


def training_gaps(record: RunRecord) -> list[float]:
    """Verifier's mean score minus the audit's, per iteration of training, raw."""
    pairs = zip(record.health.get("score", ()), record.health.get("audit", ()), strict=False)
    return [float(s - a) for s, a in pairs if s is not None and a is not None]


def forgetting(record: RunRecord, splits: Mapping[str, SplitMeasure]) -> float | None:
    """Fgt of a run; None where the panel was not scored at both ends."""
    lost = []
    for name, split in splits.items():
        bounds = _leaf_bounds(record, name.replace(RETAIN, "retain.", 1))
        scored = record.splits[name].end is not None and bounds is not None
        if name.startswith(RETAIN) and scored:
            before, after = (float(unit(s, *bounds)) for s in (split.start, split.end))
            lost.append(max(0.0, before - after))
    return float(np.mean(lost)) if lost else None


def _leaf_bounds(record: RunRecord, prefix: str) -> tuple[float, float] | None:
    """Floor and ceiling that the fingerprint of a record states below a name."""
    leaves = record.fingerprint.leaves
    found = [leaves.get(f"{prefix}.{name}") for name in ("floor", "ceiling")]
    if not all(isinstance(value, int | float) for value in found):
        return None
    return float(found[0]), float(found[1])


def full_curve(run: Run) -> Curve:
    """The curve on the whole grid, with the floor where a failed run measured nothing more."""
    record = run.record
    scores = run.curve_items().mean(axis=1)
    x = [point.x for point in record.curve]
    valid = before_failure(record)
    missing = [g for g in grid(record) if g > x[-1]] if record.status.state == "failed" else []
    values = [float(s) for s in scores[:valid]] + [record.task.floor] * (len(x) - valid)
    return Curve(
        x=(*x, *missing),
        score=(*values, *[record.task.floor] * len(missing)),
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
    where = f"{run.folder / RECORD}: curve"
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


def _constants(run: Run) -> tuple[float, float]:
    task = run.record.task
    if not task.ceiling > task.floor:
        raise ValidationError(
            f"{run.folder / RECORD}: task.ceiling ({task.ceiling}) must be above "
            f"task.floor ({task.floor})"
        )
    return task.floor, task.ceiling


def _ends_on_floor(record: RunRecord) -> bool:
    """Placebo runs are never scored at the end, failed or not."""
    return record.status.state == "failed" and record.arm == "real"


def _ends(run: Run, split: str) -> tuple[float, float | None]:
    """Raw scores of the start and the final model; a failed run ends on the floor."""
    if split not in run.record.splits:
        raise ValidationError(f"{run.folder / RECORD}: splits.{split}: missing")
    start = run.split_items(split, end=False)
    end = run.split_items(split, end=True)
    if _ends_on_floor(run.record):
        return float(start.mean()), run.record.task.floor
    return float(start.mean()), None if end is None else float(end.mean())


def _split(run: Run, name: str, constants: Constants) -> SplitMeasure:
    record = run.record
    bounds = _bounds(record, name, constants)
    start_items, end_items = run.split_items(name, end=False), run.split_items(name, end=True)
    start = float(start_items.mean())
    end = None if end_items is None else float(end_items.mean())
    if _ends_on_floor(record):
        end = bounds[0] if bounds else None
    change = None
    if end is not None and bounds is not None:
        u0, u1 = (float(unit(s, *bounds)) for s in (start, end))
        change = float(captured(u1 - u0, u0))
    stored = record.splits[name]
    return SplitMeasure(start=start, end=end, n=stored.n, draws=stored.draws, change=change)


def _bounds(record: RunRecord, split: str, constants: Constants) -> tuple[float, float] | None:
    """Floor and ceiling of a split, from the task, the panel's member or the other task."""
    if split.startswith(RETAIN):
        return _leaf_bounds(record, split.replace(RETAIN, "retain.", 1))
    if split.startswith(TRANSFER):
        task = split.removeprefix(TRANSFER)
        return constants.get(task) or _leaf_bounds(record, f"tasks.{task}")
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

    def lam(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) Λ under (R, N) item weights that sum to 1 in each row."""
        return captured(weights @ self.learned.T, weights @ self.head.T)

    def gain(self, weights: np.ndarray) -> np.ndarray:
        """(R, n) raw gain s(B) - s(0) under item weights."""
        return self.scale * (weights @ (self.final - self.head).T)


def item_table(runs: list[Run]) -> ItemTable | None:
    """The item table of the runs of one task; None where a run has no area (one point)."""
    rows = [_item_rows(run) for run in runs]
    if any(row is None for row in rows):
        return None
    learned, head, final = zip(*rows, strict=True)
    whole = all(row is not None for row in final)
    floor, ceiling = _constants(runs[0])
    return ItemTable(
        learned=np.stack(learned),
        head=np.stack(head),
        final=np.stack(final) if whole else None,
        scale=ceiling - floor,
    )


def _item_rows(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """(N,) learned, head and final of one run, in u."""
    bounds = _constants(run)
    curve = full_curve(run)
    if len(curve.x) < 2:
        return None
    start = unit(run.split_items(ID, end=False).mean(axis=0), *bounds)
    items = unit(run.curve_items()[: curve.measured], *bounds)
    if items.shape[1] != start.shape[0]:
        raise ValidationError(
            f"{run.folder / RECORD}: splits.id.n is {start.shape[0]}, but the curve has "
            f"{items.shape[1]} items: the ends must be scored on the curve's items"
        )
    weights = trapezoid_weights(np.array(curve.x), total_budget(run))[: curve.measured]
    final = run.split_items(ID, end=True)
    if _ends_on_floor(run.record):
        ends = np.zeros_like(start)
    else:
        ends = None if final is None else unit(final.mean(axis=0), *bounds)
    return weights @ items - start, start, ends
