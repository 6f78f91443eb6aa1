"""Knights and knaves: who tells the truth? Answer "Ann=k;Ben=n;Cal=k".

Knights always tell the truth and knaves always lie; everyone makes one claim, and exactly one
assignment fits, found by trying all of them. Level 1 has 3-4 inhabitants and claims about one
or two people, level 2 has 4-5 and adds implications and mixed pairs, level 3 has 6 and adds
counts, parities and claims about three. The assignment is drawn first, uniformly, and the
claims are drawn until it is the only one that fits, so every assignment is equally frequent.
The key is the shape of the puzzle: renamed or reordered inhabitants have the same key.
"""

from __future__ import annotations

import hashlib
import random
from itertools import product
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import pairs

CARD = {
    "name": "knights",
    "version": "1.0.0",
    "tags": ["exploration", "compositional"],
    "summary": "Find out which of 3 to 6 inhabitants tell the truth and which lie.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-6be2a90d-knights-c17f4835d06a",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{names} are here. {claims} What is each of them?",
    "On the island you meet {names}. {claims} Tell who is a knight and who is a knave.",
    "{claims} Say of {names} which are knights and which are knaves.",
    "Puzzle: the inhabitants are {names}. {claims} Who tells the truth and who lies?",
    "{names} are here. {claims} What is each of them? Answer as <>.",
    "{names} are here. {claims} What is each of them? Answer with colons.",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
LINKS = ("=", "=", "=", "=", "=", ":")
REPLIES = (
    "name=k or name=n for each, like Xia=n;Yun=k",
    "name=k or name=n for each, like Xia=n;Yun=k",
    "name=k or name=n for each, like Xia=n;Yun=k",
    "name=k or name=n for each, like Xia=n;Yun=k",
    "name=k or name=n for each in angle brackets, like <Xia=n;Yun=k>",
    "name:k or name:n for each, like Xia:n;Yun:k",
)
SYSTEM = (
    "Everyone is a knight (k), who always tells the truth, or a knave (n), who always lies. "
    "Find out what each one is. Reply only with {}, in the order in which they speak."
)
NAMES = (
    *("Ann", "Ben", "Cal", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon", "Kay", "Leo"),
    *("Mia", "Ned", "Ora", "Pam", "Ray", "Sue", "Tom", "Una", "Val", "Wes", "Zoe"),
)
SIZES = {1: (3, 4, 4, 4), 2: (4, 5), 3: (6,)}
ATTEMPTS = 12
"""Draws of a claim's people after which another kind of claim is tried."""
ROUNDS = 6
"""Rounds of refinement in the key: as many as the most inhabitants."""

CLAIMS = {
    "knight": "{0} is a knight",
    "knave": "{0} is a knave",
    "same": "{0} and {1} are of the same kind",
    "different": "{0} and {1} are of different kinds",
    "knights": "{0} and {1} are both knights",
    "knaves": "{0} and {1} are both knaves",
    "some-knight": "at least one of {0} and {1} is a knight",
    "some-knave": "at least one of {0} and {1} is a knave",
    "implies": "if {0} is a knight, then {1} is a knight too",
    "mixed": "{0} is a knight and {1} is a knave",
    "one-of-three": "exactly one of {0}, {1} and {2} is a knight",
    "count": "the number of knights among us is {0}",
    "odd": "the number of knights among us is odd",
    "even": "the number of knights among us is even",
}
TRUTH = {
    "knight": lambda who, a: who[a],
    "knave": lambda who, a: not who[a],
    "same": lambda who, a, b: who[a] == who[b],
    "different": lambda who, a, b: who[a] != who[b],
    "knights": lambda who, a, b: who[a] and who[b],
    "knaves": lambda who, a, b: not who[a] and not who[b],
    "some-knight": lambda who, a, b: who[a] or who[b],
    "some-knave": lambda who, a, b: not (who[a] and who[b]),
    "implies": lambda who, a, b: who[b] or not who[a],
    "mixed": lambda who, a, b: who[a] and not who[b],
    "one-of-three": lambda who, a, b, c: who[a] + who[b] + who[c] == 1,
    "count": lambda who, m: sum(who) == m,
    "odd": lambda who: sum(who) % 2 == 1,
    "even": lambda who: sum(who) % 2 == 0,
}
ABOUT_ONE = ("knight", "knave")
ABOUT_TWO = ("same", "different", "knights", "knaves", "some-knight", "some-knave")
ORDERED = ("implies", "mixed")
KINDS = {
    1: ABOUT_ONE + ABOUT_TWO,
    2: ABOUT_ONE + ABOUT_TWO + ORDERED,
    3: tuple(CLAIMS),
}
SUBJECT = ("same", "different", "knights", "knaves")
"""Kinds that a speaker joins as "I"; in the other kinds about two the word is "me"."""

Claim = tuple[str, tuple[int, ...]]
"""A kind and what it is about: indices of people or, for "count", a number."""
Who = tuple[bool, ...]


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    size = rng.choice(SIZES[level])
    who = tuple(rng.random() < 0.5 for _ in range(size))
    claims: list[Claim] = []
    while not claims or len(_solutions(claims)) > 1:
        claims = [_draw(rng, KINDS[level], speaker, who) for speaker in range(size)]
    names = rng.sample(NAMES, size)
    told = " ".join(
        f"{name} says: {_words(claim, speaker, names)}."
        for speaker, (name, claim) in enumerate(zip(names, claims, strict=True))
    )
    listing = f"{', '.join(names[:-1])} and {names[-1]}"
    answer = ";".join(
        f"{name}{LINKS[template]}{'k' if kind else 'n'}"
        for name, kind in zip(names, who, strict=True)
    )
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(names=listing, claims=told)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": _key(claims),
        "meta": {"inhabitants": size},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line lists everyone with k or n in order (see ``pairs``)."""
    return pairs(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion, read inhabitant by inhabitant, says the same as the answer."""
    line = text.strip(" \n")
    wanted = answer.split(";")
    for i, part in enumerate(wanted):
        if not line.startswith(part):
            return 0.0
        line = line[len(part) :].strip(" ")
        if i < len(wanted) - 1:
            if line[:1] != ";":
                return 0.0
            line = line[1:].strip(" ")
    return float(line == "")


def _solutions(claims: list[Claim]) -> list[Who]:
    """All assignments in which exactly the knights' claims are true."""
    return [
        who
        for who in product((False, True), repeat=len(claims))
        if all(TRUTH[kind](who, *about) == who[i] for i, (kind, about) in enumerate(claims))
    ]


def _draw(rng: random.Random, kinds: tuple[str, ...], speaker: int, who: Who) -> Claim:
    """A claim that the speaker can make: true of a knight, false of a knave.

    The kind is drawn first and kept while any draw of people may fit, so that the kind of a
    claim tells little about its speaker.
    """
    while True:
        kind = rng.choice(kinds)
        for _ in range(ATTEMPTS):
            about = _about(rng, kind, speaker, len(who))
            if TRUTH[kind](who, *about) == who[speaker]:
                return kind, about


def _about(rng: random.Random, kind: str, speaker: int, size: int) -> tuple[int, ...]:
    others = [i for i in range(size) if i != speaker]
    if kind in ABOUT_ONE:
        return (rng.choice(others),)
    if kind in ABOUT_TWO:
        chosen = rng.sample(range(size), 2)
        return tuple(sorted(chosen, key=lambda i: i == speaker))
    if kind in ORDERED:
        return tuple(rng.sample(others, 2))
    if kind == "one-of-three":
        return tuple(rng.sample(others, 3))
    return (rng.randint(1, size - 1),) if kind == "count" else ()


def _words(claim: Claim, speaker: int, names: list[str]) -> str:
    kind, about = claim
    if kind == "count":
        return CLAIMS[kind].format(*about)
    own = "I" if kind in SUBJECT else "me"
    return CLAIMS[kind].format(*(own if i == speaker else names[i] for i in about))


def _key(claims: list[Claim]) -> str:
    """A hash of the puzzle that renaming and reordering the inhabitants do not change.

    Everyone starts out alike and is told apart, round by round, by what they say about whom
    and by who says what about them. Two puzzles with one key may still differ, which costs
    variety, never separation.
    """
    colours = ["" for _ in claims]
    for _ in range(ROUNDS):
        marks = [[colour] for colour in colours]
        for speaker, (kind, about) in enumerate(claims):
            if kind == "count":
                marks[speaker].append(f"says count {about[0]}")
                continue
            people = ["self" if i == speaker else colours[i] for i in about]
            if kind not in ORDERED:
                people.sort()
            marks[speaker].append(f"says {kind} {people}")
            for place, i in enumerate(about):
                role = place if kind in ORDERED else "any"
                marks[i].append(f"heard {kind} {role} {colours[speaker]} {people}")
        colours = [_short_hash(f"{mark[0]} {sorted(mark[1:])}") for mark in marks]
    return f"{len(claims)} {_short_hash(' '.join(sorted(colours)))}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
