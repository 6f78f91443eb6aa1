"""Small helpers to write SVG as text: elements, numbers, scales, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from itertools import chain

from crlbench.base.wording import visible

WIDTH = 360
"""Width of a figure's coordinate system: at 360 CSS pixels text has its nominal size."""

COLORS = {
    "ink": "#1b1f24",
    "muted": "#5b6470",
    "grid": "#dfe3e8",
    "paper": "#ffffff",
    "learned": "#0067a8",
    "head": "#a9b4c0",
    "loss": "#b8470a",
    "better": "#00785a",
    "worse": "#b8470a",
    "equivalent": "#0067a8",
    "undecided": "#5b6470",
}
"""Fallbacks of the CSS variables ``--crl-<name>`` (Okabe-Ito hues, darkened for contrast)."""

SERIES = ("#0067a8", "#b8470a", "#00785a", "#8a4f7d", "#8a6400", "#4b5563")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 3")
MARKS = ("circle", "square", "triangle", "diamond", "plus", "cross")


def color(name: str) -> str:
    """A CSS colour: the page's variable, or its fallback where the page sets none."""
    return f"var(--crl-{name},{COLORS[name]})"


def series_color(index: int) -> str:
    i = index % len(SERIES)
    return f"var(--crl-series-{i},{SERIES[i]})"


def stroke(hue: str, width: float, more: str = "") -> str:
    """The style of a line; ``more`` is further CSS."""
    return f"stroke:{hue};stroke-width:{width:g}{more and f';{more}'}"


def solid(hue: str, edge: float = 1.5) -> str:
    """The style of a filled marker."""
    return f"fill:{hue};{stroke(color('paper'), edge)}"


def hollow(hue: str, edge: float) -> str:
    """The style of a marker that is a ring."""
    return f"fill:{color('paper')};{stroke(hue, edge)}"


def crossed(hue: str, edge: float) -> str:
    """The style of a marker of strokes."""
    return f"{stroke(hue, edge)};fill:none"


MUTED = f"fill:{color('muted')}"
GRID = stroke(color("grid"), 1)
ZERO = stroke(color("muted"), 1)
HALO = f"paint-order:stroke;stroke:{color('paper')};stroke-width:4px;stroke-linejoin:round"
BOLD = "font-weight:650"
TABULAR = "font-variant-numeric:tabular-nums"


def num(value: float) -> str:
    """A coordinate with one decimal, without a trailing zero."""
    text = f"{value:.1f}"
    return text[:-2].replace("-0", "0") if text.endswith(".0") else text


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """``<tag ...>children</tag>``; children are SVG already, attributes are escaped.

    An underscore in a name becomes a hyphen, a trailing one is dropped (``class_``). An empty
    attribute is left out.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value != "":
            text = escape(value) if isinstance(value, str) else num(value)
            parts.append(f'{_hyphened(name)}="{text}"')
    opening = " ".join(parts)
    return f"<{opening}>{''.join(children)}</{tag}>" if children else f"<{opening}/>"


@lru_cache(maxsize=256)
def _hyphened(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def text(x: float, y: float, content: str, **attributes: str | float) -> str:
    """A text element; its content is escaped and freed of invisible characters."""
    return element("text", clean(content), x=x, y=y, **attributes)


def clean(content: str) -> str:
    """Any string as XML text."""
    return escape(visible(content).replace("\n", " "))


def figure(
    title: str,
    description: str,
    height: float,
    *children: str,
    width: float = WIDTH,
    size: float = 13,
) -> str:
    """The root of a figure, named and described for those who cannot see it.

    Args:
        size: font size of its texts.
    """
    return element(
        "svg",
        element("title", clean(title)),
        element("desc", clean(description)),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {num(width)} {num(height)}",
        role="img",
        class_="crl-figure",
        style=f"font:{size:g}px system-ui,sans-serif;fill:{color('ink')};width:100%;height:auto",
    )


def fit(label: str, characters: int) -> str:
    """A label cut to its place; the figure's description has it whole."""
    return label if len(label) <= characters else label[: characters - 1] + "…"


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, style=style)


def polyline(points: Iterable[tuple[float, float]], style: str, title: str = "") -> str:
    """An open line; ``title`` appears when the pointer rests on it."""
    inside = (element("title", clean(title)),) if title else ()
    return element("path", *inside, d=path(points), style=f"fill:none;{style}")


def path(points: Iterable[tuple[float, float]], close: bool = False) -> str:
    """Points as the ``d`` of a path, each coordinate as :func:`num` writes it.

    All at once: a page of curves has thousands of them.
    """
    numbers = tuple(chain.from_iterable(points))
    text = ("%.1f %.1fL" * (len(numbers) // 2))[:-1] % numbers + "Z"
    whole = text.replace("-0.0", "0.0").replace(".0 ", " ").replace(".0L", "L").replace(".0Z", "Z")
    return f"M{whole if close else whole[:-1]}"


def mark(shape: str, x: float, y: float, r: float, style: str, title: str = "") -> str:
    """A marker of about radius ``r``: colour is never the only difference."""
    inside = (element("title", clean(title)),) if title else ()
    if shape == "circle":
        return element("circle", *inside, cx=x, cy=y, r=r, style=style)
    return element("path", *inside, d=_shape(shape, x, y, r), style=style)


def _shape(shape: str, x: float, y: float, r: float) -> str:
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
        "triangle": [(0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        "down": [(0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
    }
    if shape in corners:
        return "M" + "L".join(f"{num(x + r * a)} {num(y + r * b)}" for a, b in corners[shape]) + "Z"
    a, b, c, d = x - r, x + r, y - r, y + r
    if shape == "bar":
        return f"M{num(x)} {num(c)}L{num(x)} {num(d)}"
    if shape == "cross":
        return f"M{num(a)} {num(c)}L{num(b)} {num(d)}M{num(a)} {num(d)}L{num(b)} {num(c)}"
    return f"M{num(a)} {num(y)}L{num(b)} {num(y)}M{num(x)} {num(c)}L{num(x)} {num(d)}"


class Scale:
    """A linear map from data to coordinates."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0
        self.start, self.stop = start, stop

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def all(self, values: Iterable[float]) -> list[float]:
        """The same for many values."""
        low, span = self.low, self.high - self.low
        start, room = self.start, self.stop - self.start
        return [start + (value - low) / span * room for value in values]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high]."""
    exponent = -6
    while True:
        for factor in (1, 2, 5):
            # Whole multiples of the step: no rounding error accumulates.
            step = factor * 10.0**exponent
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first + 1 <= most:
                return [round(k * step, 9) for k in range(first, last + 1)]
        exponent += 1


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``wanted`` that keep ``gap`` between labels, inside [low, high]."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    floor = low
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def digits(values: Sequence[float]) -> int:
    """Decimals that tell round ticks apart."""
    step = min((b - a for a, b in zip(values, values[1:], strict=False)), default=1.0)
    return max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
