"""Figures in table rows: a headline with its intervals on one axis for the whole table."""

from __future__ import annotations

from collections.abc import Sequence

from crlbench.base.wording import number
from crlbench.pages import svg
from crlbench.pages.frame import fitted_scale, number_ticks, x_axis
from crlbench.pages.svg import Scale, color, element, figure
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AxisScore

ROW_WIDTH, ROW_HEIGHT, EDGE = 280, 28, 18


def score_scale(scores: Sequence[AxisScore], anchor: float) -> Scale:
    """One axis for all rows: every interval fits, and so does the anchor; 0 to 1 without scores."""
    return fitted_scale(scores, [anchor], EDGE, ROW_WIDTH - EDGE)


def score_row(label: str, score: AxisScore, x: Scale, strong: bool) -> str:
    """Dot and intervals of one entry: thick over seeds and items, thin with other tasks too.

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
    box = f"0 0 {ROW_WIDTH} {ROW_HEIGHT}"
    return element("svg", *parts, class_="at", viewBox=box, role="img")


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
    if score.value is None:
        return "No value."
    parts = [number(score.value)]
    parts += [f"95 % interval {_ends(score.interval)}"] if score.interval else []
    parts += [f"with other tasks {_ends(score.wider)}"] if score.wider else []
    return "; ".join(parts) + "."


def _ends(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"
