"""Run lengths of a string: "aaabcc:" -> "a3b1c2".

A run is one letter, repeated 1-4 times; neighbouring runs have different letters, and a letter
may come back in a later run. Level 1 has 2-3 runs, level 2 has 4-5, level 3 has 6-7. The key is
the string.
"""

from __future__ import annotations

import random
import re
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "runs",
    "version": "1.0.0",
    "tags": ["mini", "memory"],
    "summary": "Give the letter and the length of each run of a string.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-42c3032b-runs-5bb2c05219d3",
    "contact": "crlbench maintainers",
}
LONGEST_TEXT = 64
"""Characters. A list of many answers, one a line, is longer."""

TEMPLATES = (
    "{s}:",
    "runs of {s}:",
    "{s} has the runs",
    "how long are the runs of {s}?",
    "{s}: as <>",
    "{s}: with commas",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = ("", "", "", "", "", ",")
REPLIES = (
    "each letter and its count, with nothing between them, like x2y1",
    "each letter and its count, with nothing between them, like x2y1",
    "each letter and its count, with nothing between them, like x2y1",
    "each letter and its count, with nothing between them, like x2y1",
    "each letter and its count in angle brackets, like <x2y1>",
    "each letter and its count, with commas and no spaces, like x2,y1",
)
SYSTEM = (
    "A run is one letter, once or several times in a row. Give the runs of the string from left "
    "to right. Reply with {}."
)
LETTERS = "abcdefgh"
RUNS = {1: (2, 3, 3), 2: (4, 5), 3: (6, 7)}
"""How many runs a string of a level has; three are likelier, as there are more of them."""
LONGEST = 4


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    lengths = [rng.randint(1, LONGEST) for _ in range(rng.choice(RUNS[level]))]
    letters = [rng.choice(LETTERS)]
    while len(letters) < len(lengths):
        letters.append(rng.choice(LETTERS.replace(letters[-1], "")))
    runs = [*zip(letters, lengths, strict=True)]
    string = "".join(letter * length for letter, length in runs)
    answer = SEPARATORS[template].join(f"{letter}{length}" for letter, length in runs)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(s=string)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": string,
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line gives all runs as asked.

    A text of more than ``LONGEST_TEXT`` characters gets 0.0.
    """
    return exact(text, answer) if len(text) <= LONGEST_TEXT else 0.0


_RUN = re.compile(r"([a-h])([1-9])")


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion has the runs of the answer, and around and between them its marks."""
    given = text.strip()
    same_runs = _RUN.findall(given) == _RUN.findall(answer)
    return float(same_runs and _RUN.split(given)[::3] == _RUN.split(answer)[::3])
