"""Charts of curves: seeds thin, their mean bold, bands shaded; learning, profiles, dynamics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crlbench.base.wording import count, number
from crlbench.pages import svg
from crlbench.pages.compare_words import amount
from crlbench.pages.frame import Ticks, budget_ticks, end_labels, number_ticks, x_axis, y_axis
from crlbench.pages.svg import Scale, color, element, figure, line, series_color, stroke, text
from crlbench.verdict.compare_axis import TaskView
from crlbench.verdict.traces import Trace

MOST_POINTS = 120
"""A longer profile is thinned: no more points fit into a figure's width."""
UPPER, LOWER = 8, 194
"""Ends of the y-axis of a panel."""

Points = Sequence[tuple[float, float]]


# -- the kind ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedCurve:
    """The curve of one seed; points from ``measured`` on follow a failure."""

    index: int
    x: Sequence[float]
    y: Sequence[float]
    measured: int
    state: str = "failed here"
    """What the mark of a failure says."""


@dataclass(frozen=True)
class Curve:
    """What a chart draws of one entry, arm or figure."""

    label: str = ""
    """Name at the head of every title; empty in small charts of one curve."""
    seeds: Sequence[SeedCurve] = ()
    start: float = 0.0
    """Score of the start model, from its own draws."""
    end: float | None = None
    """Score of the final models, from their own draws, mean over seeds."""
    mean: Points = ()
    band: Sequence[tuple[float, float]] = ()
    """Lowest and highest value at each point of the mean."""
    band_title: str = ""
    hue: str = series_color(0)
    dash: str = ""
    weight: float = 3
    """Width of the mean."""
    shade: str = ".16"
    """Opacity of the band."""
    key: str = ""
    """Sign at the end of the mean."""

    @property
    def failures(self) -> str:
        """How many seeds failed, in words; empty where none did."""
        number_failed = sum(seed.measured < len(seed.x) for seed in self.seeds)
        return f", {number_failed} failed" if number_failed else ""


def mean_curve(seeds: Sequence[SeedCurve]) -> list[tuple[float, float]]:
    """Mean over seeds at each point; empty where the seeds have different grids."""
    if len({tuple(seed.x) for seed in seeds}) != 1:
        return []
    columns = zip(*(seed.y for seed in seeds), strict=True)
    return [(x, sum(c) / len(c)) for x, c in zip(seeds[0].x, columns, strict=True)]


def draw_curves(curves: Sequence[Curve], x: Scale, y: Scale) -> list[str]:
    """Bands behind seeds, seeds behind means, failures above all; a lone seed is its own mean."""
    return [
        *(_draw_band(curve, x, y) for curve in curves if curve.band),
        *(_draw_seeds(curve, x, y) for curve in curves if curve.seeds),
        *(_draw_mean(c, x, y) for c in curves if c.mean and len(c.seeds) != 1),
        *(_draw_failure(c, s, x, y) for c in curves for s in c.seeds if s.measured < len(s.x)),
    ]


def _draw_band(curve: Curve, x: Scale, y: Scale) -> str:
    across = x.all(at for at, _ in curve.mean)
    lows, highs = (y.all(side) for side in zip(*curve.band, strict=True))
    back = zip(reversed(across), reversed(lows), strict=True)
    area = svg.path([*zip(across, highs, strict=True), *back], close=True)
    title = [element("title", svg.clean(curve.band_title))] if curve.band_title else []
    return element("path", *title, d=area, style=f"fill:{curve.hue};opacity:{curve.shade}")


def _draw_seeds(curve: Curve, x: Scale, y: Scale) -> str:
    """Measured points of every seed, whose name appears when the pointer rests on its line."""
    paths = []
    for seed in curve.seeds:
        if points := _placed(seed, x, y)[: seed.measured]:
            title = element("title", svg.clean(_name(curve, seed)))
            paths.append(element("path", title, d=svg.path(points)))
    several = len(curve.seeds) > 1
    lone = stroke(curve.hue, round(0.73 * curve.weight, 1))
    thin = stroke(curve.hue, 1, "opacity:.45") if several else lone
    return element("g", *paths, style=f"fill:none;{thin}")


def _placed(seed: SeedCurve, x: Scale, y: Scale) -> list[tuple[float, float]]:
    return list(zip(x.all(seed.x), y.all(seed.y), strict=True))


def _name(curve: Curve, seed: SeedCurve) -> str:
    return f"{curve.label}, seed {seed.index}" if curve.label else f"seed {seed.index}"


