"""``crlbench compare --designs``: designs over their checkpoints, and where they differ from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from crlbench.commands.flags import RUNS
from crlbench.errors import UsageError


def read_designs(options: Namespace) -> Any:
    """The designs that the options name, over their checkpoints.

    Raises:
        UsageError: an unknown name, several boards or recipes, or a flag that designs do not take.
        NotComparable: unequal conditions.
        ValidationError: something stored is damaged.
    """
    from crlbench.commands.stored_entries import find_designs
    from crlbench.verdict import board, compare_read
    from crlbench.verdict.compare_designs import compare_designs

    if options.entries:
        raise UsageError(
            f"--designs and {' '.join(options.entries):.80}: give designs after --designs, or "
            "entries without it."
        )
    if options.tasks is not None or options.by != "completions" or options.force_unequal:
        raise UsageError(
            "--designs compares all tasks of a board under equal conditions: leave out --tasks, "
            "--by and --force-unequal."
        )
    folders = find_designs(options.designs, Path(options.runs or RUNS))
    axes = board.AXES if options.axis == "all" else (options.axis,)
    return compare_designs([compare_read.read_entry(folder) for folder in folders], axes)


def render(comparison: Any, form: str) -> str:
    """The comparison as the text of a file."""
    if form == "json":
        return comparison.to_json()
    from crlbench.pages import compare_designs as pages

    if form == "html":
        return pages.render_designs(comparison)
    return (pages.markdown_designs if form == "md" else pages.plain_designs)(comparison)


def terminal(comparison: Any, _: int) -> Any:
    """The comparison for people at a terminal."""
    from crlbench.pages.compare_designs import terminal_designs

    return terminal_designs(comparison)
