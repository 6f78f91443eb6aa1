"""One task of an entry in numbers: every seed by itself, and their means with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crlbench.stats.intervals import Replicates
from crlbench.stats.measures import MIN_HEADROOM, RETAIN, Curve, Honesty
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    gain_replicates,
    mean_rows,
    rescale,
)
from crlbench.verdict.axes import Estimate, Evidence
from crlbench.verdict.cells import vanished
from crlbench.verdict.run_measures import RunMeasure, learned_reward
from crlbench.verdict.runs import Run


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
    """The start model leaves less headroom than the clamp of Λ."""
    splits: tuple[SplitSummary, ...]
    honesty: Honesty
    """Reward minus audit, mean over the seeds that were scored."""
    learned: bool
    """Whether a reward model paid: scores are learned rewards, and Λ can exceed 1."""
    forgetting: float | None
    """Fgt, raw, mean over the seeds that were scored at the end."""


@dataclass(frozen=True)
class TaskReplicates:
    """Bootstrap replicates of plain means over the seeds of a task; None without a number."""

    lam: Replicates | None
    gain: Replicates | None
    gain_u: Replicates | None


def task_replicates(evidence: Evidence, task: str) -> TaskReplicates:
    """The replicates of one task of an entry."""
    runs, draws = evidence.tasks[task], (evidence.count, evidence.seed)
    if runs.table is None:
        return TaskReplicates(None, None, None)
    by_weight = evidence.lam_by_weight(task)
    lam = evidence.ruled(
        efficiency_replicates(task, runs.table, runs.lam, mean_rows, *draws, by_weight)
    )
    if runs.table.final is None:
        return TaskReplicates(lam, None, None)
    gain_u = evidence.ruled(gain_replicates(task, runs.table, *draws))
    return TaskReplicates(lam, rescale(gain_u, runs.table.scale), gain_u)


def task_summary(
    runs: Sequence[Run], measures: Sequence[RunMeasure], replicates: TaskReplicates
) -> TaskSummary:
    """One task of one entry, from the numbers of its runs."""
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
        gain=_estimate([m.gain for m in measures], replicates.gain),
        gain_u=_estimate([m.gain_u for m in measures], replicates.gain_u),
        lam=_estimate([m.lam for m in measures], replicates.lam),
        E=mean_or_none([m.E for m in measures]),
        H=head,
        L=mean_or_none([m.L for m in measures]),
        saturated=1.0 - head < MIN_HEADROOM,
        splits=_splits(measures),
        honesty=_honesty(measures),
        learned=learned_reward(runs[0].record),
        forgetting=_mean_known([m.forgetting for m in measures]),
    )


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
    gaps = [m.honesty for m in measures]
    return Honesty(
        training=_mean_known([h.training for h in gaps]),
        start=_mean_known([h.start for h in gaps]),
        end=_mean_known([h.end for h in gaps]),
    )


def _estimate(values: list[float | None], replicates: Replicates | None) -> Estimate:
    """Mean over the seeds of one task."""
    mean = mean_or_none(values)
    if mean is None or replicates is None:
        return Estimate(mean, None, len(values))
    return Estimate(mean, axis_interval([replicates]), len(values))


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """Plain mean; None as soon as one value is missing."""
    return None if any(v is None for v in values) else float(np.mean(values))


def _mean_known(values: Sequence[float | None]) -> float | None:
    """Plain mean of the values that there are; None where there is none."""
    numbers = [v for v in values if v is not None]
    return float(np.mean(numbers)) if numbers else None
