"""Charts of dots: estimates with their intervals, scores before and after, times, differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crlbench.base.wording import grouped, number
from crlbench.pages.frame import budget_ticks, fitted_scale, number_ticks, x_axis
from crlbench.pages.rows import Glyph, Layout, Row, draw_rows, marked, spanned
from crlbench.pages.svg import BOLD, Scale, color, crossed, element, figure, hollow, solid, stroke
from crlbench.pages.words import difference, measured, span
from crlbench.stats.intervals import Interval
from crlbench.stats.paired import Paired
from crlbench.verdict.pairs import Call, Effect

ROUND = "stroke-linecap:round"
# -- estimates -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dot:
    """An estimate with its interval and the values of its seeds."""

    label: str
    value: float | None
    interval: Interval | None = None
    seeds: Sequence[float] = ()
    strong: bool = False


def interval_plot(dots: Sequence[Dot], name: str) -> str:
    """Dot and interval of each estimate, its seeds as small rings."""
    layout = Layout(48, 8, 352, middle=30, reach=12)
    seeds = [value for dot in dots for value in dot.seeds]
    tight = fitted_scale(dots, [0.0, 0.1, *seeds], layout.left, layout.right)
    margin = 0.04 * (tight.high - tight.low)
    x = layout.scale(tight.low - margin, tight.high + margin)
    description = " ".join(f"{d.label}: {_dot_words(d) or 'no value'}." for d in dots)
    rows = [_dot_row(dot) for dot in dots]
    ticks = number_ticks(x.low, x.high, least=1)
    return draw_rows(f"{name}, with intervals", description, rows, x, layout, ticks)


def _dot_words(dot: Dot) -> str:
    if dot.value is None:
        return ""
    separated = f" {span(dot.interval)}" if dot.interval else ", no interval"
    return f"{measured(dot.value, dot.interval)}{separated}"


def _dot_row(dot: Dot) -> Row:
    hue = color("learned")
    ring = f"fill:none;{stroke(color('muted'), 1.2, 'opacity:.75')}"
    glyphs = [marked(v, ring, size=3, title=number(v)) for v in dot.seeds]
    if dot.interval is not None:
        thick = stroke(hue, 4 if dot.strong else 3, ROUND)
        glyphs.append(spanned(dot.interval.low, dot.interval.high, thick))
    if dot.value is not None:
        glyphs.append(marked(dot.value, solid(hue), "diamond" if dot.strong else "circle"))
    return Row(glyphs, dot.label, _dot_words(dot), BOLD if dot.strong else "")


def axis_strip(
    title: str, value: float | None, interval: Interval | None, wider: Interval | None
) -> str:
    """One headline from 0 to 1: thick its interval, thin the interval over tasks too."""
    layout = Layout(9, 6, 194, middle=9, upper=0, reach=4, track=True, width=200, size=11)
    spans = [one for one in (interval, wider) if one is not None]
    values = [end for one in spans for end in (one.low, one.high)]
    values += [] if value is None else [value]
    x = layout.scale(min([0.0, *values]), max([1.0, *values]))
    hue = color("learned")
    glyphs = [
        spanned(one.low, one.high, stroke(hue, thick, f"{ROUND};opacity:.55"))
        for one, thick in ((wider, 2), (interval, 6))
        if one is not None
    ]
    glyphs += [] if value is None else [marked(value, solid(hue))]
    sentences = [
        f"{name} {measured(one.low, one)} to {measured(one.high, one)}"
        for name, one in (("95 %", interval), ("with other tasks", wider))
        if one is not None
    ]
    shown = "no value" if value is None else measured(value, interval)
    description = "; ".join([shown, *sentences])
    ticks = number_ticks(0, 1, most=3, least=1)
    return draw_rows(title, f"{description}.", [Row(glyphs)], x, layout, ticks)


# -- scores --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A score before and after."""

    label: str
    start: float
    end: float | None


def dumbbells(changes: Sequence[Change], title: str) -> str:
    """Start (hollow diamond) to end (filled circle) of each score, from 0 to 1."""
    layout = Layout(27, 108, 254, middle=13.5, upper=6, beside=True, fits=13)
    description = " ".join(f"{c.label}: {number(c.start)} to {number(c.end)}." for c in changes)
    rows, ticks = [_change_row(change) for change in changes], number_ticks(0, 1, most=3, least=1)
    return draw_rows(title, description, rows, layout.scale(0, 1), layout, ticks)


def _change_row(change: Change) -> Row:
    start, end = change.start, change.end
    hue = color("learned" if end is None or end >= start else "loss")
    glyphs = [marked(start, hollow(hue, 1.8), "diamond", 4)]
    if end is not None:
        line = spanned(start, end, stroke(hue, 3, "opacity:.55"))
        glyphs = [line, *glyphs, marked(end, f"fill:{hue}", size=4.5)]
    return Row(glyphs, change.label, f"{number(start, 2)} → {number(end, 2)}")


def ends_strip(title: str, ends: Mapping[str, Sequence[tuple[float, bool]]]) -> str:
    """The final score of every seed from 0 to 1, a line of dots for each task.

    Args:
        ends: by task (final score, whether the run failed) of each seed.
    """
    layout = Layout(
        18, 84, 262, 9, upper=0, beside=True, fits=11, reach=0, track=True, width=280, size=12
    )
    values = [end for seeds in ends.values() for end, _ in seeds]
    x = layout.scale(min(0.0, *values), max(1.0, *values))
    rows = [Row([_end_mark(*end) for end in seeds], task) for task, seeds in ends.items()]
    description = " ".join(
        f"{task}: {', '.join(number(end, 2) + ' failed' * failed for end, failed in seeds)}."
        for task, seeds in ends.items()
    )
    ticks = number_ticks(0, 1, most=3, least=1)
    return draw_rows(title, description, rows, x, layout, ticks)