def _draw_failure(curve: Curve, seed: SeedCurve, x: Scale, y: Scale) -> str:
    """Where a run failed, and the value that it counts with from there on."""
    points, name, hue = _placed(seed, x, y), _name(curve, seed), color("loss")
    last = points[max(0, seed.measured - 1)]
    dotted = stroke(hue, 1, "stroke-dasharray:1 4;opacity:.6")
    rest = svg.polyline([last, *points[seed.measured :]], dotted, f"{name}, counted after failing")
    return rest + svg.mark("cross", *last, 4.5, svg.crossed(hue, 2.6), f"{name} {seed.state}")


def _draw_mean(curve: Curve, x: Scale, y: Scale) -> str:
    points = zip(x.all(at for at, _ in curve.mean), y.all(v for _, v in curve.mean), strict=True)
    dash = f";stroke-dasharray:{curve.dash}" if curve.dash else ""
    style = stroke(curve.hue, curve.weight, f"stroke-linejoin:round{dash}")
    title = curve.label
    if curve.label and curve.seeds:
        title = f"{curve.label}, mean of {len(curve.seeds)} seeds"
    return svg.polyline(points, style, title)


def draw_panel(
    curves: Sequence[Curve],
    x: Scale,
    y: Scale,
    x_ticks: Ticks,
    caption: str,
    *,
    y_ticks: Ticks | None = None,
    grid: bool = False,
    levels: str = "",
    labels: Sequence[tuple[float, str, str]] | None = None,
) -> list[str]:
    """Axes, curves and the labels at their ends.

    Args:
        caption: name of the x-axis.
        y_ticks: None for round numbers.
        grid: whether vertical lines lead through the panel.
        levels: SVG between axes and curves.
        labels: value, text and style at the right; None for the keys of the curves.
    """
    if labels is None:
        ends = [curve for curve in curves if curve.key and curve.mean]
        labels = [(c.mean[-1][1], c.key, f"fill:{c.hue};{svg.BOLD};{svg.HALO}") for c in ends]
    lines = [(y.stop, y.start)] if grid else None
    return [
        y_axis(y, x.start, x.stop, y_ticks or number_ticks(y.low, y.high)),
        x_axis(x, y.start, x_ticks, caption=caption, grid=lines),
        levels,
        *draw_curves(curves, x, y),
        end_labels(labels, y, x.stop),
    ]


def _height(y: Scale) -> float:
    """Height of a figure of one panel."""
    return y.start + 42


# -- learning ------------------------------------------------------------------------------------


def learning_curves(
    task: str,
    curves: Sequence[Curve],
    *,
    budget: float,
    floor: float = 0.0,
    ceiling: float = 1.0,
    top: float = 1.0,
) -> str:
    """Score over the budget: every seed thin, the mean bold, start and end as markers.

    Args:
        curves: one or a few entries, whose colours follow from their places.
        top: upper end of the score axis, shared by the panels of a page.
    """
    x, y = Scale(0, budget, 34, 280), Scale(0, top, LOWER, UPPER)
    curves = [
        replace(one, mean=mean_curve(one.seeds), hue=series_color(i), dash=_dash(i))
        for i, one in enumerate(curves)
    ]
    dotted = stroke(color("muted"), 1.25, "stroke-dasharray:2 3")
    labels = [(floor, f"floor {number(floor, 2)}", svg.MUTED)]
    levels, ends = _level(y(floor), x, dotted), ""
    if ceiling < 1.0 and ceiling <= top:
        above = text(x.start + 4, y(ceiling) - 4, "ceiling", style=f"{svg.MUTED};{svg.HALO}")
        levels += _level(y(ceiling), x, dotted) + above
    for index, one in enumerate(curves):
        dashed = stroke(one.hue, 1, "stroke-dasharray:6 4;opacity:.45")
        ends += _level(y(one.start), x, dashed) + svg.mark(
            "diamond", x.start, y(one.start), 4, svg.hollow(one.hue, 2)
        )
        style = "" if len(curves) == 1 else f"fill:{one.hue}"
        labels.append((one.start, f"start {number(one.start, 2)}", style))
        if one.end is not None:
            shape, title = svg.MARKS[index % 4], f"end {number(one.end)}"
            ends += svg.mark(shape, x.stop, y(one.end), 4.5, svg.solid(one.hue), title)
            labels.append((one.end, f"end {number(one.end, 2)}", f"{svg.BOLD};fill:{one.hue}"))
    ticks = budget_ticks(budget)
    panel = draw_panel(curves, x, y, ticks, "completions", levels=levels, labels=labels)
    description = " ".join(
        f"{one.label}: {len(one.seeds)} seed curves, start {number(one.start)}"
        f"{'' if one.end is None else f', end {number(one.end)}'}{one.failures}."
        for one in curves
    )
    return figure(f"Learning curves on {task}", description, _height(y), *panel, ends)


