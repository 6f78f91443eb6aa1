"""The curve of a stored run on the whole grid of its conditions, with what follows a failure."""

from __future__ import annotations

import numpy as np

from crlbench.contract.records import RunRecord
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.stats.measures import ID, MAX_BUDGET, MAX_POINTS, Curve
from crlbench.verdict.runs import Run


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
    full_grid = grid(record)
    if record.status.state == "completed" and full_grid and x != full_grid:
        raise ValidationError(
            f"{where}: the run says completed, but its evaluations at {_some(x)} are not the "
            f"grid {_some(full_grid)} of its conditions"
        )
    return full_grid[-1] if full_grid else x[-1]


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
