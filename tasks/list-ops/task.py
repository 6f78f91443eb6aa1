"""Operations on a list of letters: "reverse k d b:" -> "b d k".

Operations: reverse, sort (alphabetically), rotate (the first item moves to the end). Level
1 has 3-4 items, level 2 has 5-6, level 3 has 7-8. Items are distinct, and lists that an
operation leaves as they are do not occur, so copying never pays. The key is the operation
and the items.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "list-ops",
    "version": "1.1.0",
    "tags": ["calibration", "compositional"],
    "summary": "Reverse, sort or rotate a short list of letters.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-91d7a2b4-list-ops-3c5e60f18b9d",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{op} {items}:",
    "{items} {op}:",
    "list {items}. {op} it:",
    "{op} this: {items}",
    "{op} {items} as <>:",
    "{op} {items} with commas:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = (" ", " ", " ", " ", " ", ",")
REPLIES = (
    "the new list only",
    "the new list only",
    "the new list only",
    "the new list only",
    "the new list in angle brackets, like <b a>",
    "the new list only, with commas, like b,a",
)
SYSTEM = (
    "Apply the operation to the list: reverse, sort (alphabetically) or rotate (move the "
    "first item to the end). Reply with {}."
)
LETTERS = "abcdefghijklmnop"
LENGTHS = {1: (3, 4), 2: (5, 6), 3: (7, 8)}
OPERATIONS = {
    "reverse": lambda items: items[::-1],
    "sort": sorted,
    "rotate": lambda items: items[1:] + items[:1],
}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    op = rng.choice(sorted(OPERATIONS))
    size = rng.choice(LENGTHS[level])
    items = rng.sample(LETTERS, size)
    while OPERATIONS[op](items) == items:
        items = rng.sample(LETTERS, size)
    text = TEMPLATES[template].format(op=op, items=" ".join(items))
    answer = SEPARATORS[template].join(OPERATIONS[op](items))
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{op} {' '.join(items)}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the new list as asked."""
    return exact(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion, apart from outer spaces, is the answer character by character."""
    given = text.strip(" \n")
    return float(len(given) == len(answer) and all(map(str.__eq__, given, answer)))
