"""Find a hidden whole number by asking: "17-48" -> "32", then "33-48" or "17-31", and so on.

The view is the range that is left. An answer outside it, or one that is no number, is a fault and
spends a turn. Level 1 hides one of 16 numbers and gives 4 turns, level 2 one of 32 and 5 turns,
level 3 one of 64 and 6 turns. Halving the range finds all numbers of a level but one. The key is
the first range with the hidden number.
"""

from __future__ import annotations

import hashlib
import json
import random
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
from crlbench.reward.starts import Sizes, build_split, by_start

CARD = {
    "name": "guess",
    "version": "1.0.0",
    "tags": ["mini", "credit", "exploration"],
    "kind": "environment",
    "summary": "Find a hidden number in a few turns, told the range that is left.",
    "max_completion_bytes": 8,
    "golds": False,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-21b26d19-guess-8ffa4aa3a318",
    "contact": "crlbench maintainers",
}
SIZES = Sizes(train=1024, train_fixed=256, id=512, hard=256, format=320)

LEVELS = {1: (16, 4), 2: (32, 5), 3: (64, 6)}
"""Level -> numbers of the first range, and turns."""
LARGEST = 99
SMALLEST = 10

VIEWS = (
    "{low}-{high}",
    "from {low} to {high}:",
    "a number, at least {low}, at most {high}:",
    "{low} <= x <= {high}, x =",
    "{low}-{high} as <>:",
    "{low}-{high} as x=:",
)
REPLIES = ("{}", "{}", "{}", "{}", "<{}>", "x={}")
SYSTEM = (
    "A whole number is hidden in the range. Name one number of the range. If it is not the hidden "
    "one, you are told the range that is left, and name another. Reply with {}."
)
FORMS = ("the number only",) * 4 + (
    "the number in angle brackets, like <12>",
    "an equation, like x=12",
)
OUTSIDE = "not in the range"
NO_NUMBER = "no number"
CUT = "cut off"


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id; ``template`` changes the words, never the draws."""
    count, turns = LEVELS[level]
    low = rng.randint(SMALLEST, LARGEST - count + 1)
    hidden = rng.randint(low, low + count - 1)
    state = {"low": low, "high": low + count - 1, "hidden": hidden, "form": template}
    state |= {"left": turns, "found": False}
    dice = hashlib.sha256(f"guess|{low}|{count}|{hidden}".encode()).hexdigest()[:16]
    return {
        "messages": observe(state, 0),
        "answer": start_text(Start(canonical(state), chance=dice)),
        "level": level,
        "template": template,
        "key": f"{low}-{low + count - 1}:{hidden}",
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng, SIZES, by_start)


def mover(state: State) -> int:
    """There is one seat."""
    return 0


def observe(state: State, seat: int) -> list[Message]:
    """The range that is left."""
    view = VIEWS[state["form"]].format(low=state["low"], high=state["high"])
    return [
        {"role": "system", "content": SYSTEM.format(FORMS[state["form"]])},
        {"role": "user", "content": view},
    ]


def legal(state: State) -> tuple[str, ...]:
    """Every number of the range, in the form that is asked for."""
    form = REPLIES[state["form"]]
    return tuple(form.format(number) for number in range(state["low"], state["high"] + 1))


def step(state: State, said: Said, chance: Chance) -> Step:
    """Narrow the range; it is over when the number is found or no turn is left."""
    texts, left = legal(state), state["left"] - 1
    text = said.text.strip()
    if said.cut or text not in texts:
        fault = CUT if said.cut else OUTSIDE if any(map(str.isdecimal, text)) else NO_NUMBER
        return Step(state | {"left": left}, over=left == 0, fault=fault)
    number = state["low"] + texts.index(text)
    if number == state["hidden"]:
        return Step(state | {"found": True, "left": left}, over=True)
    side = {"low": number + 1} if number < state["hidden"] else {"high": number - 1}
    return Step(state | side | {"left": left}, over=left == 0)


def score(state: State) -> tuple[float, ...]:
    """1 where the number was found."""
    return (float(state["found"]),)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """The number, and what follows from it."""
    return ("hidden", "found")


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    step=step,
    score=score,
    legal=legal,
    hidden=hidden,
    max_turns=6,
    max_observation_bytes=40,
)
verify = replayed(ENVIRONMENT)


def best(state: State) -> str:
    """The middle of the range, the lower one of two."""
    texts = legal(state)
    return texts[(len(texts) - 1) // 2]


def gold(answer: str) -> str:
    """The transcript of halving the range."""
    state, said = json.loads(read_start(answer).state), []
    over = False
    while not over:
        said.append(Said(best(state)))
        taken = step(state, said[-1], lambda label: 0.0)
        state, over = taken.state, taken.over
    return transcript(said)


def audit(text: str, answer: str) -> float:
    """1.0 iff the transcript's last turn, and no earlier one, names the hidden number in time."""
    state = json.loads(answer)["state"]
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0
    before, _, behind = REPLIES[state["form"]].partition("{}")
    named = f"{before}{state['hidden']}{behind}"
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        return 0.0
    hits = [place for place, one in enumerate(said, start=1) if one.strip() == named]
    return float(hits == [len(said)] and len(said) <= state["left"])
