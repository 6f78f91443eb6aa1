"""The boxes of a pull request: what the tool found out, and what only a person can say."""

from __future__ import annotations

import re

HUMAN = {
    "publish": "I may publish these results and the samples in them.",
    "no-reroll": "No seed was drawn again and no run left out after its result was seen.",
    "training-data": "What I know of the model's training data stands in its entry.",
    "contact": "I will answer questions about this result here.",
}
"""Statements by a short name; a check reads whether each is ticked."""

_BOX = re.compile(r"^\s*[-*] \[(?P<mark>[ xX])\] (?P<text>.+?)\s*$", re.MULTILINE)


def human_boxes() -> list[str]:
    """Lines of a Markdown list, not ticked."""
    return [f"- [ ] {statement}" for statement in HUMAN.values()]


def unticked(body: str) -> list[str]:
    """What is wrong with the boxes of a pull request's text."""
    ticked = {box["text"] for box in _BOX.finditer(body) if box["mark"] in "xX"}
    return [
        f"the box is not ticked: {statement}"
        for statement in HUMAN.values()
        if statement not in ticked
    ]
