"""What all charts share: labelled axes, and labels at the ends of lines.

A chart is a pure function from plain numbers to SVG text: no scripts, no fonts, no outside
reference; equal numbers give equal bytes. Colours are CSS variables (``--crl-ink``,
``--crl-learned``, ...) with fallbacks, so a page decides on light and dark. Colour is never the
only carrier of meaning. A chart is 360 units wide where nothing else is said, and readable at 360
pixels: several of them stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crlbench.base.wording import grouped, number
from crlbench.pages import svg
from crlbench.pages.svg import GRID, MUTED, ZERO, Scale, element, line, text

Ticks = Sequence[tuple[float, str]]
"""Values on an axis and their labels."""
LETTER = 7.2
"""Mean width of a character of a label."""


def fitted_scale(
    estimates: Iterable[Any], values: Iterable[float], left: float, right: float
) -> Scale:
    """The map of an axis for ``values`` and all estimates with their intervals; else of 0 to 1."""
    ends = list(values)
    for estimate in estimates:
        value = getattr(estimate, "value", None)
        spans = [getattr(estimate, name, None) for name in ("interval", "inner", "wider")]
        ends += [] if value is None else [value]
        ends += [end for span in spans if span is not None for end in (span.low, span.high)]
    if min(ends) == max(ends):
        ends += [0.0, 1.0]
    return Scale(min(ends), max(ends), left, right)


def number_ticks(
    low: float, high: float, most: int = 6, least: int = 0, signed: bool = False
) -> Ticks:
    """Round numbers inside [low, high].

    Args:
        most: how many ticks at most.
        least: how many decimals at least.
    """
    values = svg.ticks(low, high, most)
    digits = max(least, svg.digits(values))
    return [(value, number(value, digits, signed)) for value in values]


def budget_ticks(budget: float, words: Callable[[float], str] = grouped) -> Ticks:
    """Nothing, half and all of a budget."""
    return [(value, words(value)) for value in (0.0, budget / 2, budget)]


def x_axis(
    x: Scale,
    base: float,
    ticks: Ticks,
    *,
    caption: str = "",
    grid: Sequence[tuple[float, float]] | None = None,
    width: float = svg.WIDTH,
) -> str:
    """Labels beneath ``base``, with vertical lines at their values.

    Args:
        grid: upper and lower ends of the lines at each value; None for an axis line with marks.
        width: where the figure ends, which no label crosses.
    """
    parts = []
    if grid is None:
        parts.append(line(x.start, base, x.stop, base, ZERO))
    for value, label in ticks:
        at = x(value)
        style = ZERO if value == 0 or grid is None else GRID
        stretches = [(base, base + 4)] if grid is None else grid
        parts += [line(at, top, at, bottom, style) for top, bottom in stretches]
        half = LETTER / 2 * len(label)
        place, anchor = at, "middle"
        if at < half or at > width - half:
            place, anchor = (0, "start") if at < half else (width, "end")
        if label:
            parts.append(text(place, base + 18, label, text_anchor=anchor, style=MUTED))
    if caption:
        middle = (x.start + x.stop) / 2
        parts.append(text(middle, base + 36, caption, text_anchor="middle", style=MUTED))
    return element("g", *parts)


def y_axis(y: Scale, left: float, right: float, ticks: Ticks) -> str:
    """Labels at the left, with horizontal lines at their values."""
    parts = []
    for value, label in ticks:
        parts.append(line(left, y(value), right, y(value), ZERO if value == 0 else GRID))
        parts.append(text(left - 8, y(value) + 4, label, text_anchor="end", style=MUTED))
    return element("g", *parts)


def end_labels(labels: Sequence[tuple[float, str, str]], y: Scale, right: float) -> str:
    """Labels beside the ends of lines, moved apart where they collide.

    Args:
        labels: value, text and style of each.
    """
    places = svg.spread([y(value) for value, _, _ in labels], 15, y.stop, y.start)
    return element(
        "g",
        *(
            text(right + 8, place + 4, content, style=style)
            for place, (_, content, style) in zip(places, labels, strict=True)
        ),
    )
