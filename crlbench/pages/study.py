"""The page of a study: one HTML file that needs nothing else.

Equal studies give equal bytes. One matrix at the top shows what was compared; every
comparison is below it with its effects, its dynamics and its failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.contract.study import Comparison
from crlbench.pages import words
from crlbench.pages.curves import overlay
from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.pages.report import environment
from crlbench.verdict.ablation import Ablation, ArmSummary, ComparisonSummary
from crlbench.verdict.study_runs import Cells, StudyRuns, read_study
from crlbench.verdict.traces import HELD_OUT, Trace, trace

TEMPLATE = "ablation.html.j2"
ARMS_PER_FIGURE = 4
"""More arms than this share no figure: lines could not be told apart."""

KL, REFERENCE_KL = "approx_kl", "reference_kl"
PANELS = {
    HELD_OUT: ("Held-out score", "share answered correctly"),
    "reward": ("Reward", "mean over completions"),
    "entropy": ("Entropy", "nats per token"),
    REFERENCE_KL: ("KL to the reference", "nats per token"),
    KL: ("KL of one update", "nats per token, sampling to present policy"),
    "clip_low": ("Clipped at the lower bound", "share of tokens"),
    "clip_high": ("Clipped at the upper bound", "share of tokens"),
    "length": ("Length", "tokens per completion"),
    "truncated": ("Truncated", "share of completions"),
}
"""Dynamics side by side: name, title, unit."""


def render_ablation(folder: str | Path, ablation: Ablation) -> str:
    """The whole page as text.

    Args:
        folder: the folder of ``study.json``, for the dynamics of the runs.
        ablation: ``summarise_study(folder)``.
    """
    root = Path(folder)
    root = root.parent if root.is_file() else root
    study, study_runs = read_study(root), StudyRuns(root)
    panels = [
        _panel(number, planned, summary, study_runs, ablation)
        for number, (planned, summary) in enumerate(
            zip(study.comparisons, ablation.comparisons, strict=True), start=1
        )
    ]
    arms = sum(ablation.verdicts.values())
    plain = [panel for panel in panels if not panel["summary"].grid]
    page = {
        "ablation": ablation,
        "margin": wording.number(ablation.margin, 2),
        "lead": _lead(ablation),
        "counts": [
            {"verdict": name, "sign": words.VERDICT_SIGNS[name], "count": how_many}
            for name, how_many in ablation.verdicts.items()
        ],
        "arms": arms,
        "chance": f"{words.chance_of_a_false_verdict(arms):.0%}" if arms > 1 else "",
        "models": sorted({c.model for c in ablation.comparisons}),
        "matrix": _matrix(plain) if len(plain) > 1 else None,
        "sensitivity": [p for p in panels if p["summary"].sensitivity is not None],
        "groups": [
            {"name": name, "panels": list(members)}
            for name, members in groupby(panels, key=lambda p: p["summary"].name)
        ],
        "single": len(panels) == 1,
        "versions": ", ".join(ablation.crlbench),
    }
    return environment().get_template(TEMPLATE).render(page=page)


def _lead(ablation: Ablation) -> str:
    """The result in one breath."""
    total = sum(ablation.verdicts.values())
    if total == 0:
        return "Nothing can be compared yet: no seed has finished in a base and in an arm."
    counts = [f"{n} {name}" for name, n in ablation.verdicts.items() if n]
    words_of_counts = (
        counts[0] if len(counts) == 1 else f"{', '.join(counts[:-1])} and {counts[-1]}"
    )
    waiting = f"; {ablation.waiting} more have no number yet" if ablation.waiting else ""
    return f"Of {wording.count(total, 'change')} against a base: {words_of_counts}{waiting}."


def _panel(
    number: int,
    planned: Comparison,
    summary: ComparisonSummary,
    study_runs: StudyRuns,
    ablation: Ablation,
) -> dict[str, Any]:
    effects = [arm.effect for arm in summary.arms]
    scale = effect_scale(effects, ablation.margin)
    rows = [_row(arm, key(i), ablation, scale) for i, arm in enumerate(summary.arms)]
    where = ", ".join(filter(None, (summary.model, summary.setting)))
    return {
        "id": f"comparison-{number}",
        "summary": summary,
        "where": where,
        "seeds": _seeds(summary),
        "base": summary.base,
        "rows": rows,
        "axis": Markup(effect_axis(ablation.margin, scale)),
        "dynamics": _dynamics(planned, summary, study_runs),
        "tasks": list(summary.seeds),
        "effects": _task_rows(rows),
        "failed": [
            f"{arm.label}: {failure}"
            for arm in (summary.base, *summary.arms)
            for failure in arm.failed
        ],
        "same_conditions": {a.fingerprint for a in summary.arms} <= {summary.base.fingerprint},
    }


def key(index: int) -> str:
    """The sign of an arm in figures: A to Z, then A1, B1, ..."""
    round_, letter = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(round_) if round_ else "")


def _row(arm: ArmSummary, sign: str, ablation: Ablation, scale: Any) -> dict[str, Any]:
    effect = arm.effect
    figure = ""
    if effect is not None:
        title, call = f"Effect of {arm.label}", effect.verdict
        figure = Markup(effect_row(title, effect, call, ablation.margin, scale))
    return {
        "key": sign,
        "arm": arm,
        "figure": figure,
        "effect": effect,
        "sign": words.VERDICT_SIGNS[effect.verdict] if effect else "",
        "more": words.more_seeds(effect),
    }


def _seeds(summary: ComparisonSummary) -> str:
    counts = sorted({len(by_seed) for by_seed in summary.seeds.values()})
    if counts == [summary.planned]:
        return wording.count(summary.planned, "seed")
    text = "–".join(map(str, counts[:1] + counts[1:][-1:])) or "0"
    return f"{text} of {summary.planned} seeds"


def _task_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Effects by task, where there is more than one."""
    rows_of_tasks = [
        {"key": row["key"], "label": row["arm"].label, "effect": effect}
        for row in rows
        for effect in row["arm"].tasks
        if len(row["arm"].tasks) > 1
    ]
    return rows_of_tasks


