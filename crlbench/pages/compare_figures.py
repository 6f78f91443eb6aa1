"""Figures of a comparison: differences on a common axis, E = H + L, and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crlbench.base.wording import count, number
from crlbench.pages import svg
from crlbench.pages.compare_words import amount
from crlbench.pages.svg import Scale, color, element, figure, line, mark, polyline, text
from crlbench.pages.words import difference
from crlbench.verdict.compare_axis import Line, TaskView
from crlbench.verdict.pairs import Call, Effect

MUTED = f"fill:{color('muted')}"
GRID = f"stroke:{color('grid')};stroke-width:1"
ZERO = f"stroke:{color('muted')};stroke-width:1"
HALO = f"paint-order:stroke;stroke:{color('paper')};stroke-width:4px;stroke-linejoin:round"
TABULAR = "font-variant-numeric:tabular-nums"

ROW_WIDTH, ROW_HEIGHT, EDGE = 260, 32, 10
SHAPES: dict[Call | None, str] = {
    "better": "triangle",
    "equivalent": "square",
    "worse": "down",
    "undecided": "circle",
    "preview": "diamond",
    None: "circle",
}
HOLLOW = ("undecided", "preview", None)
PANEL_HEIGHT = 232


@dataclass(frozen=True)
class Series:
    """One entry on one task, as figures call it."""

    key: str
    name: str
    view: TaskView
    index: int
    """Its place among the entries, which gives colour and dash."""


def effect_scale(effects: Sequence[Effect | None], margin: float | None) -> Scale:
    """One axis for all differences of a pair; zero and the margin are always on it."""
    values = [-0.01, 0.01] if margin is None else [-1.4 * margin, 1.4 * margin]
    for effect in effects:
        if effect is not None:
            spans = [i for i in (effect.interval, effect.inner, effect.wider) if i is not None]
            values += [effect.value, *(end for i in spans for end in (i.low, i.high))]
    return Scale(min(values), max(values), EDGE, ROW_WIDTH - EDGE)


def effect_row(label: str, effect: Effect, margin: float | None, x: Scale) -> str:
    """One difference: thin line 95 %, thick 90 %, dotted the wider one that resamples tasks.

    ``margin`` is drawn as a band where there are verdicts, and None where there are none.
    """
    middle, lower = ROW_HEIGHT / 2, ROW_HEIGHT / 2 + 8
    hue = color("muted" if effect.call in (None, "preview") else effect.call)
    parts = _ground(margin, x, 0, ROW_HEIGHT)
    if effect.wider is not None:
        dotted = f"stroke:{hue};stroke-width:1.6;stroke-dasharray:2 3"
        parts.append(line(x(effect.wider.low), lower, x(effect.wider.high), lower, dotted))
    for span, thick in ((effect.interval, 1.6), (effect.inner, 4.4)):
        if span is not None:
            stroke = f"stroke:{hue};stroke-width:{thick};stroke-linecap:round"
            parts.append(line(x(span.low), middle, x(span.high), middle, stroke))
    style = f"fill:{hue};stroke:{color('paper')};stroke-width:1.2"
    if effect.call in HOLLOW:
        style = f"fill:{color('paper')};stroke:{hue};stroke-width:2.2"
    parts.append(mark(SHAPES[effect.call], x(effect.value), middle, 5.5, style))
    described = f"{difference(effect)}{f': {effect.call}' if effect.call else ''}."
    return figure(f"Difference, {label}", described, ROW_HEIGHT, *parts, width=ROW_WIDTH)


def effect_axis(margin: float | None, x: Scale) -> str:
    """The ticks beneath the rows of one pair."""
    values = svg.ticks(x.low, x.high, 5)
    parts = _ground(margin, x, 0, 6)
    for tick in values:
        anchor, place = "middle", x(tick)
        if place < 24 or place > ROW_WIDTH - 24:
            anchor, place = ("start", 0.0) if place < 24 else ("end", float(ROW_WIDTH))
        content = number(tick, svg.digits(values), signed=True)
        parts.append(text(place, 20, content, text_anchor=anchor, style=MUTED))
    described = f"From {number(x.low)} to {number(x.high)}."
    return figure("Axis of the differences", described, 25, *parts, width=ROW_WIDTH)


def _ground(margin: float | None, x: Scale, top: float, bottom: float) -> list[str]:
    """The band of equivalence, the grid and zero."""
    parts = []
    if margin is not None:
        width = x(margin) - x(-margin)
        band = f"fill:{color('equivalent')};opacity:.13"
        parts.append(
            element("rect", x=x(-margin), y=top, width=width, height=bottom - top, style=band)
        )
    for tick in svg.ticks(x.low, x.high, 5):
        parts.append(line(x(tick), top, x(tick), bottom, ZERO if tick == 0 else GRID))
    return parts


def bars(task: str, series: Sequence[Series], widest: float) -> str:
    """E = H + L of every entry on one task, one scale for all tasks of a page."""
    row, left, right = 40, 24, 356
    drawn = [one for one in series if one.view.E is not None]
    low = min([0.0, *(min(one.view.H, one.view.E) for one in drawn)])
    x = Scale(low, widest, left, right)
    base = row * len(drawn) + 2
    parts = [line(x(0), 0, x(0), base, ZERO)]
    parts += [_bar(one, x, 2 + row * i) for i, one in enumerate(drawn)]
    described = " ".join(f"{one.key}: E {_sum(one.view)}." for one in drawn) or "no values"
    return figure(f"E = H + L on {task}", described, base + 2, *parts)


def _sum(view: TaskView) -> str:
    sign = "+" if view.L >= 0 else "−"
    return f"{number(view.E)} = {number(view.H)} {sign} {number(abs(view.L))}"


def _bar(one: Series, x: Scale, y: float) -> str:
    view, top, thick = one.view, y + 18, 15
    head = sorted((x(0), x(view.H if view.L >= 0 else view.E)))
    rest = sorted((x(view.H), x(view.E)))
    lost = view.L < 0
    inset = 3 if lost else 0
    bold = f"font-weight:650;fill:{svg.series_color(one.index)}"
    return element(
        "g",
        text(2, top + 12, one.key, style=bold),
        text(x.start + 5, y + 13, svg.fit(one.name, 22), style=MUTED),
        text(x.stop, y + 13, _sum(view), text_anchor="end", style=TABULAR),
        _block(head, top, thick, color("head")),
        _block(rest, top + inset, thick - 2 * inset, color("loss" if lost else "learned")),
    )


def _block(span: Sequence[float], top: float, thick: float, hue: str) -> str:
    low, high = span
    return element("rect", x=low, y=top, width=high - low, height=thick, style=f"fill:{hue}")


def common_scales(
    views: Sequence[TaskView], bands: bool = False
) -> tuple[float, tuple[float, float]]:
    """End of the x-axis, and lowest and highest u with 0 and some room, for all panels of a page.

    Args:
        bands: whether the intervals of the means are drawn too.
    """
    spent = max((x for view in views for line in view.lines for x in line.x), default=1.0) or 1.0
    values = [u for view in views for line in view.lines for u in line.u]
    if bands:
        values += [end for view in views for one in view.band for end in (one.low, one.high)]
    low, high = min([0.0, *values]), max([0.2, *values])
    room = 0.04 * (high - low)
    return spent, ((low - room if low < 0 else 0.0), high + room)


def curves(
    task: str, series: Sequence[Series], spent: float, span: tuple[float, float], label: str
) -> str:
    """u over the chosen axis: every seed thin, the mean bold, each entry with its sign.

    Args:
        spent: end of the x-axis.
        span: lowest and highest u, so that the panels of a page share one scale.
    """
    parts = curve_panel(series, spent, span, label)
    return figure(f"Learning curves on {task}", curve_words(series), PANEL_HEIGHT, *parts)


def curve_panel(
    series: Sequence[Series],
    spent: float,
    span: tuple[float, float],
    label: str,
    bands: bool = False,
) -> list[str]:
    """What stands in :func:`curves`, for a figure of several panels.

    Args:
        bands: whether to shade the interval of each mean.
    """
    left, right, upper, lower = 34, 336, 8, 190
    x, y = Scale(0, spent, left, right), Scale(*span, lower, upper)
    parts = [_axes(x, y, spent, label)]
    if bands:
        parts += [_band(one, x, y) for one in series]
    parts += [_seeds(one, x, y) for one in series]
    parts += [_mean(one, x, y) for one in series]
    ends = [(one, one.view.mean[-1][1]) for one in series if one.view.mean]
    places = svg.spread([y(u) for _, u in ends], 14, upper + 4, lower)
    for place, (one, _) in zip(places, ends, strict=True):
        style = f"fill:{svg.series_color(one.index)};font-weight:650;{HALO}"
        parts.append(text(right + 8, place + 4, one.key, style=style))
    return parts


def _band(one: Series, x: Scale, y: Scale) -> str:
    """The interval of the mean at each evaluation; nothing where there is none."""
    if not one.view.band:
        return ""
    ends = list(zip(one.view.mean, one.view.band, strict=True))
    upper = [(x(at), y(interval.high)) for (at, _), interval in ends]
    lower = [(x(at), y(interval.low)) for (at, _), interval in ends]
    style = f"fill:{svg.series_color(one.index)};opacity:.3;stroke:none"
    name = element("title", svg.clean(f"{one.key}, 95 % interval of the mean"))
    return element("path", name, d=svg.path([*upper, *reversed(lower)], close=True), style=style)


def _axes(x: Scale, y: Scale, spent: float, label: str) -> str:
    ticks, parts = svg.ticks(y.low, y.high), []
    for tick in ticks:
        parts.append(line(x.start, y(tick), x.stop, y(tick), ZERO if tick == 0 else GRID))
        content = number(tick, svg.digits(ticks))
        parts.append(text(x.start - 8, y(tick) + 4, content, text_anchor="end", style=MUTED))
    parts.append(line(x.start, y.start, x.stop, y.start, ZERO))
    for tick, anchor in ((0.0, "middle"), (spent / 2, "middle"), (spent, "end")):
        place = x(tick) if anchor == "middle" else 360.0
        parts.append(line(x(tick), y.start, x(tick), y.start + 4, ZERO))
        content = amount(tick)
        parts.append(text(place, y.start + 18, content, text_anchor=anchor, style=MUTED))
    middle = (x.start + x.stop) / 2
    parts.append(text(middle, y.start + 36, label, text_anchor="middle", style=MUTED))
    return element("g", *parts)


def _seeds(one: Series, x: Scale, y: Scale) -> str:
    several = len(one.view.lines) > 1
    stroke = f"stroke:{svg.series_color(one.index)}"
    thin = f"{stroke};{'stroke-width:1;opacity:.4' if several else 'stroke-width:2.2'}"
    parts = []
    for seed in one.view.lines:
        points = [(x(a), y(b)) for a, b in zip(seed.x, seed.u, strict=True)]
        name = f"{one.key}, seed {seed.seed}"
        if seed.measured:
            parts.append(polyline(points[: seed.measured], thin, name))
        if seed.measured < len(points):
            parts.append(_failure(points, seed, name))
    return element("g", *parts)


def _failure(points: list[tuple[float, float]], seed: Line, name: str) -> str:
    """Where a run failed, and the zero that it counts as from there on."""
    last, stroke = points[max(0, seed.measured - 1)], f"stroke:{color('loss')}"
    counted = f"{stroke};stroke-width:1;stroke-dasharray:1 4;opacity:.6"
    cross = f"{stroke};stroke-width:2.4;fill:none"
    rest = polyline([last, *points[seed.measured :]], counted, f"{name}, counted after failing")
    return rest + mark("cross", *last, 4, cross, f"{name} {seed.state}")


def _mean(one: Series, x: Scale, y: Scale) -> str:
    points = [(x(a), y(b)) for a, b in one.view.mean]
    if len(one.view.lines) < 2 or not points:
        return ""
    dash = svg.DASHES[one.index % len(svg.DASHES)] or "none"
    stroke = f"stroke:{svg.series_color(one.index)};stroke-width:3;stroke-linejoin:round"
    name = f"{one.key}, mean of {len(one.view.lines)} seeds"
    return polyline(points, f"{stroke};stroke-dasharray:{dash}", name)


def curve_words(series: Sequence[Series]) -> str:
    told = []
    for one in series:
        mean = one.view.mean
        ends = f", mean u {number(mean[0][1])} to {number(mean[-1][1])}" if mean else ""
        broken = sum(seed.measured < len(seed.u) for seed in one.view.lines)
        failed = f", {broken} failed" if broken else ""
        told.append(f"{one.key}: {count(len(one.view.lines), 'seed')}{ends}{failed}.")
    return " ".join(told) or "no values"
