"""Cells of a plan in words: their names, how a run failed, what stands for one without a record."""

from __future__ import annotations

from collections.abc import Sequence

from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.records import SCORE_DROP, Status
from crlbench.verdict.attempts import Key
from crlbench.verdict.runs import Run

VANISHED = "vanished"
"""``status.rule`` of a run that left no record."""


def cell_name(task: str, index: int) -> str:
    """``task seed-03``."""
    return f"{task} seed-{index:02d}"


def cell_of(run: Run) -> str:
    """The name of a run's cell."""
    return cell_name(run.record.task.name, run.record.seed.index)


def name_cells(cells: Sequence[Key]) -> str:
    """``addition seed-03, counting placebo seed-00``: the first few, and how many more."""
    return list_names(
        [cell_name(task if arm == "real" else f"{task} {arm}", i) for task, arm, i in cells]
    )


def list_names(names: Sequence[str], most: int = 6) -> str:
    """The first ``most`` of them, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def failure(run: Run) -> str:
    """``task seed-03: rule at iteration 22``."""
    status = run.record.status
    at = "" if status.at is None else f" at iteration {status.at}"
    return f"{cell_of(run)}: {status.rule or 'no rule stated'}{at}"


def counts_as_failed(run: Run) -> bool:
    """Losing score is what the placebo and the mode arm measure, and no failure there."""
    status = run.record.status
    return status.state == "failed" and not (
        run.record.arm not in PAID_BY_TASK and status.rule == SCORE_DROP
    )


def vanished(run: Run) -> bool:
    """Whether a run stands for one that left no record."""
    return run.status.rule == VANISHED


def vanished_run(sibling: Run, index: int) -> Run:
    """A failed run of a sibling's task that measured nothing but its start.

    Start scores are measured once per model and task, so that they are the sibling's.
    """
    record = sibling.record
    return Run(
        record.model_copy(
            update={
                "seed": record.seed.model_copy(update={"index": index}),
                "status": Status(state="failed", rule=VANISHED, at=-1),
                "curve": record.curve[:1],
                "splits": {
                    name: split.model_copy(update={"end": None, "end_ref": None})
                    for name, split in record.splits.items()
                },
                "health": {},
                "cost": {},
                "clipped_tokens": [],
                "counts": {},
            }
        ),
        sibling.folder,
    )
