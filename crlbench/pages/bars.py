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


def entry_bars(task: str, entries: Sequence[tuple[str, Bar, str]], widest: float) -> str:
    """E = H + L of every entry on one task, on a scale that all tasks of a page share.

    Args:
        entries: sign, area and colour of each.
        widest: upper end of the scale.
    """
    layout = Layout(40, 24, 356, middle=26, upper=2, fits=22)
    x = layout.scale(min([0.0, *(min(bar.head, bar.total) for _, bar, _ in entries)]), widest)
    sums = [f"{number(bar.total)} = {_sum(bar, 3)}" for _, bar, _ in entries]
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
    title, x = f"The four shares of stability on {task}", layout.scale(0, 1)
    ticks = number_ticks(0, 1, most=3, least=1)
    return draw_rows(title, description, rows, x, layout, ticks, ground=rule)


def _share_row(label: str, share: float | None, hue: str, style: str) -> Row:
    bar = [] if share is None else [barred(0, min(1.0, max(0.0, share)), hue, 13)]
    return Row(bar, label, "not rated" if share is None else number(share, 2), style)
