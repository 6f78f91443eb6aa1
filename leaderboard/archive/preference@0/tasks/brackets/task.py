"""Closing what is open: "([{}[](" -> ")])".

A text of three kinds of brackets opens some that it never closes; the answer closes these, the
last one first. Some pairs are closed already, one at least inside a bracket that stays open, so
turning the text around does not give the answer. Level 1 has 3-5 open brackets and 2-3 closed
pairs, level 2 has 6-8 and 5-7, level 3 has 9-10 and 8-10; on levels 2 and 3 closed pairs stand
in each other three deep. The key is the text.
"""

from __future__ import annotations

import random
import re
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "brackets",
    "version": "1.0.0",
    "tags": ["mini", "memory", "compositional"],
    "summary": "Close the open brackets of a text, the last one first.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-660bd83c-brackets-0f25e925b9a0",
    "contact": "crlbench maintainers",
}
LONGEST_TEXT = 64
"""Characters. A list of many answers, one a line, is longer."""

TEMPLATES = (
    "{s}",
    "close {s}",
    "what is missing after {s}",
    "{s} ends with",
    "{s} in quotes:",
    "{s} with commas:",
)
ANSWERS = ("{}", "{}", "{}", "{}", '"{}"', "{}")
SEPARATORS = ("", "", "", "", "", ",")
REPLIES = (
    "the closing brackets only",
    "the closing brackets only",
    "the closing brackets only",
    "the closing brackets only",
    'the closing brackets in double quotes, like "])"',
    "the closing brackets only, with commas and no spaces, like ],)",
)
SYSTEM = (
    "Some brackets of the text are open. Give the brackets that close them, in the order in which "
    "they must follow. Reply with {}."
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
OPEN = {1: (3, 4, 5), 2: (6, 7, 8), 3: (9, 10)}
"""How many brackets of a text stay open."""
CLOSED = {1: (2, 3), 2: (5, 6, 7), 3: (8, 9, 10)}
"""How many pairs are closed already."""
_THREE_DEEP = re.compile(r"[)\]}]{3}")


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    left, closed = rng.choice(OPEN[level]), rng.choice(CLOSED[level])
    text, still_open = _draw_text(rng, left, closed)
    while level > 1 and not _THREE_DEEP.search(text):
        text, still_open = _draw_text(rng, left, closed)
    answer = SEPARATORS[template].join(CLOSING[text[i]] for i in reversed(still_open))
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(s=text)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": text,
        "meta": {},
    }


def _draw_text(rng: random.Random, left: int, closed: int) -> tuple[str, list[int]]:
    """A text, and the places of its open brackets: ``left`` of them, and ``closed`` pairs."""
    while True:
        opens = [True] * (left + closed) + [False] * closed
        rng.shuffle(opens)
        characters: list[str] = []
        still_open: list[int] = []
        for place, is_open in enumerate(opens):
            if is_open:
                still_open.append(place)
                characters.append(rng.choice(sorted(CLOSING)))
            elif still_open:
                characters.append(CLOSING[characters[still_open.pop()]])
            else:
                break
        if len(characters) == len(opens) and not all(opens[still_open[0] :]):
            return "".join(characters), still_open


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the closing brackets as asked.

    A text of more than ``LONGEST_TEXT`` characters gets 0.0.
    """
    return exact(text, answer) if len(text) <= LONGEST_TEXT else 0.0


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion, apart from space around it, is the answer sign by sign."""
    signs = [ord(sign) for sign in text.strip()]
    return float(signs == [*answer.encode()])
