"""Sums modulo a small number: "(34+7)%10=" -> "1".

Level 1 adds a one-digit to a two-digit number modulo 10, level 2 two two-digit numbers
modulo 9, level 3 two two-digit numbers modulo 7. The key is the sorted operands and the
modulus. A calibration task: hyper-parameters are chosen on it, so it is never ranked.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import numeric

CARD = {
    "name": "modular",
    "version": "1.1.0",
    "tags": ["mini", "arithmetic"],
    "summary": "Add two whole numbers and give the remainder by a small modulus.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-7e40d9c2-modular-b86f13a5e27d",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "({a}+{b})%{m}=",
    "({a}+{b}) mod {m} is",
    "{a}+{b}, remainder by {m}:",
    "add {a} and {b}, take mod {m}:",
    "({a}+{b})%{m}= as <>:",
    "({a}+{b})%{m} as r=n:",
)
ANSWERS = ("{r}", "{r}", "{r}", "{r}", "<{r}>", "r={r}")
REPLIES = (
    "the number only",
    "the number only",
    "the number only",
    "the number only",
    "the number in angle brackets, like <5>",
    "r= and the number, like r=5",
)
SYSTEM = "Work out the remainder of the sum (% means modulo). Reply with {}."
RANGES = {1: ((10, 99), (0, 9)), 2: ((10, 99), (10, 99)), 3: ((10, 99), (10, 99))}
MODULI = {1: 10, 2: 9, 3: 7}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    operands = [rng.randint(low, high) for low, high in RANGES[level]]
    rng.shuffle(operands)
    a, b = operands
    modulus = MODULI[level]
    fields = {"a": a, "b": b, "m": modulus, "r": (a + b) % modulus}
    low, high = sorted(operands)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(**fields),
        "level": level,
        "template": template,
        "key": f"{low}+{high}%{modulus}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the remainder in the asked format (see ``numeric``)."""
    return numeric(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff a completion of one line of at most 64 characters ends in " " + answer."""
    line = text.strip()
    line = line[:-1] if line.endswith(".") else line
    return float(len(line) <= 64 and "\n" not in line and f" {line}".endswith(f" {answer}"))