def _dynamics(
    planned: Comparison, summary: ComparisonSummary, study_runs: StudyRuns
) -> list[dict[str, Any]]:
    """Sets of small multiples: base and a few arms laid over each other."""
    common = {(task, index) for task, indices in summary.seeds.items() for index in indices}
    arms = [planned.base, *planned.arms]
    cells = [_only(study_runs.of(arm, planned), common) for arm in arms]
    keys = ["base", *(key(i) for i in range(len(planned.arms)))]
    sets = []
    for first in range(1, len(arms), ARMS_PER_FIGURE):
        places = [0, *(i for i in range(first, min(first + ARMS_PER_FIGURE, len(arms))))]
        with_runs = [i for i in places if cells[i]]
        if len(with_runs) > 1:
            members = [(keys[i], arms[i].label, cells[i]) for i in with_runs]
            legend = [(name, label) for name, label, _ in members]
            sets.append({"legend": legend, **_figures(members, summary)})
    return sets


def _only(cells: Cells, common: set[tuple[str, int]]) -> Cells:
    return {place: run for place, run in cells.items() if place in common}


def _figures(
    members: Sequence[tuple[str, str, Cells]], summary: ComparisonSummary
) -> dict[str, Any]:
    panels, constant = [], []
    by_name = {name: [trace(k, label, c, name) for k, label, c in members] for name in PANELS}
    del by_name[KL if _moves(by_name[REFERENCE_KL]) else REFERENCE_KL]
    x_max = max((p[0] for traces in by_name.values() for t in traces for p in t.points), default=1)
    for name, traces in by_name.items():
        title, unit = PANELS[name]
        if _moves(traces):
            label = f"{title}: {summary.name}, {summary.model} {summary.setting}".rstrip()
            figure = Markup(overlay(label, traces, x_max))
            panels.append({"title": title, "unit": unit, "figure": figure})
        elif any(t.points for t in traces):
            constant.append(title)
    return {"panels": panels, "constant": ", ".join(constant)}


def _moves(traces: Sequence[Trace]) -> bool:
    """Whether a figure has more than one value."""
    return len({v for one in traces for p in one.points for v in p[1:]}) > 1


def _matrix(panels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Technique by model and setting: which verdict where."""
    columns = list(dict.fromkeys((p["summary"].model, p["summary"].setting) for p in panels))
    groups: dict[str, dict[str, dict[tuple[str, str], dict[str, Any]]]] = {}
    for panel in panels:
        summary = panel["summary"]
        labels = groups.setdefault(summary.name, {})
        for row in panel["rows"]:
            cell = row | {"id": panel["id"]}
            labels.setdefault(row["arm"].label, {})[summary.model, summary.setting] = cell
    return {
        "columns": [{"model": model, "setting": setting} for model, setting in columns],
        "groups": [
            {
                "name": name,
                "rows": [
                    {"label": label, "cells": [row_cells.get(column) for column in columns]}
                    for label, row_cells in labels.items()
                ],
            }
            for name, labels in groups.items()
        ],
    }
