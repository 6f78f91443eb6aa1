"""Figures of the three axes: when thresholds are reached, what stability is made of, profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crlbench.base.wording import grouped, number
from crlbench.pages import svg
from crlbench.pages.figures import BOLD, GRID, MUTED, TABULAR, ZERO, budget_axis, value_axis
from crlbench.pages.svg import Scale, color, element, figure, line, mark, polyline, text

MOST_POINTS = 120
"""A longer curve is thinned: no more fit into a figure's width."""


@dataclass(frozen=True)
class ArrivalRow:
    """When the seeds of one task reach one threshold."""

    tau: float
    times: Sequence[tuple[int, float]]
    """(seed index, completions); inf for a run that does not arrive."""
    restricted_mean: float

    @property
    def arrived(self) -> int:
        return sum(math.isfinite(time) for _, time in self.times)


def arrival_plot(task: str, rows: Sequence[ArrivalRow], budget: float) -> str:
    """A ring per seed where it arrives, a cross at the budget where not, the mean as a bar."""
    row, left, right, upper = 36, 58, 306, 4
    x = Scale(0, budget, left, right)
    base = upper + row * len(rows)
    parts = [budget_axis(x, base, budget, "completions")]
    parts.append(line(right, upper, right, base, f"{GRID};stroke-dasharray:3 3"))
    for index, one in enumerate(rows):
        parts.append(_arrivals(one, x, upper + row * index + row / 2, budget))
    described = " ".join(
        f"u {number(one.tau, 2)}: {one.arrived} of {len(one.times)} seeds arrive, "
        f"restricted mean {grouped(one.restricted_mean)} completions."
        for one in rows
    )
    return figure(f"Samples to threshold on {task}", described, base + 44, *parts)


def _arrivals(row: ArrivalRow, x: Scale, y: float, budget: float) -> str:
    step = min(5.0, 22 / max(1, len(row.times)))
    parts = [
        text(0, y + 4, f"u ≥ {number(row.tau, 2)}"),
        text(360, y + 4, f"{row.arrived}/{len(row.times)}", text_anchor="end", style=TABULAR),
        line(x.start, y, x.stop, y, GRID),
    ]
    bar, mean = f"stroke:{color('learned')};stroke-width:3", x(row.restricted_mean)
    parts.append(line(mean, y - 12, mean, y + 12, bar))
    for place, (seed, time) in enumerate(row.times):
        height = y + step * (place - (len(row.times) - 1) / 2)
        parts.append(_arrival(seed, time, x, height, budget))
    return element("g", *parts)


def _arrival(seed: int, time: float, x: Scale, y: float, budget: float) -> str:
    if not math.isfinite(time):
        late = f"stroke:{color('loss')};stroke-width:1.8;fill:none"
        return mark("cross", x(budget), y, 3.2, late, f"seed {seed}: not within the budget")
    ring = f"fill:{color('paper')};stroke:{color('ink')};stroke-width:1.3"
    return mark("circle", x(time), y, 3.2, ring, f"seed {seed}: {grouped(time)} completions")


def share_bars(task: str, shares: Mapping[str, float], value: float | None) -> str:
    """The four shares of a task's stability and, beneath them, their geometric mean."""
    row, left, right, upper = 25, 112, 304, 2
    x = Scale(0, 1, left, right)
    base = upper + row * (len(shares) + 1) + 6
    parts = [value_axis(x, [(upper, base)], base, most=3)]
    for index, (label, share) in enumerate(shares.items()):
        parts.append(_share(label, share, x, upper + row * index, color("head"), ""))
    line_y = upper + row * len(shares) + 3
    parts.append(line(0, line_y, 360, line_y, ZERO))
    parts.append(_share("Stab", value, x, line_y + 3, color("learned"), BOLD))
    listed = [f"{label} {number(share)}" for label, share in shares.items()]
    described = f"{', '.join(listed)}; geometric mean {number(value)}."
    return figure(f"The four shares of stability on {task}", described, base + 24, *parts)


def _share(label: str, share: float | None, x: Scale, y: float, hue: str, style: str) -> str:
    middle = y + 17
    shown = "not rated" if share is None else number(share, 2)
    parts = [
        text(0, middle, label, style=style),
        text(360, middle, shown, text_anchor="end", style=f"{TABULAR};{style}"),
    ]
    if share is not None:
        size = x(min(1.0, max(0.0, share))) - x.start
        bar = f"fill:{hue}"
        parts.append(element("rect", x=x.start, y=y + 6, width=size, height=13, style=bar))
    return element("g", *parts)


