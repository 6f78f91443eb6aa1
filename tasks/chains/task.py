"""Chains of additions and subtractions of digits: "3+4-2=" -> "75", the total after each step.

Every total is one digit, so the answer to n operations is n digits. Level 1 has 2-3
operations, level 2 has 4-5, level 3 has 6-8. The verifier judges each step: with process
rewards a total pays 1/n where it stands in its place and all before it are right, and the last
one pays only where the whole answer is right. The key is the chain; "4+3-2" is "3+4-2".
"""

from __future__ import annotations

import random
import re
from typing import Any

from crlbench.reward.score import Score
from crlbench.reward.splits import build_split

CARD = {
    "name": "chains",
    "version": "1.0.0",
    "tags": ["credit", "arithmetic"],
    "summary": "Give every running total of a chain of additions and subtractions.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-7d20c9e4-chains-b16f53a08e72",
    "contact": "crlbench maintainers",
}
STEPS = True

TEMPLATES = (
    "{chain}=",
    "running totals of {chain}:",
    "{chain}, total by total:",
    "work out {chain} step by step:",
    "{chain}= as <>:",
    "{chain}= with commas:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = ("", "", "", "", "", ",")
REPLIES = (
    "the totals only, with nothing between them, like 75",
    "the totals only, with nothing between them, like 75",
    "the totals only, with nothing between them, like 75",
    "the totals only, with nothing between them, like 75",
    "the totals in angle brackets, with nothing between them, like <75>",
    "the totals only, with commas and no spaces, like 7,5",
)
SYSTEM = (
    "Work through the chain from left to right and give the total after each operation, the "
    "last one included: 3+4-2 has the totals 7 and 5. Every total is a single digit. "
    "Reply with {}."
)
OPERATIONS = {1: (2, 3, 3), 2: (4, 5), 3: (6, 7, 8)}
"""How many operations a chain of a level has; three are likelier, as there are more of them."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    first = total = rng.randint(1, 9)
    terms, totals = [], []
    for _ in range(rng.choice(OPERATIONS[level])):
        after = rng.choice([n for n in range(10) if n != total])
        terms.append(f"{after - total:+d}")
        totals.append(str(after))
        total = after
    chain = f"{first}{''.join(terms)}"
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(chain=chain)},
        ],
        "answer": ANSWERS[template].format(SEPARATORS[template].join(totals)),
        "level": level,
        "template": template,
        "key": _key(first, terms),
        "meta": {},
    }


def _key(first: int, terms: list[str]) -> str:
    """The chain, with the smaller of two numbers that are added first in front."""
    if terms[0][0] == "+":
        low, high = sorted((first, int(terms[0])))
        return f"{low}+{high}{''.join(terms[1:])}"
    return f"{first}{''.join(terms)}"


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> Score | float:
    """Outcome 1.0 iff the last non-empty line is the answer; a step for each right total.

    A step is worth one n-th, n the number of totals, and ends with its digit. Totals are read
    from the start of that line up to the first character that differs from the answer. The
    last one is paid with the outcome alone, so that going on after it earns nothing.
    """
    body = text.rstrip()
    line = body[body.rfind("\n") + 1 :].lstrip()
    same = len(line) if answer.startswith(line) else _same(line, answer)
    if not same:
        return 0.0
    right = line == answer
    ends = [i + 1 for i, character in enumerate(answer) if character.isdigit()]
    start, share = len(body) - len(line), 1.0 / len(ends)
    paid = ends if right else [end for end in ends[:-1] if end <= same]
    return Score(float(right), tuple((start + end, share) for end in paid))


def _same(line: str, answer: str) -> int:
    """How many characters two texts that differ have in common at their start."""
    for i, (a, b) in enumerate(zip(line, answer, strict=False)):
        if a != b:
            return i
    return min(len(line), len(answer))


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion, apart from space around it, is the answer and nothing else."""
    return float(re.fullmatch(rf"\s*{re.escape(answer)}\s*", text) is not None)
