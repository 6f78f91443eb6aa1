"""The one table: columns, rows and notes, as plain text, on a terminal, as Markdown, CSV and JSON.

Templates draw it as HTML, site/formats.py as Parquet and notebook/results.py as a data frame.
"""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from crlbench.base import wording

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

Kind = Literal["text", "whole", "number", "yes or no"]
Value = str | int | float | bool | None

WRAP, INDENT = 100, "  "
"""Width and indent of notes that stand apart in plain text."""
LEGEND = 88
"""Width of a legend in plain text."""
COMPUTED = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes text that begins like this for a formula."""


@dataclass(frozen=True)
class Column:
    """One column; its key names it in files, and heads it where it has no title."""

    key: str
    kind: Kind = "text"
    """What it holds. Text stands left and is sorted from A on; numbers start with the largest."""
    about: str = ""
    path: str = ""
    """Keys and attributes that lead from the subject of a row to the value; empty: the key."""
    title: str = ""
    visible: bool = False
    """Where a page lets readers choose columns: it is there from the start."""

    @property
    def heading(self) -> str:
        return self.title or self.key


class Cell(NamedTuple):
    """What a cell shows where that is not its value."""

    text: str
    value: Value = None
    """What it is sorted by."""
    style: str = ""
    """Colour on a terminal."""

    @property
    def order(self) -> str:
        """The value as a page sorts by it: six digits of a number, empty for none."""
        if self.value is None or isinstance(self.value, int | str):
            return "" if self.value is None else str(self.value)
        return f"{self.value:.6g}"


class Row(NamedTuple):
    """Cells in the order of the columns."""

    cells: Sequence[Cell | Value]
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a title above and notes below."""

    columns: tuple[Column, ...] = ()
    rows: Sequence[Row] = ()
    title: str = ""
    notes: tuple[tuple[str, ...], ...] = ()
    """Sentences below it, those of one subject together."""
    totals: int = 0
    """Number of rows at the end that sum up those above."""
    name: str = ""
    """How files are called."""
    about: str = ""
    """What a row is."""

    def to_text(self, loose: bool = False) -> str:
        """Aligned columns for logs and pipes; below a title, headings have a line of their own.

        Args:
            loose: put an empty line before each group of notes, and wrap and indent them.
        """
        lines = [self.title] if self.title else []
        if self.columns:
            texts = [[c.heading for c in self.columns], *(_format_row(row) for row in self.rows)]
            widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
            left = [i for i, column in enumerate(self.columns) if column.kind == "text"]
            head, *body = (wording.line(cells, widths, left) for cells in texts)
            rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
            if self.totals:
                body.insert(len(body) - self.totals, rule)
            lines += [head, *([rule] if self.title else []), *body]
        for group in self.notes:
            lines += ["", *map(_indent, group)] if loose else group
        return "\n".join(lines)

    def to_markdown(self, title: str = "## {}", escape_headings: bool = True) -> str:
        """A table of Markdown below its title, and the notes as paragraphs."""
        heads = [escape(c.heading) if escape_headings else c.heading for c in self.columns]
        lines = [title.format(escape(self.title)), "", f"| {' | '.join(heads)} |"]
        lines.append(f"|{'|'.join('---' if c.kind == 'text' else '--:' for c in self.columns)}|")
        for row in self.rows:
            cells = [escape(text.strip()) for text in _format_row(row)]
            if row.strong:
                cells = [f"**{cell}**" if cell else "" for cell in cells]
            lines.append(f"| {' | '.join(cells)} |")
        for group in self.notes:
            lines += ["", "  \n".join(map(escape, group))]
        return "\n".join(lines)

    def to_rich(self, fold: bool = False, **look: Any) -> RichTable | Text:
        """What a terminal prints: the table, or its title alone where it has no columns.

        Args:
            fold: break words that are too long instead of cutting them.
            **look: arguments of :class:`rich.table.Table`; without any, no space at its edges.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        title = Text(self.title, style="bold")
        if not self.columns:
            return title
        look = look or {"pad_edge": False}
        grid = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, **look)
        for index, column in enumerate(self.columns):
            grid.add_column(
                column.heading,
                justify="left" if column.kind == "text" else "right",
                no_wrap=index > 0,
                overflow="fold" if fold else "ellipsis",
            )
        end = len(self.rows) - self.totals
        for index, row in enumerate(self.rows):
            style = "bold" if row.strong or index >= end else ""
            last = self.totals > 0 and index + 1 == end
            grid.add_row(*map(_draw, row.cells), end_section=last, style=style)
        return grid

    def to_csv(self) -> bytes:
        """RFC 4180 with line feeds, UTF-8: empty for what does not exist, ``true``, ``false``."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        # The module itself writes nothing for None, and whole numbers and others as repr does.
        special = [i for i, c in enumerate(self.columns) if c.kind in ("text", "yes or no")]
        for row in map(list, self.values()):
            for i in special:
                row[i] = _quote(row[i])
            writer.writerow(row)
        return text.getvalue().encode()

    def to_json(self) -> bytes:
        """``{"columns": [...], "data": [[...], ...]}``, pandas' ``orient="split"``."""
        whole = {"columns": [c.key for c in self.columns], "data": list(self.values())}
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return (text + "\n").encode()

    def to_latex(self) -> bytes:
        """A ``tabular`` for the package booktabs; estimates have the decimals of their interval,
        other numbers three."""
        ends = " \\\\"
        layout = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        heads = " & ".join(escape_latex(column.heading) for column in self.columns)
        known = _ends(self.columns)
        texts = (_measured_row(row, known) for row in self.rows)
        rows = (" & ".join(map(escape_latex, cells)) + ends for cells in texts)
        lines = [f"\\begin{{tabular}}{{{layout}}}", r"\toprule", heads + ends, r"\midrule"]
        lines += [*rows, r"\bottomrule", r"\end{tabular}", ""]
        return "\n".join(lines).encode()

    def values(self) -> Iterator[list[Value]]:
        """The values of every row, in the order of the columns."""
        for row in self.rows:
            yield [cell.value if isinstance(cell, Cell) else cell for cell in row.cells]


