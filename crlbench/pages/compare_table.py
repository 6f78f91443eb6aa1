"""A comparison on a terminal, as plain text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from crlbench.base.wording import NONE, PLACES, clean, number
from crlbench.pages import compare_words as words
from crlbench.pages.table import INDENT, WRAP, Cell, Row, Table, escape, headings
from crlbench.pages.words import difference, measured, more_seeds, span
from crlbench.stats.thresholds import TAUS, Arrival
from crlbench.verdict.axes import AXIS_WORDS
from crlbench.verdict.compare import Comparison, Side
from crlbench.verdict.compare_axis import BY_WORDS, TaskView
from crlbench.verdict.compare_unequal import lines as differing
from crlbench.verdict.pairs import Call, Effect, Pair

STYLES: dict[Call | None, str] = {
    "better": "green",
    "worse": "red",
    "equivalent": "cyan",
    "undecided": "",
    "preview": "dim",
    None: "",
}
BAR, SPARK = 20, 21
"""Characters of a bar and of a curve."""
ROOMY = 100
"""Columns of a terminal from which tables have room."""
LEVELS = "▁▂▃▄▅▆▇█"
HEAD, LEARNED, LOST = "░", "█", "×"


def terminal_comparison(comparison: Comparison, width: int = ROOMY) -> Group:
    """A rich renderable: the verdicts, then the entries and what they learned.

    Args:
        width: columns of the terminal; columns stand closer where it is narrow.
    """
    parts: list[object] = [Text(line, style="bold") for line in _title(comparison)]
    parts += [Text(line, style="bold red") for line in _mark(comparison)]
    parts += [Padding(Text(words.lead(comparison), style="bold"), (1, 0))]
    padding = (0, 1, 0, 0) if width >= ROOMY else 0
    for table in _tables(comparison):
        parts.append(table.to_rich(fold=True, show_edge=False, padding=padding))
        for group in table.notes:
            parts += [Text(), *(Padding(Text(note), (0, len(INDENT))) for note in group)]
        parts.append(Text())
    parts += [Padding(Text(note), (0, 1)) for note in words.notes(comparison)]
    parts.append(Padding(Text(words.legend(comparison), style="dim"), (0, 1)))
    parts += [Text(line, style="bold red") for line in _mark(comparison)[:1]]
    return Group(*parts)


def plain_comparison(comparison: Comparison) -> str:
    """The same as plain text, for logs and pipes."""
    blocks = ["\n".join([*_title(comparison), *_mark(comparison)]), words.lead(comparison)]
    blocks += [table.to_text(loose=True) for table in _tables(comparison)]
    notes = words.notes(comparison)
    blocks += ["\n".join(textwrap.fill(note, WRAP) for note in notes)] if notes else []
    blocks.append(textwrap.fill(words.legend(comparison), WRAP))
    blocks += _mark(comparison)[:1]
    return "\n\n".join(blocks) + "\n"


def markdown_comparison(comparison: Comparison) -> str:
    """The same as Markdown, for documents."""
    first, *rest = _title(comparison)
    mark = [f"> **{escape(line)}**" for line in _mark(comparison)[:1]]
    leaves = [f"> - {escape(line.strip())}" for line in _mark(comparison)[1:]]
    quote = ["\n".join([*mark, *([">"] if leaves else []), *leaves])] if mark else []
    blocks = [f"# {escape(first)}", "  \n".join(map(escape, rest)), *quote]
    blocks.append(f"**{escape(words.lead(comparison))}**")
    blocks += [table.to_markdown() for table in _tables(comparison)]
    blocks += [escape(note) for note in words.notes(comparison)]
    blocks += [escape(words.legend(comparison)), *mark]
    return "\n\n".join(blocks) + "\n"


def _title(comparison: Comparison) -> list[str]:
    names = ", ".join(words.title(side) for side in comparison.sides)
    return [f"Compare {names}", *words.boards(comparison)]


def _mark(comparison: Comparison) -> list[str]:
    """The watermark and the leaves that differ."""
    if comparison.watermark is None:
        return []
    return [comparison.watermark, *differing(comparison.unequal)]


def _tables(comparison: Comparison) -> list[Table]:
    tables = [_pair(comparison, pair) for pair in comparison.pairs]
    tables.append(_entries(comparison))
    if "efficiency" in comparison.axes:
        tables += [_learning(comparison), _times(comparison)]
    parts = _parts(comparison)
    return tables + ([parts] if parts.rows else [])


def _pair(comparison: Comparison, pair: Pair) -> Table:
    rows = []
    for axis, contrast in pair.axes.items():
        name = words.axis_name(axis, comparison.signs[axis])
        rows.append(_effect_row(name, contrast.effect, strong=True))
        if contrast.effect is not None and contrast.effect.wider is not None:
            rows.append(Row(("  on other tasks", "", "", span(contrast.effect.wider), "", "", "")))
        for task, effect in contrast.by_task.items():
            rows.append(_effect_row(f"  {clean(task)}", effect))
    difference = f"{pair.second} − {pair.first} [95 %]"
    titles = ("", pair.first, pair.second, difference, "Verdict", "r", "+ seeds")
    notes = _groups([words.pair_notes(comparison, pair)])
    return Table(headings(*titles, left=(0, 4)), rows, words.pair_title(comparison, pair), notes)


def _effect_row(label: str, effect: Effect | None, strong: bool = False) -> Row:
    cells = (
        label,
        NONE if effect is None else measured(effect.first, effect.interval),
        NONE if effect is None else measured(effect.second, effect.interval),
        difference(effect),
        Cell(words.call(effect), style=STYLES[None if effect is None else effect.call]),
        number(None if effect is None else effect.correlation, 2),
        more_seeds(effect),
    )
    return Row(cells, strong)


def _entries(comparison: Comparison) -> Table:
    titles = ("Entry", "Seeds", "", "Value", "95 %", "On other tasks")
    rows = [row for side in comparison.sides for row in _entry(side)]
    notes = _groups([words.side_notes(side) for side in comparison.sides])
    return Table(headings(*titles, left=(0, 2, 4, 5)), rows, "Entries", notes)


def _groups(notes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(group) for group in notes if group)


def _entry(side: Side) -> list[Row]:
    """A row per headline, and those of the control arms; the entry is named in the first."""
    scores = [
        (score.sign, measured(score.value, score.interval), span(score.interval), span(score.wider))
        for score in side.axes.values()
    ]
    beside = (
        ("Λ placebo", "Λ* (net)", side.placebo),
        ("Λ mode", "Taught", side.mode),
        ("Λ wrong", "Λ − Λ wrong", side.wrong),
    )
    for name, net, control in beside:
        if control is not None:
            for label, one in ((name, control.lam), (net, control.net)):
                scores.append((label, measured(one.value, one.interval), span(one.interval), ""))
    heads = [(words.title(side), f"{side.n}"), *[("", "")] * (len(scores) - 1)]
    return [Row((*head, *cells)) for head, cells in zip(heads, scores, strict=True)]


def _learning(comparison: Comparison) -> Table:
    views = [
        side.tasks[task]
        for task in comparison.tasks
        for side in comparison.sides
        if task in side.tasks
    ]
    widest = max([0.2, *(max(v.E or 0.0, v.H) for v in views)])
    end = max((x for v in views for x, _ in v.mean), default=0.0)
    highest = max((u for v in views for _, u in v.mean), default=1.0)

    def cells(task: str, side: Side, view: TaskView) -> tuple[str, ...]:
        numbers = (number(view.E), number(view.H), number(view.L, signed=True))
        curve = sparkline(view.mean, end, highest)
        mark = " saturated" if view.saturated else ""
        return (f"{clean(task)}{mark}", side.key, *numbers, bar(view, widest), curve)

    axis = BY_WORDS[comparison.by]
    titles = ("Task", "", "E", "H", "L", f"{HEAD} H {LEARNED} L {LOST} lost", "Curve")
    return Table(
        headings(*titles, left=(0, 1, 5, 6)),
        _by_task(comparison, cells),
        f"E = H + L and curves of u over {axis} (0 to {words.amount(end)})",
    )


def _times(comparison: Comparison) -> Table:
    def cells(task: str, side: Side, view: TaskView) -> tuple[str, ...]:
        return (clean(task), side.key, *map(_arrival, view.arrivals))

    return Table(
        headings("Task", "", *(f"u ≥ {tau}" for tau in TAUS), left=(0, 1)),
        _by_task(comparison, cells),
        f"Times to threshold in {BY_WORDS[comparison.by]}: seeds that arrive, restricted mean time",
    )


def _arrival(arrival: Arrival) -> str:
    return f"{arrival.arrived}/{arrival.n} {words.amount(arrival.restricted_mean)}"


def _by_task(
    comparison: Comparison, cells: Callable[[str, Side, TaskView], tuple[str, ...]]
) -> list[Row]:
    """A row per task and entry; a task is named in its first row."""
    rows = []
    for task in comparison.tasks:
        has_name = False
        for side in comparison.sides:
            if task in side.tasks:
                first, *rest = cells(task, side, side.tasks[task])
                rows.append(Row(("" if has_name else first, *rest)))
                has_name = True
    return rows


def _parts(comparison: Comparison) -> Table:
    shares = [
        {name: value for parts in side.parts.values() for name, value in parts.items()}
        for side in comparison.sides
    ]
    labels = words.parts_words(comparison)
    names = [name for name in labels if any(name in parts for parts in shares)]
    axes = " and ".join(AXIS_WORDS[a] for a in comparison.axes if a != "efficiency")
    digits = {"rated_tasks": 0}
    rows = [
        Row((labels[name], *(number(p.get(name), digits.get(name, PLACES)) for p in shares)))
        for name in names
    ]
    title = f"What {axes} {'are' if ' and ' in axes else 'is'} made of"
    return Table(headings("Part", *(side.key for side in comparison.sides)), rows, title)


def bar(view: TaskView, widest: float, width: int = BAR) -> str:
    """E = H + L in characters: head start, then what was learned, or lost of the head start."""
    if view.E is None:
        return NONE
    head, total = (round(width * max(0.0, v) / widest) for v in (view.H, view.E))
    if total >= head:
        return HEAD * head + LEARNED * (total - head)
    return HEAD * total + LOST * (head - total)


def sparkline(
    points: Sequence[tuple[float, float]], end: float, highest: float, width: int = SPARK
) -> str:
    """A mean curve in characters over [0, spent], from u = 0 up to ``highest``."""
    if not points or end <= 0:
        return NONE
    top = len(LEVELS) - 1
    characters = []
    for column in range(width):
        u = _at(points, end * column / (width - 1))
        if u is not None:
            level = round(top * u / highest) if highest > 0 else 0
            characters.append(LEVELS[min(max(level, 0), top)])
    return "".join(characters)


def _at(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The curve at x by straight lines; None beyond its end."""
    for (x0, u0), (x1, u1) in zip(points, points[1:], strict=False):
        if x <= x1 * (1 + 1e-12):
            share = (x - x0) / (x1 - x0) if x1 > x0 else 1.0
            return u0 + min(max(share, 0.0), 1.0) * (u1 - u0)
    return None
