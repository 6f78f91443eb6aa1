"""Propositional logic: the truth values of several statements, as in "T F F T".

Half of the items ("evaluate") give letters their truth values and ask for those of
formulas; the other half ("derive") give facts and rules and ask which letters follow.
Level 1 asks for four values, of formulas with one connective or of letters that one rule
settles; level 2 for four, of formulas with two connectives or of chained rules; level 3
for five, of formulas with three connectives or of chained rules with up to three
conditions. Every asked value is T or F with equal chance and independent of the others,
and the connectives and the number of conditions are drawn before it, so neither a fixed
answer nor the form of a question gives an answer away. The key is the question with its
parts in alphabetical order.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "logic",
    "version": "1.0.0",
    "tags": ["compositional"],
    "summary": "Evaluate formulas, or derive letters from facts and rules.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-711dc6a1-logic-2c90c442d7d4",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "{given}: {asked}",
    "ask {asked}: {given}",
    "given {given}, decide {asked}:",
    "what of {asked} if {given}?",
    "{given}: {asked} as <>",
    "{given}: {asked} as 1 and 0",
)
REPLIES = (
    "the values only, like T F",
    "the values only, like T F",
    "the values only, like T F",
    "the values only, like T F",
    "the values in angle brackets, like <T F>",
    "digits only, 1 for T and 0 for F, like 10",
)
SYSTEMS = {
    "evaluate": (
        "Letters are true (T) or false (F) as given. An or is T if either side is T or both; "
        "X implies Y is F only if X is T and Y is F. Give the truth value of each formula, in "
        "the given order. Reply with {}."
    ),
    "derive": (
        "A letter follows if it is a fact, or if all letters left of the arrow of one of its "
        "rules follow. For each asked letter, in the given order, give T if it follows and F "
        "if not. Reply with {}."
    ),
}
LETTERS = "ABCDEGHJKLMN"
"""Without F and T, which are values here."""
GIVEN = {1: 4, 2: 4, 3: 5}
"""Letters with a given value in "evaluate"; facts and other conditions in "derive"."""
FACTS = {1: (2, 3), 2: (2, 3), 3: (3, 4)}
ASKED = {1: 4, 2: 4, 3: 5}
SIZES = {1: 2, 2: 3, 3: 4}
"""Letters of a formula."""
CONNECTIVES = {1: ("and", "or"), 2: ("and", "or", "implies"), 3: ("and", "or", "implies")}
CONDITIONS = {1: (1, 2), 2: (1, 2), 3: (2, 3)}
"""Least and most letters left of an arrow."""
NEGATED = 0.4
"""Share of a formula's letters that are negated, before the value of the formula is known."""

