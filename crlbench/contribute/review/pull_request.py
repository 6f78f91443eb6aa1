"""The text of a pull request that brings results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crlbench.contribute.results.report import Examined
from crlbench.contribute.review.boxes import human_boxes
from crlbench.pages.board_table import plain_table
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.runs import load_runs
from crlbench.verdict.summary import summarise


def title(examined: Sequence[Examined]) -> str:
    """``Results: tiny-llama/ppo on mini``, or how many."""
    if len(examined) > 1:
        return f"Results of {len(examined)} entries"
    board, model, recipe = examined[0].name.split("/")
    return f"Results: {model.rpartition('@')[0]} with {recipe} on {board.rpartition('-')[0]}"


def text(folders: Sequence[Path], examined: Sequence[Examined]) -> str:
    """The body, in Markdown: what the runs say, what was checked, and the boxes of a person."""
    parts = [section(folder, found) for folder, found in zip(folders, examined, strict=True)]
    return "\n".join(
        [
            *parts,
            "### Checked by crlbench",
            "",
            *(f"- [x] {line}" for line in checked(examined)),
            "",
            "### Said by me",
            "",
            *human_boxes(),
            "",
        ]
    )


def section(folder: Path, found: Examined) -> str:
    """One entry: under which conditions, and its table."""
    runs = load_runs(folder)
    board = summarise_board(runs)
    table = plain_table(summarise(runs), board).rstrip()
    return f"## {found.name}\n\n{_facts(board, found)}\n\n```text\n{table}\n```\n"


def _facts(board: Board, found: Examined) -> str:
    return (
        f"Track {board.track} v{board.track_version}, {board.division} division, fingerprint "
        f"`{board.fingerprint}`, {board.hardware}; {found.summary}."
    )


def checked(examined: Sequence[Examined]) -> list[str]:
    """What `crlbench validate` says of the entries, a line each."""
    return [f"`{found.name}` keeps every rule: {found.summary}" for found in examined]
