"""One entry against another on the three axes, as the site's tables show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import ablation_figures, words
from crlbench.pages.compare_words import SIGNS
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, MARGIN, Axis
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Call, PairAxis, compare_pair
from crlbench.verdict.pairs import Effect as PairedEffect


@dataclass(frozen=True)
class Effect:
    """An entry minus its base on one axis."""

    axis: Axis
    pair: PairAxis

    @property
    def paired(self) -> PairedEffect | None:
        """The numbers; None with a ``reason``."""
        return self.pair.effect

    @property
    def reason(self) -> str:
        """Why there is no number; empty where there is one."""
        return wording.sentence(self.pair.reason)

    @property
    def call(self) -> Call | None:
        """``preview`` where one of the two may bear no verdict; None without a number."""
        return self.paired and self.paired.call

    @property
    def value(self) -> float | None:
        return self.paired and self.paired.value

    @property
    def interval(self) -> Interval | None:
        return self.paired and self.paired.interval

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
        return words.more_seeds(self.paired)


def effects(base: Entry, entry: Entry, tasks: Sequence[str] | None = None) -> dict[Axis, Effect]:
    """``entry`` minus ``base`` on every axis, over their common tasks and seeds."""
    pair = compare_pair(base, entry, tasks=tasks)
    return {axis: Effect(axis, found) for axis, found in pair.axes.items()}


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
    return {axis: _drawing(axis, [(label, found[axis]) for label, found in rows]) for axis in AXES}


def _drawing(axis: Axis, rows: Sequence[tuple[str, Effect]]) -> Drawing:
    scale = ablation_figures.effect_scale([effect.paired for _, effect in rows], MARGIN)
    return Drawing(
        title=f"{AXIS_WORDS[axis].capitalize()} {AXIS_SIGNS[axis]}",
        axis=Markup(ablation_figures.effect_axis(MARGIN, scale)),
        rows=tuple(
            Markup("")
            if effect.paired is None
            else Markup(
                ablation_figures.effect_row(
                    f"{label} on {AXIS_SIGNS[axis]}", effect.paired, MARGIN, scale
                )
            )
            for label, effect in rows
        ),
    )
