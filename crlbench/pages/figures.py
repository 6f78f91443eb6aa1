"""Figures as inline SVG: pure functions from plain numbers to text.

No scripts, no fonts, no outside reference; equal numbers give equal bytes. Colours are CSS
variables (``--crl-ink``, ``--crl-learned``, ...) with fallbacks, so that a page decides on
light and dark. Colour is never the only carrier of meaning. Every figure is 360 units wide
and readable at 360 pixels: several of them stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crlbench.base.wording import number
from crlbench.pages import svg
from crlbench.pages.svg import Scale, color, element, figure, line, mark, polyline, text

HALO = f"paint-order:stroke;stroke:{color('paper')};stroke-width:4px;stroke-linejoin:round"
MUTED = f"fill:{color('muted')}"
BOLD = "font-weight:650"
TABULAR = "font-variant-numeric:tabular-nums"
GRID = f"stroke:{color('grid')};stroke-width:1"
ZERO = f"stroke:{color('muted')};stroke-width:1"


@dataclass(frozen=True)
class SeedCurve:
    """The curve of one seed; points from ``measured`` on follow a failure."""

    index: int
    x: Sequence[float]
    y: Sequence[float]
    measured: int


@dataclass(frozen=True)
class CurveSeries:
    """All seeds of one entry on one task."""

    label: str
    seeds: Sequence[SeedCurve]
    start: float
    """Score of the start model, from its own draws."""
    end: float | None
    """Score of the final models, from their own draws, mean over seeds."""


def mean_curve(seeds: Sequence[SeedCurve]) -> list[tuple[float, float]]:
    """Mean over seeds at each point; empty where the seeds have different grids."""
    if len({tuple(seed.x) for seed in seeds}) != 1:
        return []
    columns = zip(*(seed.y for seed in seeds), strict=True)
    return [(x, sum(c) / len(c)) for x, c in zip(seeds[0].x, columns, strict=True)]


def learning_curves(
    task: str,
    series: Sequence[CurveSeries],
    *,
    budget: float,
    floor: float = 0.0,
    ceiling: float = 1.0,
    top: float = 1.0,
    x_label: str = "completions",
) -> str:
    """Score over the budget: every seed thin, the mean bold, start and end as markers.

    Args:
        series: one or a few entries; the first is drawn in the leading colour.
        top: upper end of the score axis, so that the panels of a page share one scale.
    """
    height, left, right, upper, lower = 238, 34, 280, 8, 194
    x, y = Scale(0, budget, left, right), Scale(0, top, lower, upper)
    parts = [_score_axis(y, left, right, top), budget_axis(x, lower, budget, x_label)]
    parts += _bounds(y, left, right, floor, ceiling, top)
    for index, one in enumerate(series):
        parts.append(_curves(one, x, y, index))
    for index, one in enumerate(series):
        parts.append(_ends(one, x, y, index, left, right))
    parts.append(_end_labels(series, y, right, floor, upper, lower))
    return figure(f"Learning curves on {task}", _curves_words(series), height, *parts)


def _score_axis(y: Scale, left: float, right: float, top: float) -> str:
    parts = []
    for tick in svg.ticks(0, top):
        parts.append(line(left, y(tick), right, y(tick), GRID))
        parts.append(text(left - 8, y(tick) + 4, f"{tick:.1f}", text_anchor="end", style=MUTED))
    return element("g", *parts)


def budget_axis(x: Scale, base: float, budget: float, label: str) -> str:
    parts = [line(x(0), base, x(budget), base, ZERO)]
    for tick in (0.0, budget / 2, budget):
        parts.append(line(x(tick), base, x(tick), base + 4, ZERO))
        parts.append(
            text(x(tick), base + 18, f"{tick:,.0f}", text_anchor="middle", style=MUTED)
        )
    middle = (x(0) + x(budget)) / 2
    parts.append(text(middle, base + 36, label, text_anchor="middle", style=MUTED))
    return element("g", *parts)


def _bounds(
    y: Scale, left: float, right: float, floor: float, ceiling: float, top: float
) -> list[str]:
    """The task's floor, and its ceiling where that is below 1 and on the axis."""
    style = f"stroke:{color('muted')};stroke-width:1.25;stroke-dasharray:2 3"
    parts = [line(left, y(floor), right, y(floor), style)]
    if ceiling < 1.0 and ceiling <= top:
        parts.append(line(left, y(ceiling), right, y(ceiling), style))
        parts.append(text(left + 4, y(ceiling) - 4, "ceiling", style=f"{MUTED};{HALO}"))
    return parts