def _level(at: float, x: Scale, style: str) -> str:
    return line(x.start, at, x.stop, at, style)


def _dash(index: int) -> str:
    return svg.DASHES[index % len(svg.DASHES)]


# -- entries side by side ------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One entry on one task, as figures call it."""

    key: str
    name: str
    view: TaskView
    index: int
    """Its place among the entries, which gives colour and dash."""

    def curve(self, bands: bool = False) -> Curve:
        """Its curves of u, with the interval of the mean if ``bands``."""
        seeds = [SeedCurve(s.seed, s.x, s.u, s.measured, s.state) for s in self.view.lines]
        ends = [(i.low, i.high) for i in self.view.band] if bands else ()
        return Curve(
            label=self.key,
            seeds=seeds,
            mean=self.view.mean,
            band=ends,
            band_title=f"{self.key}, 95 % interval of the mean",
            hue=series_color(self.index),
            dash=_dash(self.index),
            shade=".3",
            key=self.key,
        )


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


def entry_curves(
    task: str, series: Sequence[Series], spent: float, span: tuple[float, float], label: str
) -> str:
    """u over the chosen axis: every seed thin, the mean bold, each entry with its sign.

    Args:
        spent: end of the x-axis.
        span: lowest and highest u, shared by the panels of a page.
    """
    curves = [one.curve() for one in series]
    panel, height = _entry_panel(curves, spent, span, label)
    return figure(f"Learning curves on {task}", _entry_words(curves), height, *panel)


def _entry_panel(
    curves: Sequence[Curve], spent: float, span: tuple[float, float], label: str
) -> tuple[list[str], float]:
    x, y = Scale(0, spent, 34, 336), Scale(*span, LOWER, UPPER)
    return draw_panel(curves, x, y, budget_ticks(spent, amount), label), _height(y)


def _entry_words(curves: Sequence[Curve]) -> str:
    sentences = []
    for curve in curves:
        mean = curve.mean
        ends = f", mean u {number(mean[0][1])} to {number(mean[-1][1])}" if mean else ""
        sentences.append(f"{curve.key}: {count(len(curve.seeds), 'seed')}{ends}{curve.failures}.")
    return " ".join(sentences) or "no values"


COLUMNS = 2
GAP, HEAD, ROW = 24, 26, 20
"""Room between columns, above a panel for its name, and for a row of the key."""


def curve_sheet(
    panels: Mapping[str, Sequence[Series]], label: str, watermark: str | None = None
) -> str:
    """One figure with a key and a panel for each task: the interval of each mean is shaded.

    Args:
        panels: by task the entries that have it.
        label: name of the x-axis.
        watermark: why the entries are not comparable; None where they are.
    """
    every = [one for series in panels.values() for one in series]
    spent, span = common_scales([one.view for one in every], bands=True)
    names = {one.index: one for one in every}
    key = [_key(names[i]) for i in sorted(names)]
    if watermark is not None:
        style = f"{svg.BOLD};fill:{color('loss')}"
        key.insert(0, text(0, 14, svg.fit(watermark, 46), style=style))
    parts = [_translate(0, ROW * row, line_of_key) for row, line_of_key in enumerate(key)]
    columns = max(1, min(COLUMNS, len(panels)))
    description, bottom = [watermark] if watermark else [], ROW * len(key) + 8.0
    top = bottom
    for place, (task, series) in enumerate(panels.items()):
        curves = [one.curve(bands=True) for one in series]
        panel, height = _entry_panel(curves, spent, span, label)
        row, column = divmod(place, columns)
        x, y = column * (svg.WIDTH + GAP), top + row * (HEAD + height)
        parts.append(
            _translate(x, y, text(0, 16, task, style=svg.BOLD), _translate(0, HEAD, *panel))
        )
        description.append(f"{task}: {_entry_words(curves)}")
        bottom = y + HEAD + height
    width = columns * svg.WIDTH + (columns - 1) * GAP
    paper = element("rect", width=width, height=bottom, style=f"fill:{color('paper')}")
    title = f"Learning curves on {', '.join(panels)}"
    return figure(title, " ".join(description), bottom, paper, *parts, width=width)


def _translate(x: float, y: float, *children: str) -> str:
    return element("g", *children, transform=f"translate({svg.num(x)} {svg.num(y)})")


def _key(one: Series) -> str:
    """The sign, the line and the name of an entry."""
    hue, dash = series_color(one.index), _dash(one.index) or "none"
    return element(
        "g",
        text(0, 14, one.key, style=f"{svg.BOLD};fill:{hue}"),
        line(18, 10, 50, 10, stroke(hue, 3, f"stroke-dasharray:{dash}")),
        text(58, 14, svg.fit(one.name, 44)),
    )


# -- profiles ------------------------------------------------------------------------------------


