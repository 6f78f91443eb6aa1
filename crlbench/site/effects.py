"""Figures of entries against their bases, a column for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES, AXIS_WORDS, MARGIN, Axis
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.pairs import Call, Effect, PairAxis

Effects = dict[Axis, PairAxis]
"""An entry minus its base on every axis."""
_TURNED: Mapping[Call, Call] = {"better": "worse", "worse": "better"}


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


def design_effect(designs: AxisDesigns, base: DesignRow, other: DesignRow) -> PairAxis:
    """A row minus another, over their checkpoints.

    Where one of the two does not rank, nothing compares them, and the reason is that of its row.
    """
    pairs = {(pair.first, pair.second): pair for pair in designs.pairs}
    forward = pairs.get((base.name, other.name))
    pair = forward or pairs.get((other.name, base.name))
    reason = "one of the two has no rank" if pair is None else pair.reason
    effect = None
    if pair is not None and pair.value is not None and base.score.value is not None:
        value = pair.value if forward else -pair.value
        interval, inner, wider = (
            one if forward else _mirrored(one) for one in (pair.interval, pair.inner, pair.wider)
        )
        effect = Effect(
            value=value,
            first=base.score.value,
            second=base.score.value + value,
            interval=interval,
            inner=inner,
            wider=wider,
            call=pair.call if forward else turned(pair.call),
            correlation=None,
            more_seeds=None,
            n=min(base.score.n, other.score.n),
        )
    return PairAxis(effect=effect, by_task={}, tasks=(), left_out=(), reason=reason)


def turned(call: Call | None) -> Call | None:
    """A verdict seen from the other side."""
    return None if call is None else _TURNED.get(call, call)


def _mirrored(interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    return Interval(-interval.high, -interval.low, interval.level)