def _curves(series: CurveSeries, x: Scale, y: Scale, index: int) -> str:
    stroke = f"stroke:{svg.series_color(index)}"
    several = len(series.seeds) > 1
    parts, failures = [], []
    for seed in series.seeds:
        points = [(x(a), y(b)) for a, b in zip(seed.x, seed.y, strict=True)]
        name = f"{series.label}, seed {seed.index}"
        thin = f"{stroke};{'stroke-width:1.1;opacity:.5' if several else 'stroke-width:2.2'}"
        parts.append(polyline(points[: seed.measured], thin, name))
        if seed.measured < len(points):
            failures.append(_failure(points, seed.measured, name))
    mean = [(x(a), y(b)) for a, b in mean_curve(series.seeds)]
    if several and mean:
        dash = svg.DASHES[index % len(svg.DASHES)]
        bold = f"{stroke};stroke-width:3;stroke-linejoin:round;stroke-dasharray:{dash or 'none'}"
        parts.append(polyline(mean, bold, f"{series.label}, mean of {len(series.seeds)} seeds"))
    return element("g", *parts, *failures)


def _failure(points: list[tuple[float, float]], measured: int, name: str) -> str:
    """Where a run failed, and the floor that it counts as from there on."""
    last, stroke = points[measured - 1], f"stroke:{color('loss')}"
    counted = f"{stroke};stroke-width:1;stroke-dasharray:1 4;opacity:.6"
    return polyline([last, *points[measured:]], counted, f"{name}, counted after failing") + mark(
        "cross", *last, 4.5, f"{stroke};stroke-width:2.6;fill:none", f"{name} failed here"
    )


def _ends(
    series: CurveSeries, x: Scale, y: Scale, index: int, left: float, right: float
) -> str:
    hue = svg.series_color(index)
    hollow = f"fill:{color('paper')};stroke:{hue};stroke-width:2"
    level = f"stroke:{hue};stroke-width:1;stroke-dasharray:6 4;opacity:.45"
    parts = [line(left, y(series.start), right, y(series.start), level)]
    parts.append(mark("diamond", left, y(series.start), 4, hollow))
    if series.end is not None:
        solid = f"fill:{hue};stroke:{color('paper')};stroke-width:1.5"
        shape = svg.MARKS[index % 4]
        parts.append(mark(shape, right, y(series.end), 4.5, solid, f"end {number(series.end)}"))
    return element("g", *parts)


def _end_labels(
    series: Sequence[CurveSeries],
    y: Scale,
    right: float,
    floor: float,
    upper: float,
    lower: float,
) -> str:
    """Direct labels at the right: floor, start and end, moved apart where they collide."""
    labels = [(y(floor), f"floor {number(floor, 2)}", MUTED)]
    for index, one in enumerate(series):
        style = "" if len(series) == 1 else f"fill:{svg.series_color(index)}"
        labels.append((y(one.start), f"start {number(one.start, 2)}", style))
        if one.end is not None:
            style = f"{BOLD};fill:{svg.series_color(index)}"
            labels.append((y(one.end), f"end {number(one.end, 2)}", style))
    places = svg.spread([label[0] for label in labels], 15, upper, lower)
    return element(
        "g",
        *(
            text(right + 8, place + 4, content, style=style)
            for place, (_, content, style) in zip(places, labels, strict=True)
        ),
    )


