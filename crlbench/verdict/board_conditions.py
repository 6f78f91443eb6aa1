"""What all runs of a board have in common: conditions, hardware, and the tasks that these name."""

from __future__ import annotations

from crlbench.contract.conditions import diff
from crlbench.contract.records import RunRecord
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import NotComparable, ValidationError
from crlbench.verdict.load import Runs
from crlbench.verdict.runs import Run


def board_tasks(record: RunRecord) -> tuple[str, ...]:
    """Names of the tasks that are trained on, among the leaves of the fingerprint."""
    names = {leaf.split(".")[1] for leaf in record.fingerprint.leaves if leaf.startswith("tasks.")}
    return tuple(sorted(names - {*measured_tasks(record)}))


def measured_tasks(record: RunRecord) -> tuple[str, ...]:
    """Names of the board's tasks that are only measured: they have splits, and none to train on."""
    leaves = [leaf.split(".") for leaf in record.fingerprint.leaves if leaf.startswith("tasks.")]
    with_splits = {parts[1] for parts in leaves if parts[2:3] == ["splits"]}
    with_training = {parts[1] for parts in leaves if parts[2:] == ["splits", "train"]}
    return tuple(sorted(with_splits - with_training))


def same_conditions(runs: Runs) -> RunRecord:
    """The first record, after all have been found to share its fingerprint and hardware.

    Raises:
        NotComparable: they do not; names the leaves that differ.
        ValidationError: records of one fingerprint state different tracks.
    """
    first = runs.runs[0]
    for run in runs:
        a, b = first.record.fingerprint, run.record.fingerprint
        if a.hash != b.hash:
            leaves = diff(a.leaves, b.leaves)
            lines = [f"  {name}: {x!r} / {y!r}" for name, (x, y) in list(leaves.items())[:8]]
            more = [f"  and {len(leaves) - 8} more"] if len(leaves) > 8 else []
            raise NotComparable(
                "\n".join(
                    [
                        f"{first.folder} and {run.folder} were made under different conditions "
                        f"({a.hash} / {b.hash}):",
                        *lines,
                        *more,
                        "Report the folder of one fingerprint at a time.",
                    ]
                )
            )
        _same_protocol(first, run)
        _same_hardware(first, run)
    return first.record


def _same_protocol(first: Run, run: Run) -> None:
    for name in ("track", "track_version", "division"):
        a, b = getattr(first.record.protocol, name), getattr(run.record.protocol, name)
        if a != b:
            raise ValidationError(
                f"{run.folder / RECORD_NAME}: protocol.{name}: {b!r}, but {first.folder} says "
                f"{a!r} under the same fingerprint"
            )


def _same_hardware(first: Run, run: Run) -> None:
    a, b = (r.record.environment.get("hardware_class") for r in (first, run))
    if a != b:
        raise NotComparable(
            f"{first.folder} and {run.folder} were made on different classes of hardware "
            f"({a} / {b}). Report the runs of one class at a time."
        )
