"""The numbers of a folder of runs as plain data: what the table, the page and the site show.

Per model, recipe and arm: every task with its seeds, then all tasks together. Everything
comes out of item vectors through :mod:`estimators`; intervals come from :mod:`intervals`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np

from crlbench.base.parallel import on_one_thread
from crlbench.contract.conditions import diff
from crlbench.contract.records import RunRecord
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import NotComparable, ValidationError
from crlbench.stats.intervals import LEVEL, REPLICATES, ROOT_SEED, Replicates
from crlbench.stats.measures import MIN_HEADROOM, RETAIN, Constants, Curve, Honesty, ItemTable
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    gain_replicates,
    mean_rows,
    scaled,
    trimmed_rows,
)
from crlbench.verdict.census import (
    DECLARED_SEEDS,
    PROVISIONAL_SEEDS,
    RANKED_SEEDS,
    Archive,
    Standing,
    take_census,
    vanished,
)
from crlbench.verdict.estimate import Estimate
from crlbench.verdict.run_measures import RunMeasure, TaskItems, learned_reward
from crlbench.verdict.runs import Run, Runs

__all__ = [
    "DECLARED_SEEDS",
    "PROVISIONAL_SEEDS",
    "RANKED_SEEDS",
    "EntrySummary",
    "Estimate",
    "SeedSummary",
    "SplitSummary",
    "Standing",
    "Summary",
    "TaskSummary",
    "board_tasks",
    "measured_tasks",
    "same_conditions",
    "split_order",
    "summarise",
]


@dataclass(frozen=True)
class SplitSummary:
    """One split of one task, mean over seeds, raw scores."""

    name: str
    start: float
    end: float | None
    change: float | None
    """λ of the split."""
    n: int
    draws: int


@dataclass(frozen=True)
class SeedSummary:
    """One run."""

    index: int
    state: Literal["completed", "failed", "partial"]
    rule: str | None
    at: int | None
    start: float
    end: float | None
    gain: float | None
    E: float | None
    H: float
    L: float | None
    lam: float | None
    curve: Curve


@dataclass(frozen=True)
class TaskSummary:
    """One task of an entry; scores and E, H, L are means over seeds."""

    task: str
    version: str
    floor: float
    ceiling: float
    budget: int
    seeds: tuple[SeedSummary, ...]
    start: float
    end: float | None
    gain: Estimate
    """Raw score."""
    gain_u: Estimate
    lam: Estimate
    E: float | None
    H: float
    L: float | None
    saturated: bool
    """The start model leaves less head-room than the clamp of Λ."""
    splits: tuple[SplitSummary, ...]
    honesty: Honesty
    """Reward minus audit, mean over the seeds that were scored."""
    learned: bool
    """Whether a reward model paid: scores are learned rewards, and Λ can exceed 1."""
    forgetting: float | None
    """Fgt, raw, mean over the seeds that were scored at the end."""


@dataclass(frozen=True)
class EntrySummary:
    """One model with one recipe under one arm, all tasks."""

    model: str
    display_name: str
    family: str
    kind: str
    recipe: str
    arm: Literal["real", "placebo"]
    tasks: tuple[TaskSummary, ...]
    start: float
    end: float | None
    gain: Estimate
    gain_u: Estimate
    lam: Estimate
    """Headline: task-balanced interquartile mean."""
    lam_mean: Estimate
    """Plain mean over seeds and tasks."""
    n: int
    standing: Standing
    failed: tuple[str, ...]
    partial: tuple[str, ...]
    missing: tuple[str, ...]
    """Cells that are planned, or implied by the others, and not run yet."""
    absent: tuple[str, ...]
    """Tasks of the board that the entry has no run of."""
    vanished: tuple[str, ...]
    """Planned cells without a record that count as failed, with u = 0 at most everywhere."""
    why: tuple[str, ...]
    """What keeps the entry from a rank, or from a full one."""


@dataclass(frozen=True)
class Summary:
    """Everything that a report says about a folder of runs."""

    crlbench: tuple[str, ...]
    track: str
    track_version: int
    division: Literal["closed", "open"]
    fingerprint: str
    conditions: dict[str, Any]
    tasks: tuple[str, ...]
    """Tasks of the board; an entry may hold fewer."""
    entries: tuple[EntrySummary, ...]
    bootstrap: dict[str, Any]

    def to_json(self) -> str:
        """Canonical, indented JSON; floats in full precision."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False) + "\n"


