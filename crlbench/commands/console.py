"""Writing to the terminal: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
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


def count(number: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short_path(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
