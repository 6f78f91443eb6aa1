"""Figures of entries against their bases, a column for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, MARGIN, Axis
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


def drawings(rows: Sequence[tuple[str, Effects]]) -> dict[Axis, Drawing]:
    """Per axis a column of figures, for effects with their labels."""
    return {axis: _drawing(axis, [(label, pairs[axis]) for label, pairs in rows]) for axis in AXES}


def _drawing(axis: Axis, rows: Sequence[tuple[str, PairAxis]]) -> Drawing:
    scale = effect_scale([pair.effect for _, pair in rows], MARGIN)
    return Drawing(
        title=f"{AXIS_WORDS[axis].capitalize()} {AXIS_SIGNS[axis]}",
        axis=Markup(effect_axis(MARGIN, scale)),
        rows=tuple(
            Markup("")
            if pair.effect is None
            else Markup(
                effect_row(
                    f"Effect of {label} on {AXIS_SIGNS[axis]}",
                    pair.effect,
                    pair.effect.verdict,
                    MARGIN,
                    scale,
                )
            )
            for label, pair in rows
        ),
    )
