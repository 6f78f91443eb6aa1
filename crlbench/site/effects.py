"""One entry against another on the three axes, as the site's tables show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.compare_words import SIGNS
from crlbench.pages.dots import effect_axis, effect_row, effect_scale
from crlbench.stats.intervals import Interval, Paired
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, MARGIN, Axis
from crlbench.verdict.compare import Call
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import AxisPair, paired_axes


@dataclass(frozen=True)
class Effect:
    """An entry minus its base on one axis."""

    axis: Axis
    pair: AxisPair
    call: Call | None
    """``preview`` where one of the two may bear no verdict; None without a number."""
    reason: str
    """Why there is no number; empty where there is one."""

    @property
    def paired(self) -> Paired | None:
        return self.pair.effect

    @property
    def value(self) -> float | None:
        return None if self.paired is None else self.paired.value

    @property
    def interval(self) -> Interval | None:
        return None if self.paired is None else self.paired.interval

    @property
    def sign(self) -> str:
        """``Λ``, ``Stab`` or ``Gen``."""
        return AXIS_SIGNS[self.axis]

    @property
    def shape(self) -> str:
        """The sign of the verdict: never colour alone."""
        return "" if self.call is None else SIGNS[self.call]

    @property
    def more(self) -> str:
        """How many further seeds an undecided verdict would need; empty where it is settled."""
        return words.more_seeds(self.paired) if self.call == "undecided" else ""

    @property
    def drawn(self) -> Paired | None:
        """The effect in figures, where a preview has no colour of a verdict."""
        if self.paired is None or self.call != "preview":
            return self.paired
        return replace(self.paired, verdict="undecided")


def effects(base: Entry, entry: Entry, tasks: Sequence[str] | None = None) -> dict[Axis, Effect]:
    """``entry`` minus ``base`` on every axis, over their common tasks and seeds."""
    decides = base.decides and entry.decides
    return {
        axis: Effect(
            axis=axis,
            pair=pair,
            call=_call(pair, decides),
            reason=wording.sentence(pair.reason),
        )
        for axis, pair in paired_axes(base, entry, tasks=tasks).items()
    }


def _call(pair: AxisPair, decides: bool) -> Call | None:
    if pair.effect is None:
        return None
    return pair.effect.verdict if decides else "preview"


@dataclass(frozen=True)
class Drawing:
    """The figures of one axis over several effects, on one scale."""

    title: str
    """``Sample efficiency Λ``."""
    axis: Markup
    rows: tuple[Markup, ...]
    """One for each effect, empty where it has no number."""


def drawings(rows: Sequence[tuple[str, dict[Axis, Effect]]]) -> dict[Axis, Drawing]:
    """Per axis a column of figures, for effects with their labels."""
    return {
        axis: _drawing(axis, [(label, by_axis[axis]) for label, by_axis in rows]) for axis in AXES
    }


def _drawing(axis: Axis, rows: Sequence[tuple[str, Effect]]) -> Drawing:
    scale = effect_scale([effect.drawn for _, effect in rows], MARGIN)
    return Drawing(
        title=f"{AXIS_WORDS[axis].capitalize()} {AXIS_SIGNS[axis]}",
        axis=Markup(effect_axis(MARGIN, scale)),
        rows=tuple(
            Markup("")
            if effect.drawn is None
            else Markup(
                effect_row(
                    f"Effect of {label} on {AXIS_SIGNS[axis]}",
                    effect.drawn,
                    effect.drawn.verdict,
                    MARGIN,
                    scale,
                )
            )
            for label, effect in rows
        ),
    )
