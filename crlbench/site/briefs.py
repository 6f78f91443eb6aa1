"""An entry in short: the numbers of it that pages of many entries show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crlbench.pages.page_stability import LABELS
from crlbench.stats.stability import PARTS
from crlbench.verdict.axes import Estimate
from crlbench.verdict.entry import Entry

Brief = dict[str, Any]
"""Of an entry: ``numbers`` by name, ``lam`` over all items, ``scores`` by split, ``tasks`` and
``lab``."""
SPLITS = ("id", "id_greedy")
"""Splits whose scores before and after training are shown."""


def make_brief(entry: Entry) -> Brief:
    """What pages of many entries show of one."""
    part, model = entry.efficiency, entry.generalization.model
    return {
        "numbers": {"E": part.E, "H": part.H, "L": part.L, "forgot": model.forgetting},
        "lam": entry.lam.value,
        "parts": dict(model.parts),
        "scores": {split: _scores(entry, split) for split in SPLITS},
        "tasks": {task: _task(entry, task) for task in entry.task_names},
        "lab": _lab(entry),
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
