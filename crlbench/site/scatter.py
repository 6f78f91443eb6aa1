"""A chart of points: a score with its interval over a cost, which has a logarithmic axis.

A page puts each point into a link of its own, so that a keyboard reaches it; the chart therefore
gives its parts, not a whole figure. A board has hundreds of points, and ``site.css`` has their
looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crlbench.pages import svg
from crlbench.pages.frame import Ticks, fitted_scale, number_ticks, x_axis, y_axis
from crlbench.pages.svg import HALO, Scale, color, element, stroke, text
from crlbench.stats.intervals import Interval

WIDTH, HEIGHT = svg.WIDTH, 252
LEFT, RIGHT, UPPER, BASE = 38, 352, 14, 212
"""Ends of the axes."""
EDGE = 0.06
"""Room at both ends of an axis, as a share of it."""
STEPS = ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9))
"""Ticks of a decade, from few to many."""
LEAST_TICKS, MOST_TICKS = 3, 6
RADIUS = 4.6
LABEL_GAP = 14
FITS = 22
"""Characters of a label."""


@dataclass(frozen=True)
class Point:
    """A score over a cost."""

    label: str
    cost: float
    """Above 0."""
    value: float
    interval: Interval | None
    best: bool
    """Whether it is on the Pareto front: a diamond, where others are circles."""
    named: bool
    """Whether it has a mark of its own; the others are a part of the ground."""


@dataclass(frozen=True)
class Scatter:
    """The parts of a chart, from back to front, as SVG in a box of :data:`WIDTH` and
    :data:`HEIGHT`."""

    ground: str
    """Axes and the line of the front."""
    marks: Sequence[str]
    """A mark for each named point, in their order."""
    labels: str
    """Names of the points on the front."""


def draw_scatter(points: Sequence[Point], caption: str, words: Callable[[float], str]) -> Scatter:
    """
    Args:
        points: at least one.
        caption: name of the x-axis.
        words: a cost as text.
    """
    logs = [math.log10(point.cost) for point in points]
    x = _with_edge(min(logs), max(logs), LEFT, RIGHT)
    tight = fitted_scale(points, [point.value for point in points], BASE, UPPER)
    y = _with_edge(tight.low, tight.high, BASE, UPPER)
    costs = [(math.log10(cost), words(cost)) for cost in log_ticks(10**x.low, 10**x.high)]
    front = sorted((p for p in points if p.best), key=lambda point: (point.cost, point.value))
    ground = element(
        "g",
        x_axis(x, BASE, costs, caption=caption),
        y_axis(y, LEFT, RIGHT, _scores(y)),
        _others([point for point in points if not point.named], x, y),
        _line_of(front, x, y),
    )
    marks = [_mark(point, x, y) for point in points if point.named]
    return Scatter(ground, marks, _labels(front, x, y))


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers inside [low, high] whose logarithms are about evenly apart; the ends where
    there is at most one."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in STEPS:
        values = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in values if low <= value <= high]
        if len(inside) >= LEAST_TICKS:
            every = math.ceil(len(inside) / MOST_TICKS)
            return inside[::every]
    return inside if len(inside) > 1 else [low, high]


def _with_edge(low: float, high: float, start: float, stop: float) -> Scale:
    room = EDGE * ((high - low) or 1.0)
    return Scale(low - room, high + room, start, stop)


def _scores(y: Scale) -> Ticks:
    return number_ticks(y.low, y.high, least=1)


def _line_of(front: Sequence[Point], x: Scale, y: Scale) -> str:
    """Steps: from each point of the front to the right, and up at the next."""
    if not front:
        return ""
    corners, before = [], front[0]
    for point in front:
        at = x(math.log10(point.cost))
        corners += [(at, y(before.value)), (at, y(point.value))]
        before = point
    steps = [*corners[1:], (RIGHT, y(before.value))]
    return svg.polyline(steps, stroke(color("better"), 1.4, "stroke-dasharray:5 3;opacity:.8"))


def _others(points: Sequence[Point], x: Scale, y: Scale) -> str:
    """Points without names: their intervals in one path, their dots in another."""
    if not points:
        return ""
    at = [(svg.num(x(math.log10(point.cost))), point) for point in points]
    spans = (
        f"M{left} {svg.num(y(p.interval.low))}V{svg.num(y(p.interval.high))}"
        for left, p in at
        if p.interval is not None
    )
    dots = (f"M{left} {svg.num(y(point.value))}h0" for left, point in at)
    paths = element("path", d="".join(spans)) + element("path", class_="dots", d="".join(dots))
    return element("g", paths, class_="others")


def _mark(point: Point, x: Scale, y: Scale) -> str:
    """The interval as a path, and the marker."""
    at, height = x(math.log10(point.cost)), y(point.value)
    parts = []
    if point.interval is not None:
        low, high = y(point.interval.low), y(point.interval.high)
        parts.append(element("path", d=f"M{svg.num(at)} {svg.num(low)}V{svg.num(high)}"))
    parts.append(svg.mark("diamond" if point.best else "circle", at, height, RADIUS, ""))
    return "".join(parts)


def _labels(front: Sequence[Point], x: Scale, y: Scale) -> str:
    """Left above their points, where nothing lies; right of those at the left end."""
    if not front:
        return ""
    wanted = [y(point.value) - 9 for point in front]
    places = svg.spread(wanted, LABEL_GAP, UPPER, BASE - 4)
    return element("g", *map(_label, front, places, [x] * len(front)))


def _label(point: Point, place: float, x: Scale) -> str:
    at, label = x(math.log10(point.cost)), svg.fit(point.label, FITS)
    left = at - 5 - 6.4 * len(label) < LEFT
    anchor, shift = ("start", 5) if left else ("end", -5)
    return text(at + shift, place, label, text_anchor=anchor, style=f"font-size:12px;{HALO}")
