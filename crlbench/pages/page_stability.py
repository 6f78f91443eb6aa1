"""Stability on the page: the four shares of each task, what they are made of, every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.bars import share_bars
from crlbench.stats.stability import (
    PARTS,
    SEEDS_FOR_IQR,
    RunStability,
    TaskStability,
)
from crlbench.stats.stability_shares import TaskStress
from crlbench.stats.stress import STRESS_PARTS
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
    parts = _parts(tasks.values())
    return {
        "value": entry.stability.value,
        "reason": entry.stability.reason,
        "rated": len(entry.stability.rated),
        "of": len(tasks),
        "stressed": [_stress_row(task, measures.stress) for task, measures in tasks.items()
                     if measures.stress is not None],
        "columns": [LABELS[part] for part in parts],
        "rows": [_shares_row(task, measures, parts) for task, measures in tasks.items()],
        "figures": [_panel(task, measures, parts) for task, measures in tasks.items()],
        "parts": [_parts_row(task, measures) for task, measures in tasks.items()],
        "iqr": any(measures.n >= SEEDS_FOR_IQR for measures in tasks.values()),
        "run_columns": RUN_COLUMNS,
        "runs": [row for task, measures in tasks.items() for row in _runs(task, measures, entry)],
    }


def _parts(tasks: Iterable[TaskStability]) -> tuple[str, ...]:
    """The shares of which Stab is made: without the worst seeds where a stress arm enters."""
    return STRESS_PARTS if any(one.stress is not None for one in tasks) else PARTS


def _stress_row(task: str, both: TaskStress) -> dict[str, Any]:
    """The shares of both arms, and what the share of failures rests on."""
    none = f"no failure in {both.runs} runs"
    some = f"{both.failures} of {both.runs} runs failed"
    return {
        "task": task,
        "calm": [both.calm[part] for part in STRESS_PARTS],
        "stress": [both.stress[part] for part in STRESS_PARTS],
        "said": f"{some if both.failures else none}; the rate may be as high as "
        f"{wording.percent(both.bound, 0)}",
    }


def _panel(task: str, measures: TaskStability, parts: Sequence[str]) -> dict[str, Any]:
    """The bars of a rated task; what an unrated one lacks."""
    figure = Markup("")
    if measures.shares is not None and measures.rating == "rated":
        shares = {LABELS[part]: measures.shares[part] for part in parts}
        figure = Markup(share_bars(task, shares, measures.value))
    return {"task": task, "figure": figure, "note": _rating(measures)}


def _rating(measures: TaskStability) -> str:
    interval = measures.gain_interval
    gain = words.measured(measures.gain, interval, signed=True)
    return f"{measures.rating}: late gain {gain} {words.span(interval)}".strip()


def _shares_row(task: str, measures: TaskStability, parts: Sequence[str]) -> dict[str, Any]:
    shares = measures.shares or {}
    return {
        "task": task,
        "shares": [shares.get(part) for part in parts],
        "value": measures.value,
        "rating": measures.rating,
        "gain": measures.gain,
        "interval": measures.gain_interval,
    }


def _parts_row(task: str, measures: TaskStability) -> dict[str, Any]:
    raw, expected = (
        float(np.mean([getattr(run, name) for run in measures.runs]))
        for name in ("drawdown_raw", "drawdown_expected")
    )
    return {
        "task": task,
        "gmd": measures.gmd,
        "iqr": measures.iqr,
        "cvar": measures.cvar,
        "cvar_gain": measures.cvar_gain,
        "median_gain": measures.median_gain,
        "drawdown": [raw, expected, measures.drawdown],
        "dispersion": measures.dispersion,
        "short_term": measures.short_term,
        "failures": f"{measures.failures} of {measures.n}",
        "rate": measures.failure_rate,
        "interval": measures.failure_interval,
    }


def _runs(task: str, measures: TaskStability, entry: Entry) -> list[dict[str, Any]]:
    curves = entry.efficiency.tasks[task].curves if task in entry.efficiency.tasks else ()
    indices = [curve.seed for curve in curves] or list(range(len(measures.runs)))
    pairs = zip(indices, measures.runs, strict=False)
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
