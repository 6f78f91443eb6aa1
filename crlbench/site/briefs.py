"""An entry in short: the numbers of it that pages of many entries show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crlbench.pages.page_costs import measure_cost
from crlbench.pages.page_stability import LABELS
from crlbench.stats.stability import PARTS
from crlbench.verdict.axes import Estimate
from crlbench.verdict.entry import Entry
from crlbench.verdict.runs import Run

Brief = dict[str, Any]
"""Of an entry: ``numbers`` by name, ``lam`` over all items, ``scores`` by split, ``tasks``,
``lab``, ``curve`` and ``cost``."""
FIELDS = {
    "numbers": dict[str, float | None],
    "lam": float | None,
    "parts": dict[str, float | None],
    "scores": dict[str, list[tuple[float, float]] | None],
    "tasks": dict[str, dict[str, float | str | Estimate | None]],
    "lab": dict[str, Any] | None,
    "curve": dict[str, list[float]] | None,
    "cost": dict[str, float | None],
}
"""What each of them is."""
SPLITS = ("id", "id_greedy")
"""Splits whose scores before and after training are shown."""
POINTS = 7
"""Points of a curve in a row of a board, at equal shares of the budget."""


def make_brief(entry: Entry, runs: Iterable[Run]) -> Brief:
    """What pages of many entries show of one.

    Args:
        runs: its stored runs of all arms, with their records.
    """
    part, model = entry.efficiency, entry.generalization.model
    return {
        "numbers": {"E": part.E, "H": part.H, "L": part.L, "forgot": model.forgetting},
        "lam": entry.lam.value,
        "parts": dict(model.parts),
        "scores": {split: _scores(entry, split) for split in SPLITS},
        "tasks": {task: _task(entry, task) for task in entry.task_names},
        "lab": _lab(entry),
        "curve": _curve(entry),
        "cost": _cost(runs),
    }


def merge_briefs(briefs: Sequence[Brief]) -> Brief:
    """What is said of the start and the scores of a row of several checkpoints: scores of all of
    them, and the mean of Λ; a single brief as it is."""
    if len(briefs) == 1:
        return briefs[0]
    lams = [brief["lam"] for brief in briefs]
    by_split = {split: [brief["scores"][split] for brief in briefs] for split in SPLITS}
    return {
        "lam": None if None in lams else float(np.mean(lams)),
        "scores": {
            split: None if None in parts else [pair for part in parts for pair in part]
            for split, parts in by_split.items()
        },
    }


def _scores(entry: Entry, split: str) -> list[tuple[float, float]] | None:
    """Mean score of each task before and after training; None where one was not scored."""
    parts = [part for task in entry.tasks for part in task.splits if part.name == split]
    if len(parts) < len(entry.tasks) or any(part.end is None for part in parts):
        return None
    return [(part.start, part.end) for part in parts]


def _curve(entry: Entry) -> dict[str, list[float]] | None:
    """Mean u over the tasks at :data:`POINTS` shares of the budget: ``mean`` over the seeds that
    every task has, their ``low`` and their ``high``; None without such a seed."""
    shares, by_seed = np.linspace(0.0, 1.0, POINTS), dict[int, list[np.ndarray]]()
    for task in entry.tasks:
        for seed in task.seeds:
            u = (np.array(seed.curve.score) - task.floor) / (task.ceiling - task.floor)
            points = np.interp(shares, np.array(seed.curve.x) / task.budget, u)
            by_seed.setdefault(seed.index, []).append(points)
    whole = [np.mean(parts, 0) for parts in by_seed.values() if len(parts) == len(entry.tasks)]
    if not whole:
        return None
    lines = {"mean": np.mean(whole, 0), "low": np.min(whole, 0), "high": np.max(whole, 0)}
    return {name: values.tolist() for name, values in lines.items()}


def _cost(runs: Iterable[Run]) -> dict[str, float | None]:
    """What one seed of all tasks cost, mean over the completed runs of the real arm: ``seconds``
    and ``flops``; and the largest ``memory`` of a run, in bytes. None where a run does not say."""
    by_task: dict[str, list[dict[str, float | None]]] = {}
    for run in runs:
        if run.arm == "real" and run.status.state == "completed":
            by_task.setdefault(run.task, []).append(measure_cost(run.record))
    peaks = [cost["memory"] for costs in by_task.values() for cost in costs]
    return {
        "seconds": _sum_of_means(by_task, "wall"),
        "flops": _sum_of_means(by_task, "flops_estimate"),
        "memory": max((peak for peak in peaks if peak is not None), default=None),
    }


def _sum_of_means(by_task: dict[str, list[dict[str, float | None]]], name: str) -> float | None:
    """The sum over the tasks of the mean over their runs."""
    values = [[cost[name] for cost in costs] for costs in by_task.values()]
    known = [[value for value in of_task if value is not None] for of_task in values]
    return sum(map(_mean_of, known)) if known and all(known) else None


def _mean_of(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _task(entry: Entry, task: str) -> dict[str, float | str | Estimate | None]:
    """Numbers of one task."""
    summary = next(one for one in entry.tasks if one.task == task)
    stability = entry.stability.tasks.get(task)
    return {
        "lam": entry.efficiency.tasks[task].lam,
        "start": summary.start,
        "end": summary.end,
        "gain": summary.gain,
        "stab": None if stability is None else stability.value,
        "rating": "" if stability is None else stability.rating,
        "seeds": len(summary.seeds),
        "failed": sum(seed.state == "failed" for seed in summary.seeds),
    }


def _lab(entry: Entry) -> dict[str, Any] | None:
    """What stability is made of; None where nothing can be said of it."""
    tasks = entry.stability.tasks
    if not tasks:
        return None
    rated_shares = [tasks[name].shares for name in entry.stability.rated]
    shares = [share for share in rated_shares if share is not None]
    drawdowns = [measures.drawdown for measures in tasks.values() if measures.drawdown is not None]
    return {
        "shares": {
            LABELS[part]: _mean([share[part] for share in shares if part in share])
            for part in PARTS
        },
        "drawdown": float(np.mean(drawdowns)) if drawdowns else None,
        "runs": sum(len(measures.runs) for measures in tasks.values()),
        "ends": {
            task: [(run.final, run.failed) for run in measures.runs]
            for task, measures in tasks.items()
        },
    }


def _mean(values: Sequence[float]) -> float | None:
    """The mean; None without values, as where protocol CRL-2 has no such share."""
    return float(np.mean(values)) if values else None
