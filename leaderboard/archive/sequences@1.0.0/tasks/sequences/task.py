"""The next number of a sequence with equal steps: "48, 50, 52, 54, 56, 58," -> "60".

Level 1 counts on by 1 or 2, level 2 by 11 to 19, level 3 by 21 to 49. The key is the first number
and the step. Two solved examples stand before every problem as turns of a conversation, so that a
base model too sees what an answer is; their first numbers lie outside all levels. A calibration
task: hyper-parameters are chosen on it, so it is never ranked.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import numeric

CARD = {
    "name": "sequences",
    "version": "1.0.0",
    "tags": ["calibration", "arithmetic"],
    "summary": "Continue a sequence of whole numbers by its step.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-c3a917e2-sequences-4d5be80f61a9",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{comma},",
    "{blank}",
    "after {comma}:",
    "{semicolon};",
    "{comma}, as <>:",
    "sum after {comma}:",
)
ANSWERS = ("{next}", "{next}", "{next}", "{next}", "<{next}>", "{last}+{step}={next}")
REPLIES = (
    "the next number only",
    "the next number only",
    "the next number only",
    "the next number only",
    "the next number in angle brackets, like <9>",
    "the sum that gives the next number, like 7+2=9",
)
EXAMPLES = ((1, 2), (1000, 1))
"""First number and step of each solved example."""
RANGES = {1: ((10, 989), (1, 2)), 2: ((10, 499), (11, 19)), 3: ((10, 499), (21, 49))}
"""First numbers and steps of each level."""
SHOWN = 6


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    first, step = (rng.randint(low, high) for low, high in RANGES[level])
    return {
        "messages": [
            {
                "role": "system",
                "content": f"Continue the sequence. Reply with {REPLIES[template]}.",
            },
            *(turn for example in EXAMPLES for turn in _solved(*example, template)),
            {"role": "user", "content": _told(TEMPLATES, first, step, template)},
        ],
        "answer": _told(ANSWERS, first, step, template),
        "level": level,
        "template": template,
        "key": f"{first}+{step}",
        "meta": {},
    }


def _solved(first: int, step: int, template: int) -> tuple[dict[str, str], ...]:
    """The two turns of an example."""
    return (
        {"role": "user", "content": _told(TEMPLATES, first, step, template)},
        {"role": "assistant", "content": _told(ANSWERS, first, step, template)},
    )


def _told(words: tuple[str, ...], first: int, step: int, template: int) -> str:
    numbers = [first + i * step for i in range(SHOWN)]
    texts = [*map(str, numbers)]
    joined = {"comma": ", ".join(texts), "semicolon": "; ".join(texts), "blank": " ".join(texts)}
    return words[template].format(
        **joined, last=numbers[-1], step=step, next=numbers[-1] + step
    )


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion gives the next number in the asked format (see ``numeric``)."""
    return numeric(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff one line of at most ten words ends in the answer, a full stop allowed."""
    words = text.strip().removesuffix(".").split(" ")
    return float(len(words) <= 10 and "\n" not in text.strip() and words[-1] == answer)
