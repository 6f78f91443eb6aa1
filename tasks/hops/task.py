"""Following arrows: "a>d c>b d>c from a:" -> "adcb".

Each letter has at most one arrow to another. The answer is the whole path: the start, and every
letter that is reached, up to the one without an arrow. Level 1 has 1-2 hops and 2-3 arrows, level
2 has 3-4 hops and 5 arrows, level 3 has 4-5 hops and 6 arrows: some start at letters beside the
path, and may lead into it. The key is the set of arrows and the start.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "hops",
    "version": "1.0.0",
    "tags": ["mini", "memory", "compositional"],
    "summary": "Follow arrows between letters and give the whole path.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-efb39174-hops-4e1efdf0f935",
    "contact": "crlbench maintainers",
}
LONGEST_TEXT = 64
"""Characters. A list of many answers, one a line, is longer."""

TEMPLATES = (
    "{arrows} from {start}:",
    "from {start}: {arrows}",
    "start at {start}, follow {arrows}:",
    "{arrows}; path of {start}:",
    "{arrows} from {start} as <>:",
    "{arrows} from {start} with >:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = ("", "", "", "", "", ">")
REPLIES = (
    "all letters of the path, the start included, with nothing between them, like xyz",
    "all letters of the path, the start included, with nothing between them, like xyz",
    "all letters of the path, the start included, with nothing between them, like xyz",
    "all letters of the path, the start included, with nothing between them, like xyz",
    "all letters of the path, the start included, in angle brackets, like <xyz>",
    "all letters of the path, the start included, with > between them, like x>y>z",
)
SYSTEM = "Follow the arrows from the start until a letter has none. Reply with {}."
LETTERS = "abcdefgh"
SIZES = {1: ((1, 1), (2, 1)), 2: ((3, 2), (4, 1)), 3: ((4, 2), (5, 1))}
"""Hops of the path, and arrows beside it."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    hops, beside = rng.choice(SIZES[level])
    path = rng.sample(LETTERS, hops + 1)
    arrows = [f"{a}>{b}" for a, b in zip(path, path[1:], strict=False)]
    for letter in rng.sample([c for c in LETTERS if c not in path], beside):
        arrows.append(f"{letter}>{rng.choice(LETTERS.replace(letter, ''))}")
    rng.shuffle(arrows)
    text = TEMPLATES[template].format(arrows=" ".join(arrows), start=path[0])
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(SEPARATORS[template].join(path)),
        "level": level,
        "template": template,
        "key": f"{' '.join(sorted(arrows))} from {path[0]}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the whole path as asked.

    A text of more than ``LONGEST_TEXT`` characters gets 0.0.
    """
    return exact(text, answer) if len(text) <= LONGEST_TEXT else 0.0


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion, apart from space around it, begins and ends as the answer does."""
    given = text.strip()
    return float(given.startswith(answer) and len(given) == len(answer))
