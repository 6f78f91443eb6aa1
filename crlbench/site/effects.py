"""Figures of entries against their bases, a column for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.verdict.axes import AXES, AXIS_WORDS, MARGIN, Axis
from crlbench.verdict.pairs import PairAxis

Effects = dict[Axis, PairAxis]
"""An entry minus its base on every axis."""


@dataclass(frozen=True)
class Drawing:
    """The figures of one axis over several effects, on one scale."""

    title: str
    """``Sample efficiency Λ``."""
    axis: Markup
    rows: tuple[Markup, ...]
    """One for each effect, empty where it has no number."""


def drawings(
    rows: Sequence[tuple[str, Effects]], signs: Mapping[Axis, str]
) -> dict[Axis, Drawing]:
    """Per axis a column of figures, for effects with their labels.

    Args:
        signs: of the board.
    """
    return {
        axis: _drawing(axis, signs[axis], [(label, pairs[axis]) for label, pairs in rows])
        for axis in AXES
    }


def _drawing(axis: Axis, sign: str, rows: Sequence[tuple[str, PairAxis]]) -> Drawing:
    # Rows show no interval over other tasks, so the scale has no room for it.
    shown = [pair.effect and replace(pair.effect, wider=None) for _, pair in rows]
    scale = effect_scale(shown, MARGIN)
    return Drawing(
        title=f"{AXIS_WORDS[axis].capitalize()} {sign}",
        axis=Markup(effect_axis(MARGIN, scale)),
        rows=tuple(
            Markup("")
            if effect is None
            else Markup(
                effect_row(
                    f"Effect of {label} on {sign}",
                    effect,
                    effect.verdict,
                    MARGIN,
                    scale,
                )
            )
            for (label, _), effect in zip(rows, shown, strict=True)
        ),
    )
