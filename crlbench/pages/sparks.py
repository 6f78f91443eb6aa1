"""Small charts of the dynamics: one figure over the iterations, with its alarms marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from crlbench.base.wording import count, number
from crlbench.pages.curves import Curve, Points, SeedCurve, draw_curves
from crlbench.pages.svg import GRID, Scale, color, figure, line, mark, solid, stroke

Seeds = Sequence[tuple[int, Points]]
"""Seed index and its points."""
Columns = Sequence[tuple[float, Sequence[float]]]
"""Iteration, and the values of the seeds at it."""


@dataclass(frozen=True)
class Spread:
    """One figure of the dynamics over all seeds."""

    seeds: Seeds
    columns: Columns
    mean: Points
    """Mean over the seeds that have a value at an iteration."""

    @cached_property
    def values(self) -> frozenset[float]:
        """All values that occur."""
        return frozenset().union(*(values for _, values in self.columns))


def combine_seeds(seeds: Seeds) -> Spread:
    """The figure that these seeds make."""
    at: dict[float, list[float]] = {}
    for _, points in seeds:
        for iteration, value in points:
            at.setdefault(iteration, []).append(value)
    columns = sorted(at.items())
    return Spread(seeds, columns, [(i, sum(column) / len(column)) for i, column in columns])


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
        """Which run raised it, and when."""
        return f"alarm: seed {self.seed}, iteration {self.iteration}"


def sparkline(name: str, spread: Spread, flags: Sequence[Flag] = ()) -> str:
    """Seeds thin, their mean bold; alarms as triangles, their threshold as a dotted line."""
    width, height, pad = 160, 56, 4
    if not spread.columns:
        return figure(name, "no values", height, width=width)
    limits = {flag.limit for flag in flags if flag.limit is not None}
    stops = [iteration for iteration, _ in spread.columns]
    x = Scale(min(stops), max(stops), pad, width - pad)
    top = pad + (8 if flags else 0)
    y = _height_scale({*spread.values, *limits}, height - pad, top)
    seeds = [_seed_curve(index, points) for index, points in spread.seeds if points]
    mean = spread.mean if len(spread.seeds) > 1 else ()
    dotted = stroke(color("loss"), 1, "stroke-dasharray:2 3")
    parts = [line(pad, height - 1, width - pad, height - 1, GRID)]
    parts += [line(pad, y(v), width - pad, y(v), dotted) for v in sorted(limits)]
    parts += draw_curves([Curve(seeds=seeds, mean=mean, weight=2.2)], x, y)
    parts += [_flag(flag, x, y) for flag in flags]
    description = ". ".join([_words(spread), *(flag.words.capitalize() for flag in flags)])
    return figure(name, f"{description}.", height, *parts, width=width)


def _seed_curve(index: int, points: Points) -> SeedCurve:
    x, y = zip(*points, strict=True)
    return SeedCurve(index, x, y, len(points))


def _height_scale(values: Collection[float], start: float, stop: float) -> Scale:
    """The y-axis of all values; one value alone lies in the middle."""
    low, high = min(values), max(values)
    flat = 0.5 if low == high else 0.0
    return Scale(low - flat, high + flat, start, stop)


def _flag(flag: Flag, x: Scale, y: Scale) -> str:
    style = solid(color("loss"), 1)
    return mark("down", x(flag.iteration), y(flag.value) - 6, 4.5, style, flag.words)


def _words(spread: Spread) -> str:
    low, high = number(min(spread.values), 4), number(max(spread.values), 4)
    return f"{count(len(spread.seeds), 'seed')}, from {low} to {high}"


def trend(name: str, spread: Spread) -> str:
    """A row-high chart: the mean over the seeds on the range that they span."""
    width, height, pad = 132, 30, 2
    if not spread.columns:
        return figure(name, "no values", height, width=width)
    ends = [(min(column), max(column)) for _, column in spread.columns]
    band = ends if len(spread.seeds) > 1 else ()
    x = Scale(spread.columns[0][0], spread.columns[-1][0], pad, width - pad)
    y = _height_scale(spread.values, height - pad, pad)
    curve = draw_curves([Curve(mean=spread.mean, band=band, weight=1.8)], x, y)
    return figure(name, f"{_words(spread)}.", height, *curve, width=width)