def speed_plot(a: Sequence[float], share: Sequence[float], reference: str) -> str:
    """ρ(a): the share of arrivals that take at most a times the reference's time."""
    x = Scale(math.log(a[0]), math.log(a[-1]), 34, 340)
    labels = ((0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4"))
    ticks = [(math.log(tick), label) for tick, label in labels]
    ticks = [(at, label) for at, label in ticks if x.low - 1e-9 <= at <= x.high + 1e-9]
    curve = Curve(
        mean=_thinned([(math.log(v), s) for v, s in zip(a, share, strict=True)]), weight=2.2
    )
    description = (
        f"Against {reference}: {number(share[0], 2)} at a quarter of its completions, "
        f"{number(share[-1], 2)} at four times as many."
    )
    caption = "times as many completions as the reference"
    return _share_plot("Speed profile", description, curve, x, ticks, caption)


def profile_plot(
    title: str,
    thresholds: Sequence[float],
    share: Sequence[float],
    band: tuple[Sequence[float], Sequence[float]] | None,
    unit: str,
) -> str:
    """Share of runs above each threshold, with its pointwise band."""
    x = Scale(thresholds[0], thresholds[-1], 34, 340)
    points = list(zip(thresholds, share, strict=True))
    ends = _thinned(list(zip(*band, strict=True))) if band is not None else ()
    half = next((a for a, b in points if b < 0.5), thresholds[-1])
    description = f"Half of the runs are above {number(half, 2)}" + (
        ", with a band at 95 %." if band is not None else "; seeds are too few for a band."
    )
    ticks = number_ticks(x.low, x.high, most=5, least=2)
    curve = Curve(mean=_thinned(points), band=ends, weight=2.2)
    return _share_plot(title, description, curve, x, ticks, unit)


def _share_plot(
    title: str, description: str, curve: Curve, x: Scale, ticks: Ticks, caption: str
) -> str:
    """One curve of shares, from 0 to 1."""
    y = Scale(0, 1, 140, UPPER)
    shares = number_ticks(0, 1, most=3, least=1)
    panel = draw_panel([curve], x, y, ticks, caption, y_ticks=shares, grid=True)
    return figure(title, description, _height(y), *panel)


def distance_plot(title: str, description: str, curves: Sequence[Curve]) -> str:
    """Scores over the distance from the start model, d = √KL."""
    points = [point for curve in curves for point in curve.mean]
    far = max(x for x, _ in points) or 1.0
    low, high = min(0.0, *(y for _, y in points)), max(0.2, *(y for _, y in points))
    x, y = Scale(0, far, 34, 300), Scale(low, high, LOWER, UPPER)
    panel = draw_panel(curves, x, y, number_ticks(0, far), "d = √KL from the start, √nats")
    return figure(title, description, _height(y), *panel)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Every k-th point, and the last one."""
    step = -(-len(points) // MOST_POINTS)
    points_drawn = points[::step]
    return points_drawn if points_drawn[-1:] == points[-1:] else [*points_drawn, points[-1]]


# -- dynamics of a study -------------------------------------------------------------------------


def overlay(title: str, traces: Sequence[Trace], x_max: float) -> str:
    """Lines of base and arms over the budget with their signs at the right; bands are seeds.

    The first trace is the base and is drawn in the colour of text.
    """
    curves = [_trace_curve(one, index) for index, one in enumerate(traces) if one.points]
    if not curves:
        return figure(title, "no values", 164)
    low = min(low for curve in curves for low, _ in curve.band)
    high = max(high for curve in curves for _, high in curve.band)
    room = 0.04 * (high - low) or max(1e-9, 0.5 * abs(high)) or 0.5
    x, y = Scale(0, x_max, 46, 312), Scale(low - room, high + room, 122, UPPER)
    y_ticks = number_ticks(y.low, y.high, most=4)
    ticks = budget_ticks(x_max)
    panel = draw_panel(curves, x, y, ticks, "completions", y_ticks=y_ticks)
    ends = [
        f"{curve.key} {number(curve.mean[0][1], 4)} to {number(curve.mean[-1][1], 4)}"
        for curve in curves
    ]
    description = f"{count(len(ends), 'line')}, first to last value: {', '.join(ends)}."
    return figure(title, description, _height(y), *panel)


def _trace_curve(trace: Trace, index: int) -> Curve:
    return Curve(
        f"{trace.key}: {trace.label}",
        mean=[(x, mean) for x, mean, _, _ in trace.points],
        band=[(low, high) for _, _, low, high in trace.points],
        hue=color("ink") if index == 0 else series_color(index - 1),
        dash=_dash(index),
        weight=2,
        shade=".1",
        key=trace.key,
    )
