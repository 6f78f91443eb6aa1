"""Scores against what they take: the size of the model and the time of a seed, with the Pareto
front of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.words import estimate
from crlbench.site.facets import brief_name, format_count
from crlbench.site.scatter import HEIGHT, WIDTH, Point, draw_scatter
from crlbench.site.standing_rows import Row
from crlbench.site.standings import Panel
from crlbench.stats.pareto import pareto_front

LEAST = 2
"""Points of a chart; one alone says nothing of a trade-off."""
LEAST_RATIO = 1.25
"""Of the highest cost to the lowest; closer ones are of one size, and a front would be noise."""
MOST_NAMED = 60
"""Points of a chart. Of more, those on the front alone have names, which a keyboard visits."""


@dataclass(frozen=True)
class Mark:
    """One entry in a chart."""

    row: Row
    title: str
    """Name, cost and score, in words."""
    looks: str
    """``best`` on the front, ``open`` without a rank, or both."""
    drawn: Markup


@dataclass(frozen=True)
class Tradeoff:
    """One chart."""

    key: str
    """``size`` or ``cost``."""
    title: str
    box: str
    """The view box of the drawing."""
    ground: Markup
    marks: Sequence[Mark]
    """Those with names from left to right, as a keyboard walks through them."""
    labels: Markup
    front: str
    """Who is on the Pareto front, in a sentence."""
    missing: str
    """Who has no name in the chart, and who is not in it; empty where everybody has one."""


@dataclass(frozen=True)
class _Axis:
    key: str
    noun: str
    caption: str
    words: Callable[[float], str]
    less: str
    """Who has no higher score than an entry of the front."""
    unit: float = 1
    """What the value of a cell is divided by."""


def _minutes(minutes: float) -> str:
    return f"{wording.grouped(minutes) if minutes >= 100 else f'{minutes:.2g}'} min"


def _size(parameters: float) -> str:
    return format_count(round(parameters))


AXES = (
    _Axis("size", "size", "Parameters", _size, "No model as small or smaller"),
    _Axis("cost", "cost", "Time of one seed of all tasks", _minutes, "No faster entry", unit=60),
)


def tradeoffs(panel: Panel) -> list[Tradeoff]:
    """The charts of one axis of a board: those that have enough entries, whose costs differ.

    Rows that lack tasks are left out, because their scores are on another scale. The front is that
    of the ranked rows; where nothing ranks, of all that are drawn.
    """
    charts = (_tradeoff(panel, axis) for axis in AXES)
    return [chart for chart in charts if chart is not None]


def _tradeoff(panel: Panel, axis: _Axis) -> Tradeoff | None:
    every = (*panel.rows, *panel.unranked, *panel.incomplete)
    known = [
        (cost, row.score.value, row)
        for row in (*panel.rows, *panel.unranked)
        if (cost := _cost(row, axis)) and row.score.value is not None
    ]
    known.sort(key=lambda one: (one[0], -one[1], one[2].name))
    if len(known) < LEAST or known[-1][0] < LEAST_RATIO * known[0][0]:
        return None
    judged = [one for one in known if one[2].tier is not None] or known
    on_front = pareto_front([cost for cost, _, _ in judged], [value for _, value, _ in judged])
    front = [one for one, best in zip(judged, on_front, strict=True) if best]
    best = {row.name for _, _, row in front}
    points = [
        Point(
            label=brief_name(row.display_name),
            cost=cost,
            value=value,
            interval=row.score.interval,
            best=row.name in best,
            named=len(known) <= MOST_NAMED or row.name in best,
        )
        for cost, value, row in known
    ]
    named = [one for one, point in zip(known, points, strict=True) if point.named]
    drawn = draw_scatter(points, axis.caption, axis.words)
    marks = [
        Mark(
            row=row,
            title=_title(row, axis.words(cost), panel.sign, row.name in best),
            looks=_looks(row, row.name in best),
            drawn=Markup(mark),
        )
        for (cost, _, row), mark in zip(named, drawn.marks, strict=True)
    ]
    names = [f"{brief_name(row.display_name)} ({axis.words(cost)})" for cost, _, row in front]
    return Tradeoff(
        key=axis.key,
        title=f"{panel.sign} against {axis.noun}",
        box=f"0 0 {WIDTH} {HEIGHT}",
        ground=Markup(drawn.ground),
        marks=marks,
        labels=Markup(drawn.labels),
        front=f"{axis.less} has a higher {panel.sign}: {wording.listed(names, 8)}.",
        missing=_missing(len(every) - len(known), len(known) - len(named)),
    )


def _cost(row: Row, axis: _Axis) -> float | None:
    value = row.cells[axis.key].value
    return value / axis.unit if isinstance(value, int | float) else None


def _title(row: Row, cost: str, sign: str, best: bool) -> str:
    score = f"{sign} {estimate(row.score)}"
    parts = [row.display_name, cost, score]
    parts += ["on the Pareto front"] if best else []
    parts += [row.standing] if row.standing else []
    return ", ".join(parts)


def _looks(row: Row, best: bool) -> str:
    return " ".join((["best"] if best else []) + (["open"] if row.tier is None else []))


def _missing(count: int, unnamed: int) -> str:
    sentences = []
    if unnamed:
        others = wording.count(unnamed, "other entry", "other entries")
        sentences.append(f"{others} without a name here: see the table.")
    if count:
        have = "entry is" if count == 1 else "entries are"
        sentences.append(f"{count} {have} not drawn: without all tasks, a score or a cost.")
    return " ".join(sentences)
