"""Learning curves of entries as one figure: a key, and a panel for each task on common scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crlbench.pages import svg
from crlbench.pages.compare_figures import (
    PANEL_HEIGHT,
    Series,
    common_scales,
    curve_panel,
    curve_words,
)
from crlbench.pages.svg import color, element, figure, text

COLUMNS = 2
GAP, HEAD, ROW, EDGE = 24, 26, 20, 8
"""Room between columns, above a panel for its name, for a row of the key, and beneath it."""


def curve_sheet(
    panels: Mapping[str, Sequence[Series]], label: str, watermark: str | None = None
) -> str:
    """One SVG: every seed thin, the mean bold, its interval shaded.

    Args:
        panels: by task the entries that have it.
        label: of the x-axis.
        watermark: why the entries are not comparable; None where they are.
    """
    spent, span = common_scales([one.view for all_ in panels.values() for one in all_], bands=True)
    columns = max(1, min(COLUMNS, len(panels)))
    names = {one.index: one for all_ in panels.values() for one in all_}
    key = [*_warning(watermark), *(_key(names[i]) for i in sorted(names))]
    top = ROW * len(key) + EDGE
    rows = -(-len(panels) // columns)
    width = columns * svg.WIDTH + (columns - 1) * GAP
    height = top + rows * (HEAD + PANEL_HEIGHT)
    parts = [element("rect", width=width, height=height, style=f"fill:{color('paper')}")]
    parts += [_moved(0, ROW * row, drawn) for row, drawn in enumerate(key)]
    for place, (task, series) in enumerate(panels.items()):
        row, column = divmod(place, columns)
        inside = curve_panel(series, spent, span, label, bands=True)
        head = text(0, 16, task, style="font-weight:650")
        x, y = column * (svg.WIDTH + GAP), top + row * (HEAD + PANEL_HEIGHT)
        parts.append(_moved(x, y, head, _moved(0, HEAD, *inside)))
    told = [f"{task}: {curve_words(series)}" for task, series in panels.items()]
    described = " ".join([*([watermark] if watermark else []), *told])
    title = f"Learning curves on {', '.join(panels)}"
    return figure(title, described, height, *parts, width=width)


def _moved(x: float, y: float, *children: str) -> str:
    return element("g", *children, transform=f"translate({svg.num(x)} {svg.num(y)})")


def _warning(watermark: str | None) -> list[str]:
    if watermark is None:
        return []
    return [text(0, 14, svg.fit(watermark, 46), style=f"font-weight:650;fill:{color('loss')}")]


def _key(one: Series) -> str:
    """The sign, the line and the name of an entry."""
    hue = svg.series_color(one.index)
    dash = svg.DASHES[one.index % len(svg.DASHES)] or "none"
    style = f"stroke:{hue};stroke-width:3;stroke-dasharray:{dash}"
    return element(
        "g",
        text(0, 14, one.key, style=f"font-weight:650;fill:{hue}"),
        svg.line(18, 10, 50, 10, style),
        text(58, 14, svg.fit(one.name, 44)),
    )
