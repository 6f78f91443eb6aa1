"""Figures of a study: effects on a common axis, and dynamics laid over each other."""

from __future__ import annotations

from collections.abc import Sequence

from crlbench.base.wording import count, number
from crlbench.pages import svg
from crlbench.pages.figures import GRID, HALO, MUTED, ZERO
from crlbench.pages.svg import Scale, color, element, figure, line, mark, polyline, text
from crlbench.pages.words import difference
from crlbench.stats.intervals import Paired, Verdict
from crlbench.verdict.traces import Trace

ROW_WIDTH, ROW_HEIGHT, EDGE = 260, 30, 10
SHAPES: dict[Verdict, str] = {
    "better": "triangle",
    "equivalent": "square",
    "worse": "down",
    "undecided": "circle",
}


def effect_scale(effects: Sequence[Paired | None], margin: float) -> Scale:
    """One axis for all effects of a comparison; zero and the margin are always on it."""
    values = [-1.4 * margin, 1.4 * margin]
    for effect in effects:
        if effect is not None:
            spans = [i for i in (effect.interval, effect.inner) if i is not None]
            values += [effect.value, *(end for i in spans for end in (i.low, i.high))]
    return Scale(min(values), max(values), EDGE, ROW_WIDTH - EDGE)


def effect_row(label: str, effect: Paired, margin: float, x: Scale) -> str:
    """One effect: thin whisker 95 %, thick 90 %, the band of equivalence behind them."""
    middle = ROW_HEIGHT / 2
    hue = color(effect.verdict)
    parts = _ground(margin, x, 0, ROW_HEIGHT)
    for span, thick in ((effect.interval, 1.6), (effect.inner, 4.4)):
        if span is not None:
            stroke = f"stroke:{hue};stroke-width:{thick};stroke-linecap:round"
            parts.append(line(x(span.low), middle, x(span.high), middle, stroke))
    fill = color("paper") if effect.verdict == "undecided" else hue
    style = f"fill:{fill};stroke:{color('paper')};stroke-width:1.2"
    if effect.verdict == "undecided":
        style = f"fill:{fill};stroke:{hue};stroke-width:2.2"
    parts.append(mark(SHAPES[effect.verdict], x(effect.value), middle, 5.5, style))
    described = f"{difference(effect)}: {effect.verdict}."
    return figure(f"Effect of {label}", described, ROW_HEIGHT, *parts, width=ROW_WIDTH)


def effect_axis(margin: float, x: Scale) -> str:
    """The ticks beneath the rows of one comparison."""
    values = svg.ticks(x.low, x.high, 5)
    digits = svg.digits(values)
    parts = _ground(margin, x, 0, 6)
    for tick in values:
        content = number(tick, digits, signed=True)
        anchor = "middle"
        if x(tick) < 24 or x(tick) > ROW_WIDTH - 24:
            anchor = "start" if x(tick) < 24 else "end"
        place = {"start": 0.0, "end": float(ROW_WIDTH)}.get(anchor, x(tick))
        parts.append(text(place, 20, content, text_anchor=anchor, style=MUTED))
    described = f"Equivalence lies between {number(-margin)} and {number(margin)}."
    return figure("Axis of the effects", described, 25, *parts, width=ROW_WIDTH)


def _ground(margin: float, x: Scale, top: float, bottom: float) -> list[str]:
    """The band of equivalence, the grid and zero."""
    band = f"fill:{color('equivalent')};opacity:.13"
    parts = [
        element(
            "rect",
            x=x(-margin),
            y=top,
            width=x(margin) - x(-margin),
            height=bottom - top,
            style=band,
        )
    ]
    for tick in svg.ticks(x.low, x.high, 5):
        parts.append(line(x(tick), top, x(tick), bottom, ZERO if tick == 0 else GRID))
    return parts


def overlay(title: str, traces: Sequence[Trace], x_max: float) -> str:
    """Lines of base and arms over the budget with their signs at the right; bands are seeds.

    The first trace is the base and is drawn in the colour of text.
    """
    height, left, right, upper, lower = 152, 46, 322, 8, 122
    drawn = [one for one in traces if one.points]
    if not drawn:
        return figure(title, "no values", height)
    low = min(p[2] for one in drawn for p in one.points)
    high = max(p[3] for one in drawn for p in one.points)
    room = 0.04 * (high - low) or max(1e-9, 0.5 * abs(high)) or 0.5
    x, y = Scale(0, x_max, left, right), Scale(low - room, high + room, lower, upper)
    parts = [_axes(x, y, left, right, lower, x_max)]
    parts += [_band(one, x, y, _hue(one, traces)) for one in drawn]
    parts += [_line(one, x, y, traces) for one in drawn]
    places = svg.spread([y(one.points[-1][1]) for one in drawn], 13, upper + 2, lower)
    for place, one in zip(places, drawn, strict=True):
        style = f"fill:{_hue(one, traces)};font-weight:650;font-size:12px;{HALO}"
        parts.append(text(right + 5, place + 4, one.key, style=style))
    return figure(title, _overlay_words(drawn), height, *parts)


def _hue(one: Trace, traces: Sequence[Trace]) -> str:
    index = traces.index(one)
    return color("ink") if index == 0 else svg.series_color(index - 1)


def _axes(x: Scale, y: Scale, left: float, right: float, lower: float, x_max: float) -> str:
    parts = []
    values = svg.ticks(y.low, y.high, 4)
    digits = min(6, svg.digits(values))
    for tick in values:
        parts.append(line(left, y(tick), right, y(tick), GRID))
        content = number(tick, digits)
        parts.append(text(left - 6, y(tick) + 4, content, text_anchor="end", style=MUTED))
    parts.append(line(left, lower, right, lower, ZERO))
    for tick, anchor in ((0.0, "start"), (x_max, "end")):
        parts.append(text(x(tick), lower + 18, f"{tick:,.0f}", text_anchor=anchor, style=MUTED))
    middle = (left + right) / 2
    parts.append(text(middle, lower + 18, "completions", text_anchor="middle", style=MUTED))
    return element("g", *parts)


def _band(one: Trace, x: Scale, y: Scale, hue: str) -> str:
    upward = [f"{svg.num(x(p[0]))} {svg.num(y(p[3]))}" for p in one.points]
    back = [f"{svg.num(x(p[0]))} {svg.num(y(p[2]))}" for p in reversed(one.points)]
    return element("path", d=f"M{'L'.join([*upward, *back])}Z", style=f"fill:{hue};opacity:.1")


def _line(one: Trace, x: Scale, y: Scale, traces: Sequence[Trace]) -> str:
    index = traces.index(one)
    dash = svg.DASHES[index % len(svg.DASHES)] or "none"
    style = f"stroke:{_hue(one, traces)};stroke-width:2;stroke-linejoin:round"
    points = [(x(p[0]), y(p[1])) for p in one.points]
    return polyline(points, f"{style};stroke-dasharray:{dash}", f"{one.key}: {one.label}")


def _overlay_words(drawn: Sequence[Trace]) -> str:
    parts = [
        f"{one.key} {number(one.points[0][1], 4)} to {number(one.points[-1][1], 4)}"
        for one in drawn
    ]
    return f"{count(len(drawn), 'line')}, first to last value: {', '.join(parts)}."
