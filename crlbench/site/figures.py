"""Figures in table rows: a headline with its intervals on one axis for the whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crlbench.base.wording import number
from crlbench.pages import svg
from crlbench.pages.figures import GRID, MUTED, ZERO
from crlbench.pages.svg import Scale, color, element, figure, line, mark, text
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AxisScore

ROW_WIDTH, ROW_HEIGHT, EDGE = 280, 28, 18


def score_scale(scores: Sequence[AxisScore], anchor: float) -> Scale:
    """One axis for all rows: every interval fits, and so does the anchor; 0 to 1 without scores."""
    values = [anchor]
    for score in scores:
        spans = [i for i in (score.interval, score.wider) if i is not None]
        values += [end for i in spans for end in (i.low, i.high)]
        values += [] if score.value is None else [score.value]
    if min(values) == max(values):
        values += [0.0, 1.0]
    return Scale(min(values), max(values), EDGE, ROW_WIDTH - EDGE)


def score_row(label: str, score: AxisScore, x: Scale, strong: bool) -> str:
    """Dot and intervals of one entry: thick over seeds and items, thin with other tasks too.

    A board has thousands of these, so that their looks stand in ``site.css``.

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
        kind = {"class_": "first"} if strong else {}
        parts.append(element("circle", cx=x(score.value), cy=middle, r=3.6, **kind))
    box = f"0 0 {ROW_WIDTH} {ROW_HEIGHT}"
    return element("svg", *parts, class_="at", viewBox=box, role="img")


def score_axis(title: str, x: Scale) -> str:
    """The ticks above the rows of a table."""
    values = svg.ticks(x.low, x.high, 6)
    digits = max(1, svg.digits(values))
    parts = []
    for tick in values:
        parts.append(line(x(tick), 18, x(tick), 24, ZERO if tick == 0 else GRID))
        parts.append(text(x(tick), 13, number(tick, digits), text_anchor="middle", style=MUTED))
    return figure(title, f"From {number(x.low)} to {number(x.high)}.", 24, *parts, width=ROW_WIDTH)


def score_grid(x: Scale) -> str:
    """The lines of the ticks behind all rows, as a background in CSS."""
    return ",".join(
        f"linear-gradient({color('muted' if tick == 0 else 'grid')} 0 0)"
        f" {100 * x(tick) / ROW_WIDTH:.2f}% 0/1px 100% no-repeat"
        for tick in svg.ticks(x.low, x.high, 6)
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


TASK_HEIGHT, NAME_WIDTH = 18, 84


def ends_strip(title: str, ends: Mapping[str, Sequence[tuple[float, bool]]]) -> str:
    """F of every seed on an axis from 0 to 1, a line of dots for each task.

    Args:
        ends: by task (F, whether the run failed) of each seed.
    """
    values = [end for rows in ends.values() for end, _ in rows]
    x = Scale(min(0.0, *values), max(1.0, *values), NAME_WIDTH, ROW_WIDTH - EDGE)
    parts = []
    for index, (task, rows) in enumerate(ends.items()):
        middle = TASK_HEIGHT * (index + 0.5)
        parts.append(text(0, middle + 4, svg.fit(task, 11), style=f"{MUTED};font-size:12px"))
        parts.append(line(x(0.0), middle, x(1.0), middle, GRID))
        parts += [_end(x(end), middle, failed) for end, failed in rows]
    height = TASK_HEIGHT * len(ends) + 18
    for tick in (0.0, 0.5, 1.0):
        parts.append(
            text(x(tick), height - 4, number(tick, 1), text_anchor="middle", style=MUTED)
        )
    described = " ".join(f"{task}: {_ends_words(rows)}." for task, rows in ends.items())
    return figure(title, described, height, *parts, width=ROW_WIDTH)


def _ends_words(rows: Sequence[tuple[float, bool]]) -> str:
    return ", ".join(f"{number(end, 2)}{' failed' if failed else ''}" for end, failed in rows)


def _end(x: float, y: float, failed: bool) -> str:
    if failed:
        return mark("cross", x, y, 4, f"stroke:{color('loss')};stroke-width:2;fill:none")
    return mark("circle", x, y, 3.5, f"fill:{color('learned')};opacity:.55")