Form = tuple[str, Any, Any] | None
"""A connective and its two sides, None standing for a letter not yet chosen."""
Formula = tuple[str, str, bool]
"""Its text, its text with the sides of and/or in alphabetical order, and its value."""
Question = tuple[str, list[str], list[bool], str]
"""What is given, what is asked, the values of the latter, and the semantic key."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    kind = rng.choice(sorted(SYSTEMS))
    values = [rng.random() < 0.5 for _ in range(ASKED[level])]
    make = _evaluate if kind == "evaluate" else _derive
    given, asked, values, key = make(rng, level, values)
    text = TEMPLATES[template].format(given=given, asked=", ".join(asked))
    return {
        "messages": [
            {"role": "system", "content": SYSTEMS[kind].format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": _answer(values, template),
        "level": level,
        "template": template,
        "key": f"{kind} {key}",
        "meta": {"kind": kind},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line lists all values as asked."""
    return exact(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion is one line whose words are those of the answer, in order."""
    return float(len(text.strip().splitlines()) == 1 and text.split() == answer.split())


def _answer(values: list[bool], template: int) -> str:
    if template == 5:
        return "".join("01"[value] for value in values)
    listing = " ".join("FT"[value] for value in values)
    return f"<{listing}>" if template == 4 else listing


def _evaluate(rng: random.Random, level: int, values: list[bool]) -> Question:
    letters = sorted(rng.sample(LETTERS, GIVEN[level]))
    truth = {letter: rng.random() < 0.5 for letter in letters}
    while len({*truth.values()}) == 1:
        truth = {letter: rng.random() < 0.5 for letter in letters}
    asked: list[str] = []
    keys: set[str] = set()
    for value in values:
        form = _form(rng, SIZES[level], CONNECTIVES[level])
        formula = _filled(rng, form, truth)
        while formula[2] != value or formula[1] in keys:
            formula = _filled(rng, form, truth)
        asked.append(formula[0])
        keys.add(formula[1])
    given = " ".join(f"{letter}={'FT'[truth[letter]]}" for letter in letters)
    return given, asked, values, f"{given}: {', '.join(sorted(keys))}"


def _form(rng: random.Random, size: int, connectives: tuple[str, ...]) -> Form:
    """A formula of ``size`` letters with as even sides as can be."""
    if size == 1:
        return None
    left = (size + rng.randrange(2)) // 2
    sides = (_form(rng, part, connectives) for part in (left, size - left))
    return rng.choice(connectives), *sides


def _filled(rng: random.Random, form: Form, truth: dict[str, bool]) -> Formula:
    """The form with different letters, some negated."""
    letters = list(truth)
    rng.shuffle(letters)
    return _fill(rng, form, truth, letters)


def _fill(rng: random.Random, form: Form, truth: dict[str, bool], letters: list[str]) -> Formula:
    if form is None:
        letter = letters.pop()
        negated = rng.random() < NEGATED
        text = f"not {letter}" if negated else letter
        return text, text, truth[letter] != negated
    connective = form[0]
    left, right = (_fill(rng, side, truth, letters) for side in form[1:])
    texts = [f"({s[0]})" if side else s[0] for side, s in zip(form[1:], (left, right), strict=True)]
    keys = [left[1], right[1]] if connective == "implies" else sorted([left[1], right[1]])
    value = {
        "and": left[2] and right[2],
        "or": left[2] or right[2],
        "implies": not left[2] or right[2],
    }[connective]
    return f" {connective} ".join(texts), f"({f' {connective} '.join(keys)})", value


def _derive(rng: random.Random, level: int, values: list[bool]) -> Question:
    letters = rng.sample(LETTERS, GIVEN[level] + len(values))
    base, heads = letters[: GIVEN[level]], letters[GIVEN[level] :]
    facts = sorted(rng.sample(base, rng.choice(FACTS[level])))
    truth = {letter: letter in facts for letter in base}
    rules = []
    for head, value in zip(heads, values, strict=True):
        count = rng.randint(*CONDITIONS[level])
        body = _conditions(rng, truth, count, value, heads if level > 1 else [])
        rules.append(f"{' and '.join(body)} -> {head}")
        if level > 1:
            truth[head] = value
    order = rng.sample(range(len(heads)), len(heads))
    asked = [heads[i] for i in order]
    key = f"{' '.join(facts)}; {', '.join(sorted(rules))}; {' '.join(sorted(heads))}"
    rng.shuffle(rules)
    given = f"facts {', '.join(facts)}; rules {', '.join(rules)}"
    return given, asked, [values[i] for i in order], key


def _conditions(
    rng: random.Random, truth: dict[str, bool], count: int, value: bool, heads: list[str]
) -> list[str]:
    """``count`` letters all of which follow iff ``value``.

    If it can be, one of ``heads`` is among them, and what keeps a rule from applying is one
    of ``heads`` too, so that the answer hangs on another rule's.
    """
    found = [
        letters
        for letters in itertools.combinations(sorted(truth), count)
        if all(truth[letter] for letter in letters) == value
    ]
    chained = [letters for letters in found if not {*letters}.isdisjoint(heads)]
    hanging = [
        letters for letters in chained if all(truth[x] for x in letters if x not in heads)
    ]
    return list(rng.choice(hanging or chained or found))