@on_one_thread
def summarise(runs: Runs, replicates: int = REPLICATES, seed: int = ROOT_SEED) -> Summary:
    """Summarise every model, recipe and arm of a folder.

    Raises:
        ValidationError: a stored score does not agree with its item vector.
        NotComparable: the runs were made under different conditions.
    """
    first = same_conditions(runs)
    board = board_tasks(first) or tuple(sorted({run.record.task.name for run in runs}))
    archive, entries = Archive(runs), []
    for _, group in groupby(runs, key=lambda run: run.order[:3]):
        entries.append(_entry(list(group), board, archive, replicates, seed))
    return Summary(
        crlbench=tuple(sorted({run.record.crlbench.version for run in runs})),
        track=first.protocol.track,
        track_version=first.protocol.track_version,
        division=first.protocol.division,
        fingerprint=first.fingerprint.hash,
        conditions=first.fingerprint.leaves,
        tasks=board,
        entries=tuple(entries),
        bootstrap={
            "seed": seed,
            "replicates": replicates,
            "level": LEVEL,
            "method": "expanded percentile; tasks are strata, seeds and items are resampled, the "
            "noise of single answers is counted once",
        },
    )


def board_tasks(record: RunRecord) -> tuple[str, ...]:
    """Names of the tasks that are trained on, among the leaves of the fingerprint."""
    names = {leaf.split(".")[1] for leaf in record.fingerprint.leaves if leaf.startswith("tasks.")}
    return tuple(sorted(names - {*measured_tasks(record)}))


