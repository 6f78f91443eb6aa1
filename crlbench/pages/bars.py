"""Charts of bars: areas as what the start brought and what training added, and shares of 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crlbench.base.wording import number
from crlbench.pages.frame import number_ticks
from crlbench.pages.rows import Glyph, Layout, Row, barred, draw_rows
from crlbench.pages.svg import BOLD, ZERO, color, line


@dataclass(frozen=True)
class Bar:
    """E = H + L of one task or entry."""

    label: str
    head: float
    learned: float

    @property
    def total(self) -> float:
        """E."""
        return self.head + self.learned

    @property
    def blocks(self) -> tuple[Glyph, Glyph]:
        """H, and L beside it; a loss is drawn thinner, over what H has lost."""
        is_loss = self.learned < 0
        return (
            barred(0, self.total if is_loss else self.head, color("head")),
            barred(
                self.head,
                self.total,
                color("loss" if is_loss else "learned"),
                10 if is_loss else 16,
            ),
        )


def stacked_bars(bars: Sequence[Bar]) -> str:
    """E = H + L: what the start model brought, and what RL added (or lost)."""
    layout = Layout(48, 4, 356, middle=28, reach=12)
    low = min([0.0, *(min(bar.head, bar.total) for bar in bars)])
    high = max([0.2, *(max(bar.head, bar.total) for bar in bars)])
    x = layout.scale(low, high * 1.02)
    description = " ".join(
        f"{bar.label}: E {number(bar.total)} is H {number(bar.head)} "
        f"and L {number(bar.learned, signed=True)}."
        for bar in bars
    )
    rows = [Row(bar.blocks, bar.label, f"{_sum(bar, 2)} = {number(bar.total, 2)}") for bar in bars]
    title = "Area under the curve, E, as head start H plus learned area L"
    return draw_rows(title, description, rows, x, layout, number_ticks(x.low, x.high, least=1))


def _sum(bar: Bar, digits: int) -> str:
    sign = "+" if bar.learned >= 0 else "−"
    return f"{number(bar.head, digits)} {sign} {number(abs(bar.learned), digits)}"


@dataclass(frozen=True)
class PartedBar:
    """E = H + L_known + L_new of one task or entry."""

    label: str
    head: float
    known: float
    new: float

    @property
    def total(self) -> float:
        """E."""
        return self.head + self.known + self.new

    @property
    def ends(self) -> tuple[float, float, float, float]:
        """Where the parts meet, from 0."""
        return 0.0, self.head, self.head + self.known, self.total

    @property
    def blocks(self) -> tuple[Glyph, ...]:
        """H, L_known and L_new beside one another; a loss is drawn thinner, over what it takes."""
        hues = (color("head"), color("learned"), color("better"))
        glyphs = []
        for low, high, hue in zip(self.ends, self.ends[1:], hues, strict=False):
            is_loss = high < low
            left, right = min(low, high), max(low, high)
            glyphs.append(
                barred(left, right, color("loss") if is_loss else hue, 10 if is_loss else 16)
            )
        return tuple(glyphs)


def parted_bars(bars: Sequence[PartedBar]) -> str:
    """E = H + L_known + L_new: the start, what it answers greedily, and what it does not."""
    layout = Layout(48, 4, 356, middle=28, reach=12)
    low = min(0.0, *(min(bar.ends) for bar in bars))
    high = max(0.2, *(max(bar.ends) for bar in bars))
    x = layout.scale(low, high * 1.02)
    description = " ".join(
        f"{bar.label}: E {number(bar.total)} is H {number(bar.head)}, L_known "
        f"{number(bar.known, signed=True)} and L_new {number(bar.new, signed=True)}."
        for bar in bars
    )
    rows = [Row(bar.blocks, bar.label, _parts(bar)) for bar in bars]
    title = "Area under the curve, E, as head start, known before and new"
    return draw_rows(title, description, rows, x, layout, number_ticks(x.low, x.high, least=1))


def _parts(bar: PartedBar) -> str:
    signs = ["+" if part >= 0 else "−" for part in (bar.known, bar.new)]
    return (
        f"{number(bar.head, 2)} {signs[0]} {number(abs(bar.known), 2)} {signs[1]} "
        f"{number(abs(bar.new), 2)} = {number(bar.total, 2)}"
    )


def entry_bars(task: str, entries: Sequence[tuple[str, Bar, str]], widest: float) -> str:
    """E = H + L of every entry on one task, on a scale that all tasks of a page share.

    Args:
        entries: sign, area and colour of each.
        widest: upper end of the scale.
    """
    layout = Layout(40, 24, 356, middle=26, upper=2, fits=22)
    x = layout.scale(min([0.0, *(min(bar.head, bar.total) for _, bar, _ in entries)]), widest)
    sums = [f"{number(bar.total)} = {_sum(bar, 2)}" for _, bar, _ in entries]
    pairs = list(zip(entries, sums, strict=True))
    rows = [Row(bar.blocks, bar.label, sum_, key=key, hue=hue) for (key, bar, hue), sum_ in pairs]
    description = " ".join(f"{key}: E {sum_}." for (key, _, _), sum_ in pairs) or "no values"
    return draw_rows(f"E = H + L on {task}", description, rows, x, layout, [(0, "")])


def share_bars(task: str, shares: Mapping[str, float], value: float | None) -> str:
    """The shares of a task's stability and, beneath them, their geometric mean."""
    layout = Layout(25, 112, 304, middle=12.5, upper=2, beside=True)
    rows = [_share_row(label, share, color("head"), "") for label, share in shares.items()]
    rows.append(_share_row("Stab", value, color("learned"), BOLD))
    sentence = ", ".join(f"{label} {number(share)}" for label, share in shares.items())
    description = f"{sentence}; geometric mean {number(value)}."
    above = layout.upper + layout.height * len(shares)
    rule = line(0, above, layout.width, above, ZERO)
    how_many = {3: "three", 4: "four"}.get(len(shares), str(len(shares)))
    title, x = f"The {how_many} shares of stability on {task}", layout.scale(0, 1)
    ticks = number_ticks(0, 1, most=3, least=1)
    return draw_rows(title, description, rows, x, layout, ticks, ground=rule)


def _share_row(label: str, share: float | None, hue: str, style: str) -> Row:
    bar = [] if share is None else [barred(0, min(1.0, max(0.0, share)), hue, 13)]
    return Row(bar, label, "not rated" if share is None else number(share, 2), style)
