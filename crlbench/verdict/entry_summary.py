"""The summary of an entry of a board, from what the board has read and measured of it already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crlbench.verdict.census import cell_name
from crlbench.verdict.entry import Entry
from crlbench.verdict.estimate import Estimate
from crlbench.verdict.runs import Run
from crlbench.verdict.summary import EntrySummary, draw, mean_or_none, over_tasks, task_summary


def entry_summary(entry: Entry, runs: Sequence[Run]) -> EntrySummary:
    """What :func:`crlbench.verdict.summary.summarise` says of the entry's real arm.

    Args:
        runs: all stored runs of the entry.
    """
    evidence, found = entry.evidence, entry.evidence.tasks
    drawn = {
        task: draw(task, own.table, own.measures, evidence.count, evidence.seed, headline=False)
        for task, own in found.items()
    }
    tasks = [task_summary(own.runs, own.measures, drawn[task]) for task, own in found.items()]
    lam = entry.axes["efficiency"]
    return EntrySummary(
        model=entry.model,
        display_name=entry.display_name,
        family=entry.family,
        kind=entry.kind,
        recipe=entry.recipe,
        arm="real",
        tasks=tuple(tasks),
        start=float(np.mean([task.start for task in tasks])),
        end=mean_or_none([task.end for task in tasks]),
        gain=over_tasks([part.gain for part in drawn.values()], tasks),
        gain_u=over_tasks([part.gain_u for part in drawn.values()], tasks),
        lam=Estimate(lam.value, lam.interval, lam.n),
        lam_mean=over_tasks([part.lam_mean for part in drawn.values()], tasks),
        n=entry.n,
        standing=entry.standing,
        failed=entry.failed,
        partial=_partial(runs),
        missing=entry.missing,
        absent=entry.absent,
        vanished=entry.vanished,
        why=entry.why,
    )


def _partial(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(
        cell_name(run.record.task.name, run.record.seed.index)
        for run in runs
        if run.record.arm == "real" and run.record.status.state == "partial"
    )
