"""Edits of a word, one after another: "belano: reverse, drop 2" -> "oaleb".

Edits: reverse, sort, rotate k, drop k, swap i j and upper k. Level 1 applies one edit to a
word of 4-5 letters, level 2 two different ones to 5-6 letters, level 3 three to 7-8 letters.
Words are made of syllables. Every edit changes the word, and leaving any one of them out
gives another answer, so neither copying nor doing half of the work pays. The key is the
word and its edits.
"""

from __future__ import annotations

import random
import re
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "string-edits",
    "version": "1.0.0",
    "tags": ["compositional"],
    "summary": "Apply one to three edits to the letters of a word.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-04db772f-string-edits-3740c83cf846",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{word}: {edits}",
    "{edits} {word}:",
    "word {word}; {described}:",
    "start with {word}, then {described}:",
    "{word}: {edits} as <>:",
    "{word}: {edits} with hyphens:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = ("", "", "", "", "", "-")
REPLIES = (
    "the new word only",
    "the new word only",
    "the new word only",
    "the new word only",
    "the new word in angle brackets, like <abc>",
    "the letters of the new word joined by hyphens, like a-b-c",
)
SYSTEM = (
    "Edit the word. Do the edits in the given order, each on the result of the one before. "
    "reverse: turn the word around. sort: put the letters in alphabetical order. rotate k: "
    "move the first k letters to the end. drop k: remove letter number k. swap i j: let "
    "letters number i and j change places. upper k: make letter number k a capital. The "
    "first letter is number 1. Reply with {}."
)
DESCRIPTIONS = {
    "reverse": "turn it around",
    "sort": "put its letters in alphabetical order",
    "rotate": "move its first {} letters to the end",
    "drop": "remove letter {}",
    "swap": "let letters {} and {} change places",
    "upper": "make letter {} a capital",
}
CONSONANTS, VOWELS = "bdlmnrstvwz", "aeiou"
LENGTHS = {1: (4, 5), 2: (5, 6), 3: (7, 8)}
EDITS = {1: 1, 2: 2, 3: 3}
ROTATIONS = (2, 3)

Edit = tuple[str, tuple[int, ...]]
"""A kind of edit and the numbers it takes, counted from 1."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    while True:
        word = _word(rng, rng.choice(LENGTHS[level]))
        edits = _edits(rng, len(word), EDITS[level])
        if _matters(word, edits):
            break
    listing = ", ".join(" ".join([name, *map(str, at)]) for name, at in edits)
    described = ", then ".join(DESCRIPTIONS[name].format(*at) for name, at in edits)
    text = TEMPLATES[template].format(word=word, edits=listing, described=described)
    answer = SEPARATORS[template].join(_edited(word, edits))
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{word}: {listing}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the edited word as asked."""
    return exact(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the whole completion is the answer, letter by letter, between blanks."""
    return float(re.fullmatch(rf"\s*{re.escape(answer)}\s*", text) is not None)


def _word(rng: random.Random, length: int) -> str:
    """Consonants and vowels in turn, the first of either kind."""
    first = rng.randrange(2)
    return "".join(rng.choice((CONSONANTS, VOWELS)[(first + i) % 2]) for i in range(length))


def _edits(rng: random.Random, length: int, count: int) -> list[Edit]:
    """Different edits; sort never comes after upper, whose capital it would have to place."""
    names = rng.sample(sorted(DESCRIPTIONS), count)
    while "upper" in names[: names.index("sort") if "sort" in names else 0]:
        names = rng.sample(sorted(DESCRIPTIONS), count)
    edits = []
    for name in names:
        edits.append((name, _places(rng, name, length)))
        length -= name == "drop"
    return edits


def _places(rng: random.Random, name: str, length: int) -> tuple[int, ...]:
    if name == "rotate":
        return (rng.choice(ROTATIONS),)
    count = DESCRIPTIONS[name].count("{}")
    return tuple(sorted(rng.sample(range(1, length + 1), count)))


def _matters(word: str, edits: list[Edit]) -> bool:
    """Whether every edit changes what it is given, and the answer needs each of them."""
    stages = [_edited(word, edits[:i]) for i in range(len(edits) + 1)]
    partial = [_edited(word, edits[:i] + edits[i + 1 :]) for i in range(len(edits))]
    return all(a != b for a, b in zip(stages, stages[1:], strict=False)) and (
        stages[-1] not in (word, *partial)
    )


def _edited(word: str, edits: list[Edit]) -> str:
    for name, at in edits:
        word = _edit(word, name, [place - 1 for place in at])
    return word


def _edit(word: str, name: str, at: list[int]) -> str:
    if name == "reverse":
        return word[::-1]
    if name == "sort":
        return "".join(sorted(word))
    first = at[0]
    if name == "rotate":
        return word[first + 1 :] + word[: first + 1]
    letters = list(word)
    if name == "drop":
        del letters[first]
    elif name == "upper":
        letters[first] = letters[first].upper()
    else:
        letters[first], letters[at[1]] = letters[at[1]], letters[first]
    return "".join(letters)