def _curves_words(series: Sequence[CurveSeries]) -> str:
    sentences = []
    for one in series:
        failed = sum(seed.measured < len(seed.x) for seed in one.seeds)
        end = "" if one.end is None else f", end {number(one.end)}"
        sentences.append(
            f"{one.label}: {len(one.seeds)} seed curves, start {number(one.start)}{end}"
            + (f", {failed} failed." if failed else ".")
        )
    return " ".join(sentences)


@dataclass(frozen=True)
class Bar:
    """E = H + L of one task."""

    label: str
    head: float
    learned: float


def stacked_bars(bars: Sequence[Bar]) -> str:
    """E = H + L: what the start model brought, and what RL added (or lost)."""
    row, left, right, upper = 48, 4, 356, 4
    low = min([0.0] + [min(b.head, b.head + b.learned) for b in bars])
    high = max([0.2] + [max(b.head, b.head + b.learned) for b in bars])
    x = Scale(low, high * 1.02, left, right)
    base = upper + row * len(bars)
    parts = [value_axis(x, [(y, y + 24) for y in _tops(bars, upper + 16, row)], base)]
    parts += [_bar(bar, x, upper + row * i) for i, bar in enumerate(bars)]
    described = " ".join(
        f"{b.label}: E {number(b.head + b.learned)} is H {number(b.head)} "
        f"and L {number(b.learned, signed=True)}."
        for b in bars
    )
    title = "Area under the curve, E, as head start H plus learned area L"
    return figure(title, described, base + 24, *parts)


def _bar(bar: Bar, x: Scale, y: float) -> str:
    top, thick = y + 20, 16
    total = bar.head + bar.learned
    hue = color("learned") if bar.learned >= 0 else color("loss")
    start, stop = sorted((x(bar.head), x(total)))
    head = sorted((x(0), x(min(bar.head, total) if bar.learned < 0 else bar.head)))
    sums = (
        f"{number(bar.head, 2)} {'+' if bar.learned >= 0 else '−'} "
        f"{number(abs(bar.learned), 2)} = {number(total, 2)}"
    )
    return element(
        "g",
        text(x.start, y + 14, svg.fit(bar.label, 24)),
        text(x.stop, y + 14, sums, text_anchor="end", style=TABULAR),
        element(
            "rect",
            x=head[0],
            y=top,
            width=head[1] - head[0],
            height=thick,
            style=f"fill:{color('head')}",
        ),
        element(
            "rect",
            x=start,
            y=top + 3 if bar.learned < 0 else top,
            width=stop - start,
            height=thick - 6 if bar.learned < 0 else thick,
            style=f"fill:{hue}",
        ),
    )


def value_axis(
    x: Scale, rows: Sequence[tuple[float, float]], base: float, most: int = 6
) -> str:
    """Ticks beneath, and their lines through the given stretches only, clear of the labels."""
    values = svg.ticks(x.low, x.high, most)
    digits = 2 if any(round(v, 1) != v for v in values) else 1
    parts = []
    for tick in values:
        style = ZERO if tick == 0 and tick > x.low else GRID
        parts += [line(x(tick), top, x(tick), bottom, style) for top, bottom in rows]
        anchor = "start" if x(tick) < 16 else "end" if x(tick) > svg.WIDTH - 14 else "middle"
        label = number(tick, digits)
        parts.append(text(x(tick), base + 18, label, text_anchor=anchor, style=MUTED))
    return element("g", *parts)


def _tops(rows: Sequence[object], first: float, height: float) -> list[float]:
    return [first + height * i for i in range(len(rows))]


