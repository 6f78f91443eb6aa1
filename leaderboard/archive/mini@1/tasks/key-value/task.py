"""Looking keys up and answering in a format: "a3 b7 c1 get b,a:" -> "b=7;a=3".

Each letter is a key and the digit after it is its value; keys run from a in order. Level 1
shows 3 pairs and asks for 1, level 2 shows 4 and asks for 2, level 3 shows 5 and asks for 3.
The answer lists the asked keys in the asked order. The key of an item is its pairs and what
is asked.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import pairs

CARD = {
    "name": "key-value",
    "version": "1.0.0",
    "tags": ["mini", "format", "memory"],
    "summary": "Look keys up in a list of pairs and answer as key=value;key=value.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-2ab61f7c-key-value-d94e08c5a713",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{pairs} get {keys}:",
    "get {keys} from {pairs}:",
    "{pairs}; find {keys}:",
    "look up {keys} in {pairs}:",
    "{pairs} get {keys} as <>:",
    "{pairs} get {keys} with colons:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
LINKS = ("=", "=", "=", "=", "=", ":")
REPLIES = (
    "key=value pairs only, like x=1;y=2",
    "key=value pairs only, like x=1;y=2",
    "key=value pairs only, like x=1;y=2",
    "key=value pairs only, like x=1;y=2",
    "key=value pairs in angle brackets, like <x=1;y=2>",
    "key:value pairs only, like x:1;y:2",
)
SYSTEM = "A digit is the value of the letter before it. Look up the letters. Reply with {}."
LETTERS = "abcde"
SIZES = {1: (3, 1), 2: (4, 2), 3: (5, 3)}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    shown, wanted = SIZES[level]
    table = {key: rng.randrange(10) for key in LETTERS[:shown]}
    asked = rng.sample(sorted(table), wanted)
    listing = " ".join(f"{key}{value}" for key, value in table.items())
    text = TEMPLATES[template].format(pairs=listing, keys=",".join(asked))
    answer = ";".join(f"{key}{LINKS[template]}{table[key]}" for key in asked)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{listing} {','.join(asked)}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line lists the asked pairs in order (see ``pairs``)."""
    return pairs(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the whole completion splits into the very pairs of the answer."""
    given = [pair.strip() for pair in text.strip().split(";")]
    return float("\n" not in text.strip() and given == answer.split(";"))
