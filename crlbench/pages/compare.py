"""The page of a comparison: one HTML file that needs nothing else.

Equal comparisons give equal bytes. Every text of a record is escaped by the template; figures are
the only markup that is passed through, and they escape their own texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base.wording import NONE, number
from crlbench.pages import compare_words as words
from crlbench.pages.bars import Bar, entry_bars
from crlbench.pages.curves import Series, common_scales, entry_curves
from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.pages.report import environment
from crlbench.pages.svg import series_color
from crlbench.pages.words import measured, more_seeds, span
from crlbench.stats.thresholds import TAUS
from crlbench.verdict.axes import AXIS_WORDS
from crlbench.verdict.compare import Comparison, Side
from crlbench.verdict.compare_axis import BY_WORDS
from crlbench.verdict.compare_unequal import value
from crlbench.verdict.pairs import Effect, Pair, PairAxis

TEMPLATE = "compare.html.j2"
CELL = "compare_cell.html.j2"


def render_comparison(comparison: Comparison) -> str:
    """The whole page as text."""
    return environment().get_template(TEMPLATE).render(page=page_data(comparison))


def render_cell(comparison: Comparison) -> str:
    """The pairs alone, as a piece of a page that styles itself: the output of a notebook's cell."""
    return environment().get_template(CELL).render(page=page_data(comparison))


def page_data(comparison: Comparison) -> dict[str, Any]:
    """Everything that the template shows, figures included."""
    efficiency = "efficiency" in comparison.axes
    return {
        "comparison": comparison,
        "title": " and ".join(side.name for side in comparison.sides)
        if len(comparison.sides) == 2
        else f"{len(comparison.sides)} entries",
        "lead": words.lead(comparison),
        "boards": words.boards(comparison),
        "unequal": [
            {
                "first": one.first,
                "second": one.second,
                "leaves": [(x.name, value(x.first), value(x.second)) for x in one.leaves],
            }
            for one in comparison.unequal
        ],
        "sides": [_side(comparison, side) for side in comparison.sides],
        "axes": [(comparison.signs[axis], AXIS_WORDS[axis]) for axis in comparison.axes],
        "placebo": any(side.placebo is not None for side in comparison.sides),
        "mode": any(side.mode is not None for side in comparison.sides),
        "wrong": any(side.wrong is not None for side in comparison.sides),
        "rules": comparison.rules,
        "tiles": _tiles(comparison),
        "matrix": _matrix(comparison) if len(comparison.sides) > 2 else None,
        "pairs": [_pair(comparison, n, pair) for n, pair in enumerate(comparison.pairs, start=1)],
        "by": BY_WORDS[comparison.by],
        "learning": _learning(comparison) if efficiency else [],
        "taus": TAUS,
        "parts": _parts(comparison),
        "notes": words.notes(comparison),
        "legend": words.legend(comparison),
        "margin": number(comparison.margin, 2),
        "versions": ", ".join(comparison.crlbench),
    }


def _side(comparison: Comparison, side: Side) -> dict[str, Any]:
    return {
        "side": side,
        "index": comparison.sides.index(side),
        "badge": words.standing_words(side),
        "heads": [
            {"sign": score.sign, "score": score, "wider": span(score.wider)}
            for score in side.axes.values()
        ],
        "notes": words.side_notes(side)[1:],
    }


def _tiles(comparison: Comparison) -> list[dict[str, Any]]:
    """The verdicts of a single pair at a glance."""
    if len(comparison.pairs) > 1:
        return []
    (pair,) = comparison.pairs
    return [
        {
            "axis": words.axis_name(axis, comparison.signs[axis]),
            "call": axis_pair.effect.call if axis_pair.effect else None,
            "sign": _sign(axis_pair.effect),
            "value": _value(axis_pair.effect),
            "span": span(axis_pair.effect.interval) if axis_pair.effect else "no number",
            "more": more_seeds(axis_pair.effect),
        }
        for axis, axis_pair in pair.axes.items()
    ]


def _value(effect: Effect | None) -> str:
    return NONE if effect is None else measured(effect.value, effect.interval, signed=True)


def _sign(effect: Effect | None) -> str:
    return words.SIGNS[effect.call] if effect is not None and effect.call is not None else ""