def speed_plot(a: Sequence[float], share: Sequence[float], reference: str) -> str:
    """ρ(a): the share of arrivals that take at most a times the reference's time."""
    height, left, right, upper, lower = 186, 34, 340, 8, 140
    low, high = math.log(a[0]), math.log(a[-1])
    x, y = Scale(low, high, left, right), Scale(0, 1, lower, upper)
    parts = [_share_axis(y, left, right)]
    for tick, label in ((0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4")):
        if low - 1e-9 <= math.log(tick) <= high + 1e-9:
            at = x(math.log(tick))
            parts.append(line(at, upper, at, lower, ZERO if tick == 1 else GRID))
            parts.append(text(at, lower + 18, label, text_anchor="middle", style=MUTED))
    caption = "times as many completions as the reference"
    middle = (left + right) / 2
    parts.append(text(middle, lower + 36, caption, text_anchor="middle", style=MUTED))
    places = [(x(math.log(v)), y(s)) for v, s in _thinned(list(zip(a, share, strict=True)))]
    parts.append(polyline(places, f"stroke:{svg.series_color(0)};stroke-width:2.2"))
    described = f"Against {reference}: {number(share[0], 2)} at a quarter of its completions, " + (
        f"{number(share[-1], 2)} at four times as many."
    )
    return figure("Speed profile", described, height, *parts)


def profile_plot(
    title: str,
    thresholds: Sequence[float],
    share: Sequence[float],
    band: tuple[Sequence[float], Sequence[float]] | None,
    unit: str,
) -> str:
    """Share of runs above each threshold, with its pointwise band."""
    height, left, right, upper, lower = 186, 34, 340, 8, 140
    x, y = Scale(thresholds[0], thresholds[-1], left, right), Scale(0, 1, lower, upper)
    parts = [_share_axis(y, left, right)]
    for tick in svg.ticks(thresholds[0], thresholds[-1], 5):
        parts.append(line(x(tick), upper, x(tick), lower, ZERO if tick == 0 else GRID))
        label = number(tick, 2)
        parts.append(text(x(tick), lower + 18, label, text_anchor="middle", style=MUTED))
    middle = (left + right) / 2
    parts.append(text(middle, lower + 36, unit, text_anchor="middle", style=MUTED))
    hue = svg.series_color(0)
    if band is not None:
        lows, highs = (list(zip(thresholds, side, strict=True)) for side in band)
        there = [f"{svg.num(x(a))} {svg.num(y(b))}" for a, b in _thinned(highs)]
        back = [f"{svg.num(x(a))} {svg.num(y(b))}" for a, b in reversed(_thinned(lows))]
        area = f"M{'L'.join(there + back)}Z"
        parts.append(element("path", d=area, style=f"fill:{hue};opacity:.16"))
    curve = _thinned(list(zip(thresholds, share, strict=True)))
    parts.append(polyline([(x(a), y(b)) for a, b in curve], f"stroke:{hue};stroke-width:2.2"))
    half = next((a for a, b in zip(thresholds, share, strict=True) if b < 0.5), thresholds[-1])
    described = f"Half of the runs are above {number(half, 2)}" + (
        ", with a band at 95 %." if band is not None else "; seeds are too few for a band."
    )
    return figure(title, described, height, *parts)


def _share_axis(y: Scale, left: float, right: float) -> str:
    parts = []
    for tick in (0.0, 0.5, 1.0):
        parts.append(line(left, y(tick), right, y(tick), ZERO if tick == 0 else GRID))
        label = number(tick, 1)
        parts.append(text(left - 8, y(tick) + 4, label, text_anchor="end", style=MUTED))
    return element("g", *parts)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Every k-th point, and the last one."""
    step = -(-len(points) // MOST_POINTS)
    kept = points[::step]
    return kept if kept[-1:] == points[-1:] else [*kept, points[-1]]


def axis_strip(
    title: str,
    value: float | None,
    interval: tuple[float, float] | None,
    wider: tuple[float, float] | None,
) -> str:
    """One headline on the stretch from 0 to 1: thick 95 %, thin the interval over tasks too."""
    width, height, middle = 200, 30, 9
    known = [v for pair in (interval, wider) if pair is not None for v in pair]
    known += [] if value is None else [value]
    x = Scale(min([0.0, *known]), max([1.0, *known]), 6, width - 6)
    parts = [line(x.start, middle, x.stop, middle, GRID)]
    for tick in (0.0, 0.5, 1.0):
        parts.append(line(x(tick), middle - 4, x(tick), middle + 4, ZERO if tick == 0 else GRID))
        anchor = "middle" if 12 < x(tick) < width - 12 else "start" if tick < 0.5 else "end"
        at = {"start": x(tick) - 4, "end": x(tick) + 4}.get(anchor, x(tick))
        size = f"{MUTED};font-size:11px"
        parts.append(text(at, height - 3, number(tick, 1), text_anchor=anchor, style=size))
    for pair, thick in ((wider, 2), (interval, 6)):
        if pair is not None:
            low, high = (x(v) for v in pair)
            stroke = f"stroke:{color('learned')};stroke-width:{thick};stroke-linecap:round"
            parts.append(line(low, middle, high, middle, f"{stroke};opacity:.55"))
    if value is not None:
        solid = f"fill:{color('learned')};stroke:{color('paper')};stroke-width:1.5"
        parts.append(mark("circle", x(value), middle, 5.5, solid))
    listed = [
        f"{name} {number(pair[0])} to {number(pair[1])}"
        for name, pair in (("95 %", interval), ("with other tasks", wider))
        if pair is not None
    ]
    described = "; ".join([f"{number(value)}" if value is not None else "no value", *listed])
    return figure(title, f"{described}.", height, *parts, width=width)
