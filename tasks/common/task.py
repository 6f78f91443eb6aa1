"""Letters that two strings share, in the order of the first: "abcd bdxe:" -> "bd".

The letters of a string are distinct. Each string has at least one letter that the other lacks,
and they share at least one. Level 1 has strings of 3-4 letters, level 2 of 5-6, level 3 of 7-8.
The key is the first string and the sorted letters of the second, whose order does not matter.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "common",
    "version": "1.0.0",
    "tags": ["mini", "memory"],
    "summary": "Give the letters that two strings share, in the order of the first.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-e63b7bc6-common-b25501a40df8",
    "contact": "crlbench maintainers",
}
LONGEST_TEXT = 64
"""Characters. A list of many answers, one a line, is longer."""

TEMPLATES = (
    "{a} {b}:",
    "letters of {a} in {b}:",
    "{a} and {b} share",
    "keep of {a} what {b} has:",
    "{a} {b} as <>:",
    "{a} {b} in quotes:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", '"{}"')
REPLIES = (
    "the letters only, with nothing between them, like yz",
    "the letters only, with nothing between them, like yz",
    "the letters only, with nothing between them, like yz",
    "the letters only, with nothing between them, like yz",
    "the letters in angle brackets, like <yz>",
    'the letters in double quotes, like "yz"',
)
SYSTEM = "Give the letters that both strings have, in the order of the first string. Reply with {}."
LETTERS = "abcdefghijklmnop"
LENGTHS = {1: (3, 4), 2: (5, 6), 3: (7, 8)}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    size, other_size = (rng.choice(LENGTHS[level]) for _ in range(2))
    shared = rng.randint(1, min(size, other_size) - 1)
    letters = rng.sample(LETTERS, size + other_size - shared)
    first, second = letters[:size], letters[:shared] + letters[size:]
    rng.shuffle(first)
    rng.shuffle(second)
    fields = {"a": "".join(first), "b": "".join(second)}
    answer = "".join(letter for letter in first if letter in second)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{fields['a']} {''.join(sorted(second))}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the shared letters as asked.

    A text of more than ``LONGEST_TEXT`` characters gets 0.0.
    """
    return exact(text, answer) if len(text) <= LONGEST_TEXT else 0.0


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion is one word, and that word is the answer, byte for byte."""
    words = text.encode("utf-8", "replace").split()
    return float(words == [answer.encode()])
