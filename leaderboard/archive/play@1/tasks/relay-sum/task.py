"""A running sum, one addition a turn: "41+7=" -> "48", then "48+3=" -> "51", and so on.

The first term of every view but the first one is what was answered before, right or wrong. A reply
that is no number ends the episode. Level 1 adds two one-digit numbers to a two-digit one, level 2
three, level 3 four. The key is the list of the terms.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from itertools import accumulate
from typing import Any

from crlbench.reward.env import (
    Chance,
    Environment,
    Message,
    Said,
    Start,
    State,
    Step,
    canonical,
    read_start,
    start_text,
    transcript,
)
from crlbench.reward.playing import replayed
from crlbench.reward.splits import held_out
from crlbench.reward.starts import Sizes, build_split, by_start

CARD = {
    "name": "relay-sum",
    "version": "1.0.0",
    "tags": ["mini", "credit", "arithmetic"],
    "kind": "environment",
    "summary": "Add numbers one after the other; each turn goes on from its own last answer.",
    "max_completion_bytes": 16,
    "golds": False,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-9c0f003e-relay-sum-3a9ce0f3c583",
    "contact": "crlbench maintainers",
}
STEPS = True
SIZES = Sizes(train=2048, train_fixed=256, id=512, hard=256, format=320)

TERMS = {1: 2, 2: 3, 3: 4}
"""Level -> numbers that are added, one a turn."""
LARGEST = 9999
"""Answers above it are no number: no view grows without end."""

VIEWS = (
    "{a}+{b}=",
    "{a} plus {b} is",
    "sum of {a} and {b}:",
    "add {b} to {a}:",
    "{a}+{b}= as <>:",
    "equation for {a}+{b}:",
)
REPLIES = ("{c}", "{c}", "{c}", "{c}", "<{c}>", "{a}+{b}={c}")
FORMS = ("the number only",) * 4 + (
    "the number in angle brackets, like <5>",
    "the whole equation, like 2+3=5",
)
NO_NUMBER = "no number"
CUT = "cut off"


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id; ``template`` changes the words, never the draws.

    Every sum on the right way is one that the task addition trains on: none is an item that it
    evaluates.
    """
    while True:
        terms = [rng.randint(10, 99), *(rng.randint(1, 9) for _ in range(TERMS[level]))]
        pairs = zip(accumulate(terms), terms[1:], strict=False)
        if not any(held_out("addition", f"{min(p)}+{max(p)}") for p in pairs):
            break
    state = {"last": terms[0], "terms": terms[1:], "right": sum(terms), "form": template}
    key = "+".join(map(str, terms))
    dice = hashlib.sha256(f"relay-sum|{key}".encode()).hexdigest()[:16]
    return {
        "messages": observe(state, 0),
        "answer": start_text(Start(canonical(state | {"count": len(terms) - 1}), chance=dice)),
        "level": level,
        "template": template,
        "key": key,
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng, SIZES, by_start)


def mover(state: State) -> int:
    """There is one seat."""
    return 0


def observe(state: State, seat: int) -> list[Message]:
    """The next addition."""
    view = VIEWS[state["form"]].format(a=state["last"], b=state["terms"][0])
    return [
        {"role": "system", "content": f"Add the two numbers. Reply with {FORMS[state['form']]}."},
        {"role": "user", "content": view},
    ]


def _pattern(state: State) -> str:
    """What a reply looks like in the form that is asked for, its number in a group."""
    fields = {"a": state["last"], "b": state["terms"][0], "c": "NUMBER"}
    return re.escape(REPLIES[state["form"]].format(**fields)).replace("NUMBER", "([0-9]{1,9})")


def step(state: State, said: Said, chance: Chance) -> Step:
    """Go on from the number that was answered; each right addition pays its share of 1."""
    found = re.fullmatch(_pattern(state), said.text.strip())
    number = int(found[1]) if found else LARGEST + 1
    if said.cut or number > LARGEST:
        return Step(state | {"last": 0}, over=True, fault=CUT if said.cut else NO_NUMBER)
    is_right = number == state["last"] + state["terms"][0]
    paid = 1.0 / state["count"] if is_right else 0.0
    rest = {"last": number, "terms": state["terms"][1:]}
    return Step(state | rest, paid=(paid,), over=not rest["terms"])


def score(state: State) -> tuple[float, ...]:
    """1 where all numbers are added and the sum is right."""
    return (float(not state["terms"] and state["last"] == state["right"]),)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """The sum of all terms."""
    return ("right",)


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    step=step,
    score=score,
    hidden=hidden,
    max_turns=max(TERMS.values()),
    max_observation_bytes=32,
)
verify = replayed(ENVIRONMENT)


def best(state: State) -> str:
    """The right sum, in the form that is asked for."""
    a, b = state["last"], state["terms"][0]
    return REPLIES[state["form"]].format(a=a, b=b, c=a + b)


def gold(answer: str) -> str:
    """The transcript of the right sums."""
    state, said = json.loads(read_start(answer).state), []
    for _ in state["terms"]:
        said.append(Said(best(state)))
        state = step(state, said[-1], lambda label: 0.0).state
    return transcript(said)


def audit(text: str, answer: str) -> float:
    """1.0 iff as many turns as terms were said, and the numbers at their ends lead to the sum."""
    state = json.loads(answer)["state"]
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        return 0.0
    last, closing = state["last"], ">" if state["form"] == 4 else ""
    for one, term in zip(said, state["terms"], strict=False):
        words = one.strip().removesuffix(closing)
        opening = {4: "<", 5: f"{last}+{term}="}.get(state["form"], "")
        digits = words.removeprefix(opening)
        if len(one.strip()) - len(digits) != len(opening + closing) or not digits.isdecimal():
            return 0.0
        last = int(digits)
    return float(len(said) == len(state["terms"]) and last == state["right"])
