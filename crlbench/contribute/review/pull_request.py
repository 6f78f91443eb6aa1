"""The text of a pull request: what the tool found out, and boxes for what only a person can say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from crlbench.contribute.results.report import Examined
from crlbench.pages.board_table import plain_table
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs

HUMAN = {
    "publish": "I may publish these results and the samples in them.",
    "no-reroll": "No seed was drawn again and no run left out after its result was seen.",
    "training-data": "What I know of the model's training data stands in its entry.",
    "contact": "I will answer questions about this result here.",
}
"""Statements by a short name; a check reads whether each is ticked."""

_BOX = re.compile(r"^\s*[-*] \[(?P<mark>[ xX])\] (?P<text>.+?)\s*$", re.MULTILINE)


def title(examined: Sequence[Examined]) -> str:
    """``Results: tiny-llama/ppo on mini``, or how many."""
    if len(examined) > 1:
        return f"Results of {len(examined)} entries"
    board, model, recipe = examined[0].name.split("/")
    return f"Results: {model.rpartition('@')[0]} with {recipe} on {board.rpartition('-')[0]}"


def text(folders: Sequence[Path], examined: Sequence[Examined]) -> str:
    """The body, in Markdown: what the runs say, what was checked, and the boxes of a person."""
    return "\n".join(
        [
            *(section(*pair) for pair in zip(folders, examined, strict=True)),
            "### Checked by crlbench",
            "",
            *(f"- [x] `{one.name}` keeps every rule: {one.summary}" for one in examined),
            "",
            "### Said by me",
            "",
            *(f"- [ ] {statement}" for statement in HUMAN.values()),
            "",
        ]
    )


def section(folder: Path, report: Examined) -> str:
    """One entry: under which conditions, and its table."""
    board = summarise_board(load_runs(folder))
    table = plain_table(board).rstrip()
    return (
        f"## {report.name}\n\nTrack {board.track} v{board.track_version}, {board.division} "
        f"division, fingerprint `{board.fingerprint}`, {board.hardware}; {report.summary}.\n\n"
        f"```text\n{table}\n```\n"
    )


def check_boxes(body: str) -> list[str]:
    """What is wrong with the boxes of a pull request's text."""
    ticks = {box["text"] for box in _BOX.finditer(body) if box["mark"] in "xX"}
    return [
        f"the box is not ticked: {statement}"
        for statement in HUMAN.values()
        if statement not in ticks
    ]
