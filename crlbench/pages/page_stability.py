"""Stability on the page: the four shares of each task, what they are made of, every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.bars import share_bars
from crlbench.stats.stability import PARTS, SEEDS_FOR_IQR, RunStability, TaskStability
from crlbench.verdict.entry import Entry

LABELS = {
    "dispersion": "Seeds alike",
    "drawdown": "Gain kept",
    "risk": "Worst to median",
    "failure": "No failure",
}
"""The four shares, as figures and tables call them: the higher, the better."""


def stability(entry: Entry) -> dict[str, Any] | None:
    """The panel of an entry; None where no task has two evaluations."""
    tasks = entry.stability.tasks
    if not tasks:
        return None
    return {
        "value": entry.stability.value,
        "reason": entry.stability.reason,
        "rated": len(entry.stability.rated),
        "of": len(tasks),
        "columns": [LABELS[part] for part in PARTS],
        "rows": [_shares_row(task, found) for task, found in tasks.items()],
        "figures": [_panel(task, found) for task, found in tasks.items()],
        "parts": [_parts_row(task, found) for task, found in tasks.items()],
        "iqr": any(found.n >= SEEDS_FOR_IQR for found in tasks.values()),
        "run_columns": RUN_COLUMNS,
        "runs": [row for task, found in tasks.items() for row in _runs(task, found, entry)],
    }


def _panel(task: str, found: TaskStability) -> dict[str, Any]:
    """The bars of a rated task; what an unrated one lacks."""
    drawn = Markup("")
    if found.shares is not None and found.rating == "rated":
        shares = {LABELS[part]: found.shares[part] for part in PARTS}
        drawn = Markup(share_bars(task, shares, found.value))
    return {"task": task, "figure": drawn, "note": _rating(found)}


def _rating(found: TaskStability) -> str:
    gain = f"late gain {wording.number(found.gain, signed=True)} {words.span(found.gain_interval)}"
    return f"{found.rating}: {gain.strip()}"


def _shares_row(task: str, found: TaskStability) -> dict[str, Any]:
    shares = found.shares or {}
    return {
        "task": task,
        "shares": [shares.get(part) for part in PARTS],
        "value": found.value,
        "rating": found.rating,
        "gain": found.gain,
        "interval": found.gain_interval,
    }


def _parts_row(task: str, found: TaskStability) -> dict[str, Any]:
    raw, expected = (
        float(np.mean([getattr(run, name) for run in found.runs]))
        for name in ("drawdown_raw", "drawdown_expected")
    )
    return {
        "task": task,
        "gmd": found.gmd,
        "iqr": found.iqr,
        "cvar": found.cvar,
        "cvar_gain": found.cvar_gain,
        "median_gain": found.median_gain,
        "drawdown": [raw, expected, found.drawdown],
        "dispersion": found.dispersion,
        "short_term": found.short_term,
        "failures": f"{found.failures} of {found.n}",
        "rate": found.failure_rate,
        "interval": found.failure_interval,
    }


def _runs(task: str, found: TaskStability, entry: Entry) -> list[dict[str, Any]]:
    curves = entry.efficiency.tasks[task].curves if task in entry.efficiency.tasks else ()
    indices = [curve.seed for curve in curves] or list(range(len(found.runs)))
    pairs = zip(indices, found.runs, strict=False)
    return [{"task": task, "seed": index, "cells": _cells(run)} for index, run in pairs]


def _cells(run: RunStability) -> list[str]:
    values = (
        run.head,
        run.final,
        run.peak,
        run.drawdown_raw,
        run.drawdown_expected,
        run.drawdown,
        run.dispersion,
        run.short_term,
    )
    return [*(wording.number(value) for value in values), "failed" if run.failed else ""]


RUN_COLUMNS = (
    "H",
    "F",
    "G",
    "Drawdown, raw",
    "Expected",
    "Corrected",
    "Within",
    "Worst steps",
    "Failed",
)
"""Headings of :func:`_cells`."""
