"""A comparison on a terminal, as plain text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crlbench.base.wording import NONE, clean, line, number
from crlbench.pages import compare_words as words
from crlbench.pages.words import difference, more_seeds, span
from crlbench.stats.thresholds import TAUS, Arrival
from crlbench.verdict.axes import AXIS_SIGNS, AXIS_WORDS
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
WRAP, INDENT = 100, "  "
"""Of notes in plain text."""
LEVELS = "▁▂▃▄▅▆▇█"
HEAD, LEARNED, LOST = "░", "█", "×"


@dataclass(frozen=True)
class Row:
    """One row; ``call`` gives the colour of the verdict's cell."""

    cells: tuple[str, ...]
    strong: bool = False
    call: Call | None = None


@dataclass(frozen=True)
class Grid:
    """A table before it is text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    left: tuple[int, ...] = (0,)
    """Columns that stand left."""
    colored: int | None = None
    """The column of the verdict."""
    after: tuple[tuple[str, ...], ...] = ()
    """Blocks of notes below the table, those of one subject together."""


def terminal_comparison(comparison: Comparison, width: int = ROOMY) -> Group:
    """A rich renderable: the verdicts, then the entries and what they learned.

    Args:
        width: columns of the terminal; columns stand closer where it is narrow.
    """
    parts: list[object] = [Text(told, style="bold") for told in _title(comparison)]
    parts += [Text(told, style="bold red") for told in _mark(comparison)]
    parts += [Padding(Text(words.lead(comparison), style="bold"), (1, 0))]
    for grid in _grids(comparison):
        parts.append(_rich(grid, width))
        for block in grid.after:
            parts += [Text(), *(Padding(Text(note), (0, len(INDENT))) for note in block)]
        parts.append(Text())
    parts += [Padding(Text(note), (0, 1)) for note in words.notes(comparison)]
    parts.append(Padding(Text(words.legend(comparison), style="dim"), (0, 1)))
    parts += [Text(told, style="bold red") for told in _mark(comparison)[:1]]
    return Group(*parts)


def plain_comparison(comparison: Comparison) -> str:
    """The same as plain text, for logs and pipes."""
    blocks = ["\n".join([*_title(comparison), *_mark(comparison)]), words.lead(comparison)]
    blocks += ["\n".join(_plain(grid)) for grid in _grids(comparison)]
    notes = words.notes(comparison)
    blocks += ["\n".join(textwrap.fill(note, WRAP) for note in notes)] if notes else []
    blocks.append(textwrap.fill(words.legend(comparison), WRAP))
    blocks += _mark(comparison)[:1]
    return "\n\n".join(blocks) + "\n"


def markdown_comparison(comparison: Comparison) -> str:
    """The same as Markdown, for documents."""
    first, *rest = _title(comparison)
    mark = [f"> **{escaped(told)}**" for told in _mark(comparison)[:1]]
    leaves = [f"> - {escaped(told.strip())}" for told in _mark(comparison)[1:]]
    quote = ["\n".join([*mark, *([">"] if leaves else []), *leaves])] if mark else []
    blocks = [f"# {escaped(first)}", "  \n".join(map(escaped, rest)), *quote]
    blocks.append(f"**{escaped(words.lead(comparison))}**")
    blocks += [_markdown(grid) for grid in _grids(comparison)]
    blocks += [escaped(note) for note in words.notes(comparison)]
    blocks += [escaped(words.legend(comparison)), *mark]
    return "\n\n".join(blocks) + "\n"


def _title(comparison: Comparison) -> list[str]:
    names = ", ".join(words.title(side) for side in comparison.sides)
    return [f"Compare {names}", *words.boards(comparison)]


def _mark(comparison: Comparison) -> list[str]:
    """The watermark and the leaves that differ."""
    if comparison.watermark is None:
        return []
    return [comparison.watermark, *differing(comparison.unequal)]


def _grids(comparison: Comparison) -> list[Grid]:
    grids = [_pair(comparison, pair) for pair in comparison.pairs]
    grids.append(_entries(comparison))
    if "efficiency" in comparison.axes:
        grids += [_learning(comparison), _times(comparison)]
    parts = _parts(comparison)
    return grids + ([parts] if parts.rows else [])


def _pair(comparison: Comparison, pair: Pair) -> Grid:
    rows = []
    for axis, found in pair.axes.items():
        rows.append(_effect_row(words.axis_name(axis), found.effect, strong=True))
        if found.effect is not None and found.effect.wider is not None:
            rows.append(Row(("  on other tasks", "", "", span(found.effect.wider), "", "", "")))
        for task, effect in found.by_task.items():
            rows.append(_effect_row(f"  {clean(task)}", effect))
    return Grid(
        title=words.pair_title(comparison, pair),
        columns=(
            "",
            pair.first,
            pair.second,
            f"{pair.second} − {pair.first} [95 %]",
            "Verdict",
            "r",
            "+ seeds",
        ),
        rows=tuple(rows),
        left=(0, 4),
        colored=4,
        after=_blocks([words.pair_notes(comparison, pair)]),
    )


def _effect_row(label: str, effect: Effect | None, strong: bool = False) -> Row:
    cells = (
        label,
        number(None if effect is None else effect.first),
        number(None if effect is None else effect.second),
        difference(effect),
        words.call(effect),
        number(None if effect is None else effect.correlation, 2),
        more_seeds(effect),
    )
    return Row(cells, strong, None if effect is None else effect.call)


def _entries(comparison: Comparison) -> Grid:
    rows = [row for side in comparison.sides for row in _entry(side)]
    return Grid(
        title="Entries",
        columns=("Entry", "Seeds", "", "Value", "95 %", "On other tasks"),
        rows=tuple(rows),
        left=(0, 2, 4, 5),
        after=_blocks([words.side_notes(side) for side in comparison.sides]),
    )


def _blocks(notes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(block) for block in notes if block)


def _entry(side: Side) -> list[Row]:
    """A row per headline, and those of the placebo arm; the entry is named in the first."""
    found = [
        (AXIS_SIGNS[axis], number(score.value), span(score.interval), span(score.wider))
        for axis, score in side.axes.items()
    ]
    if side.placebo is not None:
        for name, one in (("Λ placebo", side.placebo.lam), ("Λ* (net)", side.placebo.net)):
            found.append((name, number(one.value), span(one.interval), ""))
    heads = [(words.title(side), f"{side.n}"), *[("", "")] * (len(found) - 1)]
    return [Row((*head, *cells)) for head, cells in zip(heads, found, strict=True)]


def _learning(comparison: Comparison) -> Grid:
    views = [
        side.tasks[task]
        for task in comparison.tasks
        for side in comparison.sides
        if task in side.tasks
    ]
    widest = max([0.2, *(max(v.E or 0.0, v.H) for v in views)])
    spent = max((x for v in views for x, _ in v.mean), default=0.0)
    highest = max((u for v in views for _, u in v.mean), default=1.0)

    def cells(task: str, side: Side, view: TaskView) -> tuple[str, ...]:
        numbers = (number(view.E), number(view.H), number(view.L, signed=True))
        curve = sparkline(view.mean, spent, highest)
        mark = " saturated" if view.saturated else ""
        return (f"{clean(task)}{mark}", side.key, *numbers, bar(view, widest), curve)

    axis = BY_WORDS[comparison.by]
    return Grid(
        title=f"E = H + L and curves of u over {axis} (0 to {words.amount(spent)})",
        columns=("Task", "", "E", "H", "L", f"{HEAD} H {LEARNED} L {LOST} lost", "Curve"),
        rows=_by_task(comparison, cells),
        left=(0, 1, 5, 6),
    )


def _times(comparison: Comparison) -> Grid:
    def cells(task: str, side: Side, view: TaskView) -> tuple[str, ...]:
        return (clean(task), side.key, *map(_arrival, view.arrivals))

    return Grid(
        title=f"Times to threshold in {BY_WORDS[comparison.by]}: seeds that arrive, restricted "
        "mean time",
        columns=("Task", "", *(f"u ≥ {tau}" for tau in TAUS)),
        rows=_by_task(comparison, cells),
        left=(0, 1),
    )


def _arrival(found: Arrival) -> str:
    return f"{found.arrived}/{found.n} {words.amount(found.restricted_mean)}"


def _by_task(
    comparison: Comparison, cells: Callable[[str, Side, TaskView], tuple[str, ...]]
) -> tuple[Row, ...]:
    """A row per task and entry; a task is named in its first row."""
    rows = []
    for task in comparison.tasks:
        named = False
        for side in comparison.sides:
            if task in side.tasks:
                first, *rest = cells(task, side, side.tasks[task])
                rows.append(Row(("" if named else first, *rest)))
                named = True
    return tuple(rows)


def _parts(comparison: Comparison) -> Grid:
    found = [
        {name: value for parts in side.parts.values() for name, value in parts.items()}
        for side in comparison.sides
    ]
    names = [name for name in words.PARTS if any(name in parts for parts in found)]
    axes = " and ".join(AXIS_WORDS[a] for a in comparison.axes if a != "efficiency")
    digits = {"rated_tasks": 0}
    return Grid(
        title=f"What {axes} {'are' if ' and ' in axes else 'is'} made of",
        columns=("Part", *(side.key for side in comparison.sides)),
        rows=tuple(
            Row((words.PARTS[name], *(number(p.get(name), digits.get(name, 3)) for p in found)))
            for name in names
        ),
    )


def bar(view: TaskView, widest: float, width: int = BAR) -> str:
    """E = H + L in characters: head start, then what was learned, or lost of the head start."""
    if view.E is None:
        return NONE
    head, total = (round(width * max(0.0, v) / widest) for v in (view.H, view.E))
    if total >= head:
        return HEAD * head + LEARNED * (total - head)
    return HEAD * total + LOST * (head - total)


def sparkline(
    points: Sequence[tuple[float, float]], spent: float, highest: float, width: int = SPARK
) -> str:
    """A mean curve in characters over [0, spent], from u = 0 up to ``highest``."""
    if not points or spent <= 0:
        return NONE
    top = len(LEVELS) - 1
    drawn = []
    for column in range(width):
        u = _at(points, spent * column / (width - 1))
        if u is not None:
            level = round(top * u / highest) if highest > 0 else 0
            drawn.append(LEVELS[min(max(level, 0), top)])
    return "".join(drawn)


def _at(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The curve at x by straight lines; None beyond its end."""
    for (x0, u0), (x1, u1) in zip(points, points[1:], strict=False):
        if x <= x1 * (1 + 1e-12):
            share = (x - x0) / (x1 - x0) if x1 > x0 else 1.0
            return u0 + min(max(share, 0.0), 1.0) * (u1 - u0)
    return None


