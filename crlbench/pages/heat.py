"""Heat maps: how strongly a value colours its cell.

A heat map stays an HTML table, because its numbers are read, selected and linked. Figures draw the
other kinds of chart.
"""

from __future__ import annotations

MAX_TINT = 34
"""Strongest ground of a cell, in per cent: text on it keeps its contrast."""


def tone(change: float | None) -> str:
    """The class that gives a cell its colour: ``lost`` below 0, else ``gained``."""
    return "lost" if (change or 0.0) < 0 else "gained"


def tint(change: float | None) -> int:
    """Strength of a cell's ground in per cent; a change of 1 has the strongest."""
    return round(MAX_TINT * min(1.0, abs(change or 0.0)))
