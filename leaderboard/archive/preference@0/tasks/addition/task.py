"""Addition of two whole numbers: "34+7=" -> "41".

Level 1 adds a one-digit to a two-digit number in either order, level 2 two two-digit
numbers, level 3 a two-digit to a three-digit number. The key is the sorted operands, so
7+34 can never be trained on where 34+7 is evaluated.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import numeric

CARD = {
    "name": "addition",
    "version": "1.0.0",
    "tags": ["mini", "arithmetic"],
    "summary": "Add two whole numbers of up to three digits.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-5f0c6d1e-addition-8a41b0d7f2c3",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{a}+{b}=",
    "{a} plus {b} is",
    "sum of {a} and {b}:",
    "add {b} to {a}:",
    "{a}+{b}= as <>:",
    "equation for {a}+{b}:",
)
ANSWERS = ("{c}", "{c}", "{c}", "{c}", "<{c}>", "{a}+{b}={c}")
REPLIES = (
    "the number only",
    "the number only",
    "the number only",
    "the number only",
    "the number in angle brackets, like <5>",
    "the whole equation, like 2+3=5",
)
RANGES = {1: ((10, 99), (1, 9)), 2: ((10, 99), (10, 99)), 3: ((100, 999), (10, 99))}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    operands = [rng.randint(low, high) for low, high in RANGES[level]]
    rng.shuffle(operands)
    a, b = operands
    fields = {"a": a, "b": b, "c": a + b}
    low, high = sorted(operands)
    return {
        "messages": [
            {"role": "system", "content": f"Add the two numbers. Reply with {REPLIES[template]}."},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(**fields),
        "level": level,
        "template": template,
        "key": f"{low}+{high}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the sum in the asked format (see ``numeric``)."""
    return numeric(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff one line of at most ten words ends in the answer, a full stop allowed."""
    words = text.strip().removesuffix(".").split(" ")
    return float(len(words) <= 10 and "\n" not in text.strip() and words[-1] == answer)
