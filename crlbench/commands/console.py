"""Writing to the terminal: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from crlbench.errors import printable


def out(text: str = "") -> None:
    """A line of the result."""
    print(printable(text))


def note(options: Namespace, text: str) -> None:
    """A line for the person, silenced by ``--quiet``."""
    if not options.quiet:
        warn(text)


def warn(text: str) -> None:
    """A line that is never silenced."""
    print(printable(text), file=sys.stderr, flush=True)


def out_json(value: Any) -> None:
    """The result as JSON, for programs."""
    print(json.dumps(value, indent=2, sort_keys=False, default=str))


def print_result(options: Namespace, value: Any, lines: Iterable[str]) -> None:
    """The result: as JSON under ``--json``, else as lines."""
    if options.json:
        out_json(value)
    else:
        for line in lines:
            out(line)


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Rows as aligned columns with a heading; numbers stand right."""
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    numeric = [all(isinstance(row.get(c), int | float) for row in rows) for c in columns]
    widths = [
        max(len(column), *(len(row[i]) for row in cells)) if cells else len(column)
        for i, column in enumerate(columns)
    ]
    lines = [list(columns), *cells]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def count(number: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
