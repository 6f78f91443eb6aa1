"""Edits of a short word: "double abc:" -> "aabbcc".

Operations: next (every letter becomes the following one), double (every letter is written
twice), upper (capitals). Level 1 has 2-3 letters, level 2 4-5, level 3 6-7. The key is the
operation and the word. A calibration task: hyper-parameters are chosen on it, so it is
never ranked.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "letters",
    "version": "1.0.0",
    "tags": ["calibration", "compositional"],
    "summary": "Shift, double or capitalise the letters of a short word.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-d8135b6a-letters-4f9c27e0a1b6",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{op} {word}:",
    "{word} {op}:",
    "word {word}. {op} it:",
    "{op} this: {word}",
    "{op} {word} as <>:",
    "{op} {word} in quotes:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", '"{}"')
REPLIES = (
    "the result only",
    "the result only",
    "the result only",
    "the result only",
    "the result in angle brackets, like <ab>",
    'the result in double quotes, like "ab"',
)
SYSTEM = (
    "Apply the operation to each letter of the word: next (the following letter of the "
    "alphabet), double (write it twice) or upper (a capital). Reply with {}."
)
LETTERS = "abcdefghijklmnop"
LENGTHS = {1: (2, 3), 2: (4, 5), 3: (6, 7)}
OPERATIONS = {
    "next": lambda letter: chr(ord(letter) + 1),
    "double": lambda letter: letter * 2,
    "upper": str.upper,
}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    op = rng.choice(sorted(OPERATIONS))
    word = "".join(rng.choices(LETTERS, k=rng.choice(LENGTHS[level])))
    answer = "".join(OPERATIONS[op](letter) for letter in word)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(op=op, word=word)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{op} {word}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the edited word as asked."""
    return exact(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion is one word, and that word is the answer, byte for byte."""
    words = text.split()
    return float([word.encode("utf-8", "replace") for word in words] == [answer.encode()])
