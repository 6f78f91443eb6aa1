"""Generalization on the page: splits, transfer matrix, audit gap, forgetting, the parts of Gen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.dots import Change, dumbbells
from crlbench.pages.heat import tint, tone
from crlbench.stats.generalization import AUDIT_RED, PARTS, RunGeneralization
from crlbench.stats.measures import AUDITED, ID, RETAIN, TRANSFER
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_summary import SplitSummary, TaskSummary

MIN_MATRIX = 2
"""Columns from which a transfer matrix is shown."""
FRACTIONS = {3: "⅓", 4: "¼"}
"""Weight of each part of Gen, by their number."""

SPLITS = {
    "id": "ID",
    "id_audit": "ID, audited",
    "id_greedy": "ID, greedy",
    "train_fixed": "TRAIN-fixed",
    "format": "FORMAT",
    "hard": "HARD",
}


def split_label(split: SplitSummary) -> str:
    """Name of a split for people; a transfer split is an arrow to the other task."""
    if split.name.startswith(TRANSFER):
        return f"→ {split.name.removeprefix(TRANSFER)}"
    if split.name.startswith(RETAIN):
        return f"↺ {split.name.removeprefix(RETAIN)}"
    return SPLITS.get(split.name, split.name)


def has_ends(task: TaskSummary) -> bool:
    """Whether some split was scored with the final models."""
    return any(split.end is not None for split in task.splits)


def split_panels(entry: Entry) -> list[dict[str, Any]]:
    """Start and end of every split, one panel per task that was scored at the end."""
    return [_split_panel(task) for task in entry.tasks if has_ends(task)]


def _split_panel(task: TaskSummary) -> dict[str, Any]:
    changes = [Change(split_label(s), s.start, s.end) for s in task.splits if s.name != AUDITED]
    title = f"Scores on the splits of {task.task}, start to end"
    return {
        "task": task.task,
        "figure": Markup(dumbbells(changes, title)),
        "rows": [(split_label(s), s) for s in task.splits],
    }


def transfer_matrix(entry: Entry) -> dict[str, Any] | None:
    """Trained on (row) against measured on (column); None with one task or without ends."""
    trained = [task.task for task in entry.tasks if has_ends(task)]
    elsewhere = {
        split.name.removeprefix(TRANSFER)
        for task in entry.tasks
        for split in task.splits
        if split.name.startswith(TRANSFER)
    }
    columns = trained + sorted(elsewhere - {*trained})
    if not trained or len(columns) < MIN_MATRIX:
        return None
    rows = []
    for task in entry.tasks:
        if task.task in trained:
            splits = {split.name: split for split in task.splits}
            names = {name: f"{TRANSFER}{name}" for name in columns} | {task.task: ID}
            rows.append((task.task, [_transfer_cell(splits.get(names[c])) for c in columns]))
    return {"columns": columns, "rows": rows}


def _transfer_cell(split: SplitSummary | None) -> dict[str, Any] | None:
    """λ of one cell with the scores behind it."""
    if split is None or split.end is None:
        return None
    change = split.end - split.start if split.change is None else split.change
    return {
        "own": split.name == ID,
        "lam": split.change,
        "start": split.start,
        "end": split.end,
        "tone": tone(change),
        "tint": tint(change),
    }


def honesty(entry: Entry) -> list[dict[str, Any]]:
    """Reward minus audit and what was forgotten, one row per audited task."""
    return [_honesty_row(task, entry) for task in entry.tasks if _audited(task)]


def _audited(task: TaskSummary) -> bool:
    gaps = task.honesty
    return any(gap is not None for gap in (gaps.training, gaps.start, gaps.end))


def _honesty_row(task: TaskSummary, entry: Entry) -> dict[str, Any]:
    """A learned reward differs from its audit from the start: its growth is marked."""
    gaps = (task.honesty.training, task.honesty.start, task.honesty.end)
    base = (task.honesty.start or 0.0) if task.learned else 0.0
    return {
        "task": task.task,
        "learned": task.learned,
        "mark": f"grew by over {AUDIT_RED}" if task.learned else f"above {AUDIT_RED}",
        "gaps": [(gap, gap is not None and gap - base > AUDIT_RED) for gap in gaps],
        "forgetting": _forgetting(task, entry),
    }


def _forgetting(task: TaskSummary, entry: Entry) -> list[float | None]:
    """Raw, expected without a change, and corrected; means over the seeds."""
    runs = entry.generalization.runs.get(task.task, ()) if entry.generalization else ()
    losses = [run.forgetting for run in runs if run.forgetting is not None]
    if not losses:
        return [task.forgetting, None, None]
    names = ("raw", "expected", "corrected")
    return [_mean([getattr(loss, name) for loss in losses]) for name in names]


def generalization(entry: Entry) -> dict[str, Any] | None:
    """The parts of Gen by task; None where no run was scored at the end, as of a placebo arm."""
    measures = entry.generalization
    if measures is None:
        return None
    rows = [_part_row(entry, task) for task in measures.runs]
    if not any(value is not None for row in rows for value in row["parts"]):
        return None
    names = sorted({name for templates in measures.templates.values() for name in templates})
    weights = dict(zip(PARTS, entry.evidence.weights, strict=True))
    return {
        "formula": _formula([part for part in PARTS if weights[part] > 0]),
        "rows": rows,
        "total": {
            "parts": [measures.model.parts.get(part) for part in PARTS],
            "forgetting": measures.model.forgetting,
            "value": measures.model.value,
            "memorisation": measures.model.memorisation,
            "worst": measures.worst_template,
            "spread": measures.template_spread,
        },
        "templates": names,
        "by_template": [
            {"task": task, "cells": [measures.templates[task].get(name) for name in names]}
            for task in measures.templates
            if measures.templates[task]
        ],
        "hacked": wording.listed(measures.hacked),
    }


def _formula(parts: Sequence[str]) -> str:
    """How Gen is made of its parts, each of which counts alike."""
    named = [f"λ {'ID' if part == 'id' else part.upper()}" for part in parts]
    beside = "" if "id" in parts else " λ ID is no part of it."
    return f"Gen = {FRACTIONS[len(parts)]} ({' + '.join(named)}) − forgotten.{beside}"


def _part_row(entry: Entry, task: str) -> dict[str, Any]:
    runs = entry.generalization.runs[task]
    templates = entry.generalization.templates.get(task) or {}
    worst = min(templates, key=lambda name: (templates[name], name)) if templates else None
    return {
        "task": task,
        "parts": [_mean_of(runs, lambda run, part=part: getattr(run, part)) for part in PARTS],
        "forgetting": _mean_of(
            runs, lambda run: None if run.forgetting is None else run.forgetting.corrected
        ),
        "value": entry.generalization.model.by_task.get(task),
        "memorisation": _mean_of(runs, lambda run: run.memorisation),
        "worst": None if worst is None else templates[worst],
        "template": worst,
        "spread": max(templates.values()) - min(templates.values()) if templates else None,
    }


def _mean_of(
    runs: Sequence[RunGeneralization], number: Callable[[RunGeneralization], float | None]
) -> float | None:
    """Mean over the seeds; None as soon as one has no value."""
    values = [number(run) for run in runs]
    return None if any(v is None for v in values) else _mean(values)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
