"""An entry as if it had been run on one task only: what the builders of the report then show."""

from __future__ import annotations

from dataclasses import replace

from crlbench.verdict.entry import Entry
from crlbench.verdict.summary import EntrySummary


def summary_of_task(summary: EntrySummary, task: str) -> EntrySummary:
    """Its part of one task: scores, seeds, splits and what failed there."""

    def own(cells: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cell for cell in cells if cell.startswith(f"{task} seed-"))

    found = next(found for found in summary.tasks if found.task == task)
    return replace(
        summary,
        tasks=(found,),
        start=found.start,
        end=found.end,
        gain=found.gain,
        gain_u=found.gain_u,
        lam=found.lam,
        lam_mean=found.lam,
        failed=own(summary.failed),
        partial=own(summary.partial),
        missing=own(summary.missing),
        vanished=own(summary.vanished),
        absent=(),
    )


def entry_of_task(entry: Entry, task: str) -> Entry:
    """Its parts of one task on every axis; headlines stay those of all."""

    def own(parts: dict) -> dict:
        return {name: part for name, part in parts.items() if name == task}

    general = entry.generalization
    return replace(
        entry,
        efficiency=replace(entry.efficiency, tasks=own(entry.efficiency.tasks)),
        stability=replace(entry.stability, tasks=own(entry.stability.tasks), reason=None),
        generalization=replace(
            general,
            runs=own(general.runs),
            templates=own(general.templates),
            hacked=tuple(cell for cell in general.hacked if cell.startswith(f"{task} seed-")),
        ),
    )