def _rich(grid: Grid, width: int) -> Table:
    table = Table(
        title=Text(grid.title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0) if width >= ROOMY else 0,
    )
    for index, name in enumerate(grid.columns):
        left = index in grid.left
        table.add_column(
            name, justify="left" if left else "right", no_wrap=index > 0, overflow="fold"
        )
    for row in grid.rows:
        cells = [Text(cell) for cell in row.cells]
        if grid.colored is not None:
            cells[grid.colored].stylize(STYLES[row.call])
        table.add_row(*cells, style="bold" if row.strong else "")
    return table


def _plain(grid: Grid) -> list[str]:
    rows = [grid.columns, *(row.cells for row in grid.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(grid.columns))]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    told = [grid.title, line(grid.columns, widths, grid.left), rule]
    told += [line(row.cells, widths, grid.left) for row in grid.rows]
    for block in grid.after:
        told += ["", *(_wrapped(note) for note in block)]
    return told


def _wrapped(note: str) -> str:
    return textwrap.fill(note, WRAP, initial_indent=INDENT, subsequent_indent=INDENT)


def _markdown(grid: Grid) -> str:
    lines = [f"## {escaped(grid.title)}", "", f"| {' | '.join(map(escaped, grid.columns))} |"]
    aligned = ["---" if i in grid.left else "--:" for i in range(len(grid.columns))]
    lines.append(f"|{'|'.join(aligned)}|")
    for row in grid.rows:
        cells = [escaped(cell.strip()) for cell in row.cells]
        if row.strong:
            cells = [f"**{cell}**" if cell else "" for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    for block in grid.after:
        lines += ["", "  \n".join(map(escaped, block))]
    return "\n".join(lines)


def escaped(content: str) -> str:
    """Text that Markdown must not read as its own signs or as HTML."""
    content = content.replace("\\", "\\\\")
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        content = content.replace(sign, written)
    for sign in "*_`[]#":
        content = content.replace(sign, f"\\{sign}")
    return content