def headings(*titles: str, left: Collection[int] = (0,)) -> tuple[Column, ...]:
    """Columns of texts under these titles; those in ``left`` stand left, the others right."""
    return tuple(
        Column(title, "text" if index in left else "number") for index, title in enumerate(titles)
    )


def tabulate(records: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Table:
    """A table of records; columns that hold numbers alone stand right."""
    kinds: list[Kind] = [
        "number" if all(isinstance(r.get(key), int | float) for r in records) else "text"
        for key in keys
    ]
    columns = tuple(map(Column, keys, kinds))
    return Table(columns, [Row([record.get(key) for key in keys]) for record in records])


def rows_of(columns: Sequence[Column], subjects: Iterable[Any]) -> Iterator[Row]:
    """A row of each subject: what the paths of the columns lead to."""
    paths = [(column.path or column.key).split(".") for column in columns]
    for subject in subjects:
        yield Row([_reach(subject, path) for path in paths])


def _reach(subject: Any, path: Sequence[str]) -> Any:
    """What a path of attributes and keys leads to; None where it breaks off."""
    for name in path:
        if subject is None:
            return None
        if isinstance(subject, Mapping):
            subject = subject.get(name)
        else:
            subject = subject[int(name)] if name.isdigit() else getattr(subject, name)
    return subject


def plain_sheet(tables: Iterable[Table], legend: str) -> str:
    """Tables under one another and how to read them, as plain text."""
    parts = [*(table.to_text() for table in tables), textwrap.fill(legend, LEGEND)]
    return "\n\n".join(parts) + "\n"


def terminal_sheet(tables: Iterable[Table], legend: str, fold: bool = False) -> Group:
    """The same as a rich renderable."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = []
    for table in tables:
        notes = [note for group in table.notes for note in group]
        parts += [table.to_rich(fold), *(Padding(Text(note), (0, 1)) for note in notes), Text()]
    return Group(*parts, Padding(Text(legend, style="dim"), (0, 1)))


def escape(content: str) -> str:
    """Text that Markdown must not read as its own signs or as HTML."""
    content = content.replace("\\", "\\\\")
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        content = content.replace(sign, entity)
    for sign in "*_`[]#":
        content = content.replace(sign, f"\\{sign}")
    return content


LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "Λ": r"$\Lambda$",
}
"""Signs that LaTeX reads as commands, or that its fonts lack, and how to write them."""


def escape_latex(content: str) -> str:
    """Text on one line that LaTeX must not read as commands."""
    return "".join(LATEX.get(sign, sign) for sign in wording.visible(content).replace("\n", " "))


def _ends(columns: Sequence[Column]) -> dict[int, tuple[int, int]]:
    """The places of both ends of an interval, by the places of the columns that have it: the ends
    ``low`` and ``high`` themselves, whatever stands before the two words, and the estimate, which
    stands before them."""
    place = {column.key: index for index, column in enumerate(columns)}
    found: dict[int, tuple[int, int]] = {}
    for key, low in place.items():
        high = place.get(f"{key.removesuffix('low')}high")
        if key.endswith("low") and high is not None:
            for index in (low - 1, low, high):
                if index >= 0 and columns[index].kind == "number":
                    found.setdefault(index, (low, high))
    return found


def _measured_row(row: Row, known: Mapping[int, tuple[int, int]]) -> list[str]:
    """Cells as text; with the decimals of the interval where the row has one."""
    texts = _format_row(row)
    for index, ends in known.items():
        value, low, high = (row.cells[i] for i in (index, *ends))
        if all(isinstance(one, float) for one in (value, low, high)):
            texts[index] = f"{value:.{wording.places(low, high)}f}"
    return texts


def _format_row(row: Row) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else _format(cell) for cell in row.cells]


def _format(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _draw(cell: Cell | Value) -> Text:
    from rich.text import Text

    if not isinstance(cell, Cell):
        return Text(_format(cell))
    text = Text(cell.text)
    text.stylize(cell.style)
    return text


def _indent(note: str) -> str:
    return textwrap.fill(note, WRAP, initial_indent=INDENT, subsequent_indent=INDENT)


def _quote(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(COMPUTED):
        return f"'{value}"
    return value
