"""Figures in table rows: a headline with its intervals on one axis for the whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crlbench.base.wording import number
from crlbench.pages import svg
from crlbench.pages.frame import fitted_scale, number_ticks, x_axis
from crlbench.pages.svg import Scale, color, element, figure
from crlbench.pages.words import measured
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AxisScore

ROW_WIDTH, ROW_HEIGHT, EDGE = 280, 28, 18
TASKS_AT = 24
"""Height at which the dots of the tasks stand in a row."""
CURVE_STEP = 15
"""Width of a curve between two of its points: coordinates are whole, a board has many of them."""


def score_scale(scores: Sequence[AxisScore], anchor: float) -> Scale:
    """One axis for all rows: every interval fits, every task does, and so does the anchor; 0 to 1
    without scores."""
    tasks = [value for score in scores for _, value in _tasks(score)]
    return fitted_scale(scores, [anchor, *tasks], EDGE, ROW_WIDTH - EDGE)


def _tasks(score: AxisScore) -> list[tuple[str, float]]:
    """Name and value of each task on sample efficiency; none where there is a single one, which
    is the score, and none on the other axes: a board has many rows."""
    if score.axis != "efficiency":
        return []
    known = [(n, one.value) for n, one in score.by_task.items() if one.value is not None]
    return known if len(known) > 1 else []


def score_row(label: str, score: AxisScore, x: Scale, strong: bool) -> str:
    """Dot and intervals of one entry: thick over seeds and items, thin with other tasks too; below
    them a small dot for each task.

    A board has thousands of these, and ``site.css`` has their looks.

    Args:
        strong: filled, for the first tier; a ring for the others.
    """
    middle = ROW_HEIGHT // 2
    parts = [element("title", svg.clean(f"{label}: {_words(score)}"))]
    for span, kind in ((score.wider, "wider"), (score.interval, "seeds")):
        if span is not None:
            path = f"M{svg.num(x(span.low))} {middle}H{svg.num(x(span.high))}"
            parts.append(element("path", class_=kind, d=path))
    if score.value is not None:
        kind = "first" if strong else ""
        parts.append(element("circle", cx=x(score.value), cy=middle, r=3.6, class_=kind))
    if tasks := _tasks(score):
        d = "".join(f"M{svg.num(x(value))} {TASKS_AT}h0" for _, value in tasks)
        parts.append(element("path", class_="tasks", d=d))
    box = f"0 0 {ROW_WIDTH} {ROW_HEIGHT}"
    return element("svg", *parts, class_="at", viewBox=box, role="img")


def curve_row(curve: Mapping[str, Sequence[float]]) -> str:
    """A learning curve over the budget: u from 0 below to 1 above, the range of the seeds behind
    their mean. Readers of the screen have the scores at its ends as a column.

    Args:
        curve: ``mean``, ``low`` and ``high`` at equal shares of the budget.
    """
    mean = curve["mean"]
    y = Scale(0, 1, ROW_HEIGHT - 3, 3)

    def at(values: Sequence[float]) -> list[tuple[float, float]]:
        limited = (min(1.1, max(-0.1, value)) for value in values)
        return [(2 + i * CURVE_STEP, round(y(value))) for i, value in enumerate(limited)]

    band = svg.path([*at(curve["high"]), *reversed(at(curve["low"]))], close=True)
    parts = [
        element("path", class_="range", d=band),
        element("path", class_="mean", d=svg.path(at(mean))),
    ]
    box = f"0 0 {4 + (len(mean) - 1) * CURVE_STEP} {ROW_HEIGHT}"
    return element("svg", *parts, class_="curve", viewBox=box, aria_hidden="true")


def score_axis(title: str, x: Scale) -> str:
    """The ticks above the rows of a table."""
    ticks = number_ticks(x.low, x.high, least=1)
    axis = x_axis(x, -5, ticks, grid=[(18, 24)], width=ROW_WIDTH)
    description = f"From {number(x.low)} to {number(x.high)}."
    return figure(title, description, 24, axis, width=ROW_WIDTH)


def score_grid(x: Scale) -> str:
    """The lines of the ticks behind all rows, as a background in CSS."""
    return ",".join(
        f"linear-gradient({color('muted' if tick == 0 else 'grid')} 0 0)"
        f" {100 * x(tick) / ROW_WIDTH:.2f}% 0/1px 100% no-repeat"
        for tick, _ in number_ticks(x.low, x.high)
    )


def _words(score: AxisScore) -> str:
    """What the cells beside the figure do not say: other tasks, and each task."""
    if score.value is None:
        return "No value."
    parts = [measured(score.value, score.interval)]
    parts += [f"with other tasks {_ends(score.wider)}"] if score.wider else []
    parts += [f"{name} {number(value)}" for name, value in _tasks(score)]
    return "; ".join(parts) + "."


def _ends(interval: Interval) -> str:
    return f"{measured(interval.low, interval)} to {measured(interval.high, interval)}"
