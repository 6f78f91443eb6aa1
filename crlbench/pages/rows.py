"""A chart of rows: a label, a value and glyphs on one x-axis. Dots and bars are such charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crlbench.pages import svg
from crlbench.pages.frame import Ticks, x_axis
from crlbench.pages.svg import BOLD, GRID, TABULAR, Scale, element, figure, line, text

Glyph = Callable[[Scale, float], str]
"""What a row shows, as a function of the x-axis and the height of the row."""


def marked(
    value: float,
    style: str,
    shape: str = "circle",
    size: float = 5.5,
    title: str = "",
    lower: float = 0,
) -> Glyph:
    """A marker at a value, ``lower`` units beneath the middle of the row."""
    return lambda x, y: svg.mark(shape, x(value), y + lower, size, style, title)


def spanned(low: float, high: float, style: str, lower: float = 0) -> Glyph:
    """A line from one value to another."""
    return lambda x, y: line(x(low), y + lower, x(high), y + lower, style)


def barred(start: float, end: float, hue: str, thick: float = 16) -> Glyph:
    """A bar from one value to another."""

    def draw(x: Scale, y: float) -> str:
        low, high = sorted((x(start), x(end)))
        place = {"x": low, "y": y - thick / 2, "width": high - low, "height": thick}
        return element("rect", **place, style=f"fill:{hue}")

    return draw


@dataclass(frozen=True)
class Row:
    """One line of the chart."""

    glyphs: Sequence[Glyph]
    label: str = ""
    note: str = ""
    """Text at the right."""
    style: str = ""
    """CSS of label and note."""
    key: str = ""
    """Sign at the left of the glyphs."""
    hue: str = ""
    """Colour of the sign."""


@dataclass(frozen=True)
class Layout:
    """Where a chart of rows puts things, in units of its coordinate system."""

    height: float
    """Height of a row."""
    left: float
    right: float
    middle: float
    """Height of the glyphs, from the top of their row."""
    upper: float = 4
    """Room above the first row."""
    beside: bool = False
    """Whether labels are left of the glyphs; otherwise they are above them."""
    fits: int = 24
    """Characters of a label."""
    reach: float | None = None
    """Length of grid lines above and beneath the glyphs; None leads them through all rows."""
    track: bool = False
    """Whether a line leads through the glyphs of each row."""
    width: float = svg.WIDTH
    size: float = 13

    def scale(self, low: float, high: float) -> Scale:
        """The map from data to the x-axis."""
        return Scale(low, high, self.left, self.right)


def draw_rows(
    title: str,
    description: str,
    rows: Sequence[Row],
    x: Scale,
    layout: Layout,
    ticks: Ticks,
    *,
    caption: str = "",
    ground: str = "",
) -> str:
    """The whole figure.

    Args:
        ticks: values with grid lines; an axis with labels follows the rows if some have one.
        caption: name of the x-axis.
        ground: SVG behind everything.
    """
    upper, width, reach = layout.upper, layout.width, layout.reach
    base = upper + layout.height * len(rows)
    below = 44 if caption else 24 if any(label for _, label in ticks) else 0
    middles = [upper + layout.height * i + layout.middle for i in range(len(rows))]
    grid = [(upper, base + (4 if below else 0))]
    if reach is not None:
        grid = [(y - reach, y + reach) for y in middles if reach]
    parts = [ground, x_axis(x, base, ticks, caption=caption, grid=grid, width=width)]
    parts += [_draw_row(row, x, y, layout) for row, y in zip(rows, middles, strict=True)]
    return figure(title, description, base + below, *parts, width=width, size=layout.size)


def _draw_row(row: Row, x: Scale, middle: float, layout: Layout) -> str:
    baseline = middle + (4 if layout.beside else 14 - layout.middle)
    left, right = (0, layout.width) if layout.beside else (x.start, x.stop)
    parts = []
    if row.key:
        parts.append(text(2, middle + 4, row.key, style=f"{BOLD};fill:{row.hue}"))
    if row.label:
        parts.append(text(left, baseline, svg.fit(row.label, layout.fits), style=row.style))
    if row.note:
        style = f"{TABULAR};{row.style}" if row.style else TABULAR
        parts.append(text(right, baseline, row.note, text_anchor="end", style=style))
    if layout.track:
        parts.append(line(x.start, middle, x.stop, middle, GRID))
    return element("g", *parts, *(glyph(x, middle) for glyph in row.glyphs))