def _matrix(comparison: Comparison) -> list[dict[str, Any]]:
    """Per axis: row against column, for every pair in the order of the entries."""
    by_keys = {(pair.second, pair.first): (n, pair) for n, pair in enumerate(comparison.pairs, 1)}
    tables = []
    for axis in comparison.axes:
        rows = []
        for row in comparison.sides[1:]:
            cells = []
            for column in comparison.sides[:-1]:
                n, pair = by_keys.get((row.key, column.key), (0, None))
                cells.append(None if pair is None else _cell(n, pair.axes[axis]))
            rows.append({"side": row, "cells": cells})
        tables.append({"name": words.axis_name(axis, comparison.signs[axis]), "rows": rows})
    return tables


def _cell(n: int, axis_pair: PairAxis) -> dict[str, Any]:
    return {
        "id": f"pair-{n}",
        "sign": _sign(axis_pair.effect),
        "call": axis_pair.effect.call if axis_pair.effect else None,
        "value": _value(axis_pair.effect),
    }


def _pair(comparison: Comparison, n: int, pair: Pair) -> dict[str, Any]:
    effects = [e for one in pair.axes.values() for e in (one.effect, *one.by_task.values())]
    margin = None if comparison.watermark else comparison.margin
    scale = effect_scale(effects, margin)
    groups = [
        _group(words.axis_name(axis, comparison.signs[axis]), axis_pair, scale, margin)
        for axis, axis_pair in pair.axes.items()
    ]
    return {
        "id": f"pair-{n}",
        "pair": pair,
        "title": words.pair_title(comparison, pair),
        "groups": groups,
        "axis": Markup(effect_axis(margin, scale)),
        "notes": words.pair_notes(comparison, pair),
        "call": [
            {"sign": _sign(one.effect), "call": one.effect.call, "axis": AXIS_WORDS[axis]}
            for axis, one in pair.axes.items()
            if one.effect is not None and one.effect.call is not None
        ],
    }


def _group(name: str, axis_pair: PairAxis, scale: Any, margin: float | None) -> dict[str, Any]:
    """The rows of one axis: its headline, then the tasks."""
    return {
        "head": _row(name, axis_pair.effect, scale, margin),
        "rows": [_row(task, effect, scale, margin) for task, effect in axis_pair.by_task.items()],
    }


def _row(label: str, effect: Effect | None, scale: Any, margin: float | None) -> dict[str, Any]:
    figure = ""
    if effect is not None:
        title, call = f"Difference, {label}", effect.call
        figure = Markup(effect_row(title, effect, call, margin, scale, effect.wider))
    return {
        "label": label,
        "effect": effect,
        "figure": figure,
        "sign": _sign(effect),
        "more": more_seeds(effect),
    }


def _learning(comparison: Comparison) -> list[dict[str, Any]]:
    """Per task: E = H + L, curves and times, on scales that all tasks share."""
    views = [view for side in comparison.sides for view in side.tasks.values()]
    widest = 1.02 * max([0.2, *(max(v.E or 0.0, v.H) for v in views)])
    spent, span = common_scales(views)
    panels = []
    for task in comparison.tasks:
        series = [
            Series(side.key, side.name, side.tasks[task], index)
            for index, side in enumerate(comparison.sides)
            if task in side.tasks
        ]
        label = BY_WORDS[comparison.by]
        panels.append(
            {
                "task": task,
                "bars": Markup(area_bars(task, series, widest)),
                "curves": Markup(entry_curves(task, series, spent, span, label)),
                "rows": [
                    {
                        "series": one,
                        "arrivals": [
                            (
                                f"{arrival.arrived}/{arrival.n}",
                                words.amount(arrival.restricted_mean),
                            )
                            for arrival in one.view.arrivals
                        ],
                        "total": words.amount(one.view.total),
                    }
                    for one in series
                ],
            }
        )
    return panels


def area_bars(task: str, series: Sequence[Series], widest: float) -> str:
    """E = H + L of the entries that have an area."""
    rows = [
        (one.key, Bar(one.name, one.view.H, one.view.L), series_color(one.index))
        for one in series
        if one.view.L is not None
    ]
    return entry_bars(task, rows, widest)


def _parts(comparison: Comparison) -> list[dict[str, Any]]:
    tables, labels = [], words.parts_words(comparison)
    for axis in comparison.axes:
        by_side = [side.parts.get(axis, {}) for side in comparison.sides]
        names = [name for name in labels if any(name in parts for parts in by_side)]
        rows = [
            (
                labels[name],
                [number(parts.get(name), 0 if name == "rated_tasks" else 2) for parts in by_side],
            )
            for name in names
        ]
        if rows:
            tables.append({"axis": words.axis_name(axis, comparison.signs[axis]), "rows": rows})
    return tables
