"""Counting a letter in a string: "count a in badaca:" -> "3".

Strings over eight letters: level 1 has length 4-6, level 2 7-9, level 3 10-12. The length
is drawn first and the count uniformly below it, so neither a constant nor the length alone
gives the answer away. The key is the letter and the string.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import numeric

CARD = {
    "name": "counting",
    "version": "1.0.0",
    "tags": ["mini", "memory"],
    "summary": "Count how often a letter occurs in a short string.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-c3e8f905-counting-17d2a6b4e05f",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "count {c} in {s}:",
    "how many {c} in {s}?",
    "{s}: number of {c}?",
    "in {s} count {c}:",
    "count {c} in {s} as <>:",
    "count {c} in {s} as {c}=n:",
)
ANSWERS = ("{n}", "{n}", "{n}", "{n}", "<{n}>", "{c}={n}")
REPLIES = (
    "the number only",
    "the number only",
    "the number only",
    "the number only",
    "the number in angle brackets, like <5>",
    "the letter, an equals sign and the number, like x=5",
)
SYSTEM = "Count how often the letter occurs in the string. Reply with {}."
LETTERS = "abcdefgh"
LENGTHS = {1: (4, 6), 2: (7, 9), 3: (10, 12)}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    length = rng.randint(*LENGTHS[level])
    count = rng.randrange(length)
    letter = rng.choice(LETTERS)
    others = LETTERS.replace(letter, "")
    characters = [letter] * count + rng.choices(others, k=length - count)
    rng.shuffle(characters)
    fields = {"c": letter, "s": "".join(characters), "n": count}
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(**fields),
        "level": level,
        "template": template,
        "key": f"{letter} {fields['s']}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the count in the asked format (see ``numeric``)."""
    return numeric(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the answer is the last word of a short completion and its only digits."""
    words = text.split()
    digits = "".join(c for c in text if c in "0123456789")
    expected = "".join(c for c in answer if c in "0123456789")
    closes = bool(words) and words[-1] in (answer, f"{answer}.")
    return float(closes and len(words) <= 10 and digits == expected)
