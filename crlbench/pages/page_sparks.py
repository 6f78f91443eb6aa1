"""Small charts of the dynamics: one figure over the iterations, with its alarms marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crlbench.base.wording import count, number
from crlbench.pages import svg
from crlbench.pages.figures import GRID
from crlbench.pages.svg import Scale, color, element, figure, line, mark, polyline

Points = Sequence[tuple[float, float]]
"""(iteration, value)."""
Seeds = Sequence[tuple[int, Points]]
"""Seed index and its points."""
Columns = Sequence[tuple[float, Sequence[float]]]
"""Iteration, and the values of the seeds at it."""


@dataclass(frozen=True)
class Figure:
    """One figure of the dynamics over all seeds."""

    seeds: Seeds
    columns: Columns
    mean: Points
    """Over the seeds that have a value at an iteration."""

    @cached_property
    def values(self) -> frozenset[float]:
        """All that occur."""
        return frozenset().union(*(values for _, values in self.columns))


def over_seeds(seeds: Seeds) -> Figure:
    """The figure that these seeds make."""
    columns = by_iteration(seeds)
    return Figure(seeds, columns, [(i, sum(column) / len(column)) for i, column in columns])


@dataclass(frozen=True)
class Flag:
    """An alarm in a chart: the point that it names."""

    seed: int
    iteration: int
    value: float
    limit: float | None = None
    """Threshold on the axis of the values."""

    @property
    def words(self) -> str:
        return f"alarm: seed {self.seed}, iteration {self.iteration}"


def sparkline(name: str, found: Figure, flags: Sequence[Flag] = ()) -> str:
    """Seeds thin, their mean bold; alarms as triangles, their threshold as a dotted line."""
    width, height, pad = 160, 56, 4
    seeds = found.seeds
    limits = {flag.limit for flag in flags if flag.limit is not None}
    values = [v for _, points in seeds for _, v in points]
    stops = [i for _, points in seeds for i, _ in points]
    if not values:
        return figure(name, "no values", height, width=width)
    low, high = min([*values, *limits]), max([*values, *limits])
    flat = 0.5 if low == high else 0.0
    x = Scale(min(stops), max(stops), pad, width - pad)
    y = Scale(low - flat, high + flat, height - pad, pad + (8 if flags else 0))
    hue = f"stroke:{svg.series_color(0)}"
    thin = f"{hue};{'stroke-width:1;opacity:.45' if len(seeds) > 1 else 'stroke-width:1.6'}"
    parts = [line(pad, height - 1, width - pad, height - 1, GRID)]
    dotted = f"stroke:{color('loss')};stroke-width:1;stroke-dasharray:2 3"
    parts += [line(pad, y(v), width - pad, y(v), dotted) for v in sorted(limits)]
    lines = [_seed(index, _placed(points, x, y)) for index, points in seeds if points]
    parts.append(element("g", *lines, style=f"fill:none;{thin}"))
    if len(seeds) > 1:
        bold = f"{hue};stroke-width:2.2;stroke-linejoin:round"
        parts.append(polyline(_placed(found.mean, x, y), bold))
    parts += [_flag(flag, x, y) for flag in flags]
    return figure(name, _words(seeds, values, flags), height, *parts, width=width)


def _seed(index: int, places: Points) -> str:
    """The line of a seed, whose name appears when the pointer rests on it."""
    return element("path", element("title", f"seed {index}"), d=svg.path(places))


def _placed(points: Points, x: Scale, y: Scale) -> list[tuple[float, float]]:
    return list(zip(x.all(i for i, _ in points), y.all(v for _, v in points), strict=True))


def _flag(flag: Flag, x: Scale, y: Scale) -> str:
    style = f"fill:{color('loss')};stroke:{color('paper')};stroke-width:1"
    return mark("down", x(flag.iteration), y(flag.value) - 6, 4.5, style, flag.words)


def _words(seeds: Seeds, values: Sequence[float], flags: Sequence[Flag]) -> str:
    low, high = number(min(values), 4), number(max(values), 4)
    spans = f"{count(len(seeds), 'seed')}, from {low} to {high}"
    return ". ".join([spans, *(flag.words.capitalize() for flag in flags)]) + "."


def trend(name: str, found: Figure) -> str:
    """A row-high chart: the mean over the seeds on the range that they span."""
    width, height, pad = 132, 30, 2
    columns, seeds = found.columns, len(found.seeds)
    if not columns:
        return figure(name, "no values", height, width=width)
    lows, highs = [min(column) for _, column in columns], [max(column) for _, column in columns]
    low, high = min(lows), max(highs)
    flat = 0.5 if low == high else 0.0
    x = Scale(columns[0][0], columns[-1][0], pad, width - pad)
    y = Scale(low - flat, high + flat, height - pad, pad)
    across, hue = x.all(i for i, _ in columns), svg.series_color(0)
    parts = []
    if seeds > 1:
        there = zip(across, y.all(highs), strict=True)
        back = zip(reversed(across), y.all(reversed(lows)), strict=True)
        area = svg.path([*there, *back], close=True)
        parts.append(element("path", d=area, style=f"fill:{hue};opacity:.16"))
    stroke = f"stroke:{hue};stroke-width:1.8;stroke-linejoin:round"
    heights = y.all(value for _, value in found.mean)
    parts.append(polyline(zip(across, heights, strict=True), stroke))
    described = f"{count(seeds, 'seed')}, from {number(low, 4)} to {number(high, 4)}."
    return figure(name, described, height, *parts, width=width)


def by_iteration(seeds: Seeds) -> Columns:
    """The values of the seeds that have one at an iteration, in order."""
    if seeds and all(points for _, points in seeds):
        grids, values = zip(*(zip(*points, strict=True) for _, points in seeds), strict=True)
        if all(grid == grids[0] for grid in grids):
            return list(zip(grids[0], zip(*values, strict=True), strict=True))
    columns: dict[float, list[float]] = {}
    for _, points in seeds:
        for iteration, value in points:
            columns.setdefault(iteration, []).append(value)
    return sorted(columns.items())