@dataclass(frozen=True)
class Dot:
    """An estimate with its interval and the values of its seeds."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    seeds: Sequence[float] = ()
    strong: bool = False


def interval_plot(dots: Sequence[Dot], name: str) -> str:
    """Dot and interval per row, the seeds as small rings beneath, zero as a line."""
    row, left, right, upper = 48, 8, 352, 4
    known = [v for d in dots for v in (d.value, d.low, d.high, *d.seeds) if v is not None]
    low, high = min([0.0, *known]), max([0.1, *known])
    margin = 0.04 * (high - low)
    x = Scale(low - margin, high + margin, left, right)
    base = upper + row * len(dots)
    parts = [value_axis(x, [(y, y + 22) for y in _tops(dots, upper + 19, row)], base)]
    parts += [_dot(dot, x, upper + row * i) for i, dot in enumerate(dots)]
    described = " ".join(f"{d.label}: {_dot_words(d, 3) or 'no value'}." for d in dots)
    return figure(f"{name}, with intervals", described, base + 24, *parts)


def _dot_words(dot: Dot, digits: int) -> str:
    if dot.value is None:
        return ""
    if dot.low is None or dot.high is None:
        return f"{number(dot.value, digits)}, no interval"
    return f"{number(dot.value, digits)} [{number(dot.low, digits)}, {number(dot.high, digits)}]"


def _dot(dot: Dot, x: Scale, y: float) -> str:
    middle = y + 30
    weight = f"{BOLD};" if dot.strong else ""
    hue = color("learned")
    value, style = _dot_words(dot, 2), f"{weight}{TABULAR}"
    parts = [text(x.start, y + 14, svg.fit(dot.label, 24), style=weight)]
    parts.append(text(x.stop, y + 14, value, text_anchor="end", style=style))
    ring = f"fill:none;stroke:{color('muted')};stroke-width:1.2;opacity:.75"
    parts += [mark("circle", x(v), middle, 3, ring, number(v)) for v in dot.seeds]
    if dot.low is not None and dot.high is not None:
        thick = 4 if dot.strong else 3
        stroke = f"stroke:{hue};stroke-width:{thick};stroke-linecap:round"
        parts.append(line(x(dot.low), middle, x(dot.high), middle, stroke))
    if dot.value is not None:
        solid = f"fill:{hue};stroke:{color('paper')};stroke-width:1.5"
        shape = "diamond" if dot.strong else "circle"
        parts.append(mark(shape, x(dot.value), middle, 5.5, solid))
    return element("g", *parts)


@dataclass(frozen=True)
class Change:
    """A score before and after."""

    label: str
    start: float
    end: float | None


def dumbbells(changes: Sequence[Change], title: str) -> str:
    """Start (hollow diamond) to end (filled circle) per row, on the score axis 0 to 1."""
    row, left, right, upper = 27, 108, 254, 6
    x = Scale(0, 1, left, right)
    base = upper + row * len(changes)
    parts = [value_axis(x, [(upper, base + 4)], base, most=3)]
    parts += [_dumbbell(c, x, upper + row * i + row / 2) for i, c in enumerate(changes)]
    described = " ".join(f"{c.label}: {number(c.start)} to {number(c.end)}." for c in changes)
    return figure(title, described, base + 24, *parts)


def _dumbbell(change: Change, x: Scale, y: float) -> str:
    values = f"{number(change.start, 2)} → {number(change.end, 2)}"
    parts = [text(0, y + 4, svg.fit(change.label, 13)), _tabular(360, y + 4, values)]
    hue = color("learned")
    if change.end is not None:
        if change.end < change.start:
            hue = color("loss")
        stroke = f"stroke:{hue};stroke-width:3;opacity:.55"
        parts.append(line(x(change.start), y, x(change.end), y, stroke))
    hollow = f"fill:{color('paper')};stroke:{hue};stroke-width:1.8"
    parts.append(mark("diamond", x(change.start), y, 4, hollow))
    if change.end is not None:
        parts.append(mark("circle", x(change.end), y, 4.5, f"fill:{hue}"))
    return element("g", *parts)


def _tabular(x: float, y: float, content: str) -> str:
    return text(x, y, content, text_anchor="end", style=TABULAR)