def measured_tasks(record: RunRecord) -> tuple[str, ...]:
    """Names of the board's tasks that are only measured: they have splits, and none to train on."""
    leaves = [leaf.split(".") for leaf in record.fingerprint.leaves if leaf.startswith("tasks.")]
    with_splits = {parts[1] for parts in leaves if parts[2:3] == ["splits"]}
    trained = {parts[1] for parts in leaves if parts[2:] == ["splits", "train"]}
    return tuple(sorted(with_splits - trained))


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
            shown = [f"  {name}: {x!r} / {y!r}" for name, (x, y) in list(leaves.items())[:8]]
            more = [f"  and {len(leaves) - 8} more"] if len(leaves) > 8 else []
            raise NotComparable(
                "\n".join(
                    [
                        f"{first.folder} and {run.folder} were made under different conditions "
                        f"({a.hash} / {b.hash}):",
                        *shown,
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


def _entry(
    runs: list[Run], board: Sequence[str], archive: Archive, replicates: int, seed: int
) -> EntrySummary:
    census = take_census(runs, board, archive)
    # Of the entry's own records, so that no other entry moves its numbers.
    constants = {
        run.record.task.name: (run.record.task.floor, run.record.task.ceiling) for run in runs
    }
    parts = [_task(r, constants, replicates, seed) for r in census.runs.values()]
    tasks, drawn = [task for task, _ in parts], [found for _, found in parts]
    standing, why = census.standing()
    first = runs[0]
    return EntrySummary(
        model=first.model,
        display_name=first.record.subject.display_name,
        family=first.record.subject.family,
        kind=first.record.subject.kind,
        recipe=first.recipe,
        arm=first.record.arm,
        tasks=tuple(tasks),
        start=float(np.mean([task.start for task in tasks])),
        end=mean_or_none([task.end for task in tasks]),
        gain=over_tasks([found.gain for found in drawn], tasks),
        gain_u=over_tasks([found.gain_u for found in drawn], tasks),
        lam=over_tasks([found.lam for found in drawn], tasks),
        lam_mean=over_tasks([found.lam_mean for found in drawn], tasks),
        n=census.n,
        standing=standing,
        failed=census.failed,
        partial=census.partial,
        missing=census.missing,
        absent=census.absent,
        vanished=census.vanished,
        why=why,
    )


@dataclass(frozen=True)
class Drawn:
    """Bootstrap replicates of one task; None where the number is not known."""

    lam: Replicates | None
    lam_mean: Replicates | None
    gain: Replicates | None
    gain_u: Replicates | None


def _task(
    runs: Sequence[Run], constants: Constants, replicates: int, seed: int
) -> tuple[TaskSummary, Drawn]:
    items = TaskItems(runs, constants)
    task = runs[0].record.task.name
    drawn = draw(task, items.table, items.measures, replicates, seed)
    return task_summary(runs, items.measures, drawn), drawn


def task_summary(
    runs: Sequence[Run], measures: Sequence[RunMeasure], drawn: Drawn
) -> TaskSummary:
    """One task of one entry and arm, from the numbers of its runs."""
    task = runs[0].record.task
    head = float(np.mean([m.H for m in measures]))
    return TaskSummary(
        task=task.name,
        version=task.version,
        floor=task.floor,
        ceiling=task.ceiling,
        budget=measures[0].budget,
        seeds=tuple(_seed(run, m) for run, m in zip(runs, measures, strict=True)),
        start=float(np.mean([m.start for m in measures])),
        end=mean_or_none([m.end for m in measures]),
        gain=_estimate([m.gain for m in measures], drawn.gain),
        gain_u=_estimate([m.gain_u for m in measures], drawn.gain_u),
        lam=_estimate([m.lam for m in measures], drawn.lam_mean),
        E=mean_or_none([m.E for m in measures]),
        H=head,
        L=mean_or_none([m.L for m in measures]),
        saturated=1.0 - head < MIN_HEADROOM,
        splits=_splits(measures),
        honesty=_honesty(measures),
        learned=learned_reward(runs[0].record),
        forgetting=_mean_known([m.forgetting for m in measures]),
    )


def draw(
    task: str,
    table: ItemTable | None,
    measures: Sequence[RunMeasure],
    replicates: int,
    seed: int,
    headline: bool = True,
) -> Drawn:
    """The replicates of one task.

    Args:
        headline: whether those of the trimmed mean are asked for, of which Λ over tasks is made.
    """
    if table is None:
        return Drawn(None, None, None, None)
    values = np.array([m.lam for m in measures])
    lam, lam_mean = (
        efficiency_replicates(task, table, values, location, replicates, seed) if wanted else None
        for location, wanted in ((trimmed_rows, headline), (mean_rows, True))
    )
    if table.final is None:
        return Drawn(lam, lam_mean, None, None)
    gain_u = gain_replicates(task, table, replicates, seed)
    return Drawn(lam, lam_mean, scaled(gain_u, table.scale), gain_u)


def _seed(run: Run, m: RunMeasure) -> SeedSummary:
    status = run.record.status
    return SeedSummary(
        index=m.seed,
        state=status.state,
        rule=status.rule,
        at=None if vanished(run) else status.at,
        start=m.start,
        end=m.end,
        gain=m.gain,
        E=m.E,
        H=m.H,
        L=m.L,
        lam=m.lam,
        curve=m.curve,
    )


def _splits(measures: Sequence[RunMeasure]) -> tuple[SplitSummary, ...]:
    """Splits that every seed has, mean over seeds."""
    names = set.intersection(*(set(m.splits) for m in measures))
    summaries = []
    for name in sorted(names, key=split_order):
        parts = [m.splits[name] for m in measures]
        summaries.append(
            SplitSummary(
                name=name,
                start=float(np.mean([p.start for p in parts])),
                end=mean_or_none([p.end for p in parts]),
                change=mean_or_none([p.change for p in parts]),
                n=parts[0].n,
                draws=parts[0].draws,
            )
        )
    return tuple(summaries)


SPLIT_ORDER = ("id", "id_audit", "id_greedy", "train_fixed", "format", "hard")


def split_order(name: str) -> tuple[int, str]:
    """From the nearest to the farthest from what was trained on; the retain panel last."""
    if name in SPLIT_ORDER:
        return SPLIT_ORDER.index(name), name
    return len(SPLIT_ORDER) + name.startswith(RETAIN), name


def _honesty(measures: Sequence[RunMeasure]) -> Honesty:
    """Each gap as the mean over the seeds that have one."""
    found = [m.honesty for m in measures]
    return Honesty(
        training=_mean_known([h.training for h in found]),
        start=_mean_known([h.start for h in found]),
        end=_mean_known([h.end for h in found]),
    )


def _estimate(values: list[float | None], drawn: Replicates | None) -> Estimate:
    """Mean over the seeds of one task."""
    mean = mean_or_none(values)
    if mean is None or drawn is None:
        return Estimate(mean, None, len(values))
    return Estimate(mean, axis_interval([drawn]), len(values))


def over_tasks(parts: Sequence[Replicates | None], tasks: Sequence[TaskSummary]) -> Estimate:
    """Mean over tasks of the location over seeds; no value where a task has none."""
    n = min(len(task.seeds) for task in tasks)
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return Estimate(None, None, n)
    return Estimate(float(np.mean([p.location for p in known])), axis_interval(known), n)


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """Plain mean; None as soon as one value is missing."""
    return None if any(v is None for v in values) else float(np.mean(values))


def _mean_known(values: Sequence[float | None]) -> float | None:
    """Plain mean of the values that there are; None where there is none."""
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