def _end_mark(end: float, failed: bool) -> Glyph:
    if failed:
        return marked(end, crossed(color("loss"), 2), "cross", 4)
    return marked(end, f"fill:{color('learned')};opacity:.55", size=3.5)


# -- times ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrivalRow:
    """When the seeds of one task reach one threshold."""

    tau: float
    times: Sequence[tuple[int, float]]
    """(seed index, completions); inf for a run that does not arrive."""
    restricted_mean: float

    @property
    def arrived(self) -> int:
        """How many seeds reach it."""
        return sum(math.isfinite(time) for _, time in self.times)


def arrival_plot(task: str, arrivals: Sequence[ArrivalRow], budget: float) -> str:
    """A ring per seed where it arrives, a cross at the budget where not, the mean as a bar."""
    layout = Layout(36, 58, 306, middle=18, beside=True, track=True)
    description = " ".join(
        f"u {number(one.tau, 2)}: {one.arrived} of {len(one.times)} seeds arrive, "
        f"restricted mean {grouped(one.restricted_mean)} completions."
        for one in arrivals
    )
    rows = [
        Row(
            [
                marked(one.restricted_mean, stroke(color("learned"), 3), "bar", 12),
                *_arrival_marks(one.times, budget),
            ],
            f"u ≥ {number(one.tau, 2)}",
            f"{one.arrived}/{len(one.times)}",
        )
        for one in arrivals
    ]
    title, x = f"Samples to threshold on {task}", layout.scale(0, budget)
    ticks = budget_ticks(budget)
    return draw_rows(title, description, rows, x, layout, ticks, caption="completions")


def _arrival_marks(times: Sequence[tuple[int, float]], budget: float) -> list[Glyph]:
    step = min(5.0, 22 / max(1, len(times)))
    marks = []
    for place, (seed, time) in enumerate(times):
        lower = step * (place - (len(times) - 1) / 2)
        if math.isfinite(time):
            shape, style = "circle", hollow(color("ink"), 1.3)
            title = f"seed {seed}: {grouped(time)} completions"
        else:
            shape, style = "cross", crossed(color("loss"), 1.8)
            title = f"seed {seed}: not within the budget"
        marks.append(marked(min(time, budget), style, shape, 3.2, title, lower))
    return marks


# -- differences, a figure for each row of a table -----------------------------------------------

EFFECTS = Layout(30, 10, 250, middle=15, upper=0, width=260)
SHAPES: dict[Call | None, str] = {
    "better": "triangle",
    "equivalent": "square",
    "worse": "down",
    "undecided": "circle",
    "preview": "diamond",
    None: "circle",
}
HOLLOW = ("undecided", "preview", None)


def effect_scale(effects: Sequence[Paired | Effect | None], margin: float | None) -> Scale:
    """One axis for all differences of a table; zero and the margin are always on it."""
    values = [-0.01, 0.01] if margin is None else [-1.4 * margin, 1.4 * margin]
    return fitted_scale(effects, values, EFFECTS.left, EFFECTS.right)


def effect_row(
    title: str,
    effect: Paired | Effect,
    call: Call | None,
    margin: float | None,
    x: Scale,
    wider: Interval | None = None,
) -> str:
    """One difference: thin line 95 %, thick 90 %, dotted the wider one that resamples tasks.

    Args:
        call: the verdict, which gives shape and colour.
        margin: drawn as a band where there are verdicts, and None where there are none.
    """
    hue = color("muted" if call in (None, "preview") else call)
    glyphs = []
    if wider is not None:
        dotted = stroke(hue, 1.6, "stroke-dasharray:2 3")
        glyphs.append(spanned(wider.low, wider.high, dotted, lower=8))
    for one, thick in ((effect.interval, 1.6), (effect.inner, 4.4)):
        if one is not None:
            glyphs.append(spanned(one.low, one.high, stroke(hue, thick, ROUND)))
    style = hollow(hue, 2.2) if call in HOLLOW else solid(hue, 1.2)
    glyphs.append(marked(effect.value, style, SHAPES[call]))
    description = f"{difference(effect)}{f': {call}' if call else ''}."
    ticks = [(value, "") for value, _ in number_ticks(x.low, x.high, most=5)]
    band = _band(margin, x, EFFECTS.height)
    return draw_rows(title, description, [Row(glyphs)], x, EFFECTS, ticks, ground=band)


def effect_axis(margin: float | None, x: Scale) -> str:
    """The ticks beneath the rows of one table."""
    description = f"From {number(x.low)} to {number(x.high)}."
    if margin is not None:
        description += f" Equivalence lies between {number(-margin)} and {number(margin)}."
    ticks = number_ticks(x.low, x.high, most=5, signed=True)
    axis = x_axis(x, 2, ticks, grid=[(0, 6)], width=EFFECTS.width)
    parts = (_band(margin, x, 6), axis)
    return figure("Axis of the differences", description, 25, *parts, width=EFFECTS.width)


def _band(margin: float | None, x: Scale, height: float) -> str:
    """The band of equivalence."""
    if margin is None:
        return ""
    style, width = f"fill:{color('equivalent')};opacity:.13", x(margin) - x(-margin)
    return element("rect", x=x(-margin), y=0, width=width, height=height, style=style)
