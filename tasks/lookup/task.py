"""Look values up with a tool, then add them.

The view is a sum in which letters stand for numbers: ``b+14=``. ``get b`` puts the value of a
letter into the sum: ``7+14=``. Any text that calls no tool is the answer and ends the episode.
Level 1 has one letter and one number, level 2 two letters, level 3 three letters. The store holds
other letters too. The key is the sum with its letters' values: ``14+b7``.
"""

from __future__ import annotations

import json
import random
import string
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
)
from crlbench.reward.playing import replayed
from crlbench.reward.starts import Sizes, build_split, by_start
from crlbench.reward.tools import (
    Arguments,
    Tool,
    dice,
    get,
    gold_transcript,
    told_messages,
    tool_step,
    with_tools,
)
from crlbench.reward.tools_audit import final_text, read_turns
from crlbench.reward.verify import numeric

CARD = {
    "name": "lookup",
    "version": "2.0.0",
    "tags": ["mini", "tools", "memory"],
    "kind": "environment",
    "summary": "Look values up with a tool, then add them.",
    "max_completion_bytes": 128,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-0d95b7e3-lookup-6e91c4f20b8a",
    "contact": "crlbench maintainers",
    "golds": False,
}

SIZES = Sizes(train=2048, train_fixed=256, id=512, hard=256, format=320)
MAX_TURNS = 6
STORED = 6
"""Letters in the store."""
LETTERS_OF_LEVEL = {1: 1, 2: 2, 3: 3}
LARGEST = 49
VIEWS = ("{}=", "{} is", "sum of {}:", "add {}:", "{}= as <>:", "in <>: {}")
REPLIES = ("{}", "{}", "{}", "{}", "<{}>", "<{}>")
FORMS = ("a number only",) * 4 + ("a number in angle brackets, like <5>",) * 2
SYSTEM = (
    "Letters stand for whole numbers. Look up what you need with the tool get, one letter a call, "
    "then reply with the sum, {}."
)
GET = Tool(
    "get",
    "The number that a letter stands for.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id."""
    store = {
        letter: str(rng.randint(1, LARGEST))
        for letter in sorted(rng.sample(string.ascii_lowercase, STORED))
    }
    letters = rng.sample(sorted(store), LETTERS_OF_LEVEL[level])
    terms = [*letters, *([str(rng.randint(1, LARGEST))] if level == 1 else [])]
    rng.shuffle(terms)
    key = "+".join(sorted(term + store.get(term, "") for term in terms))
    state = {"terms": terms, "store": store, "form": template, "told": [], "right": False}
    start = Start(canonical(state), chance=dice("lookup", key))
    return {
        "messages": observe(state, 0),
        "answer": start_text(start),
        "level": level,
        "template": template,
        "key": key,
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng, SIZES, by_start)


def mover(state: State) -> int:
    """The one seat."""
    return 0


def observe(state: State, seat: int) -> list[Message]:
    """The sum as far as it is known."""
    view = VIEWS[state["form"]].format("+".join(state["terms"]))
    system = with_tools(SYSTEM.format(FORMS[state["form"]]), [GET])
    return [{"role": "system", "content": system}, {"role": "user", "content": view}]


def news(state: State, seat: int) -> list[Message]:
    """What the tool said in the last turn; the sum before the first."""
    return told_messages(state) or observe(state, seat)


def step(state: State, said: Said, chance: Chance) -> Step:
    """Look up, or end with an answer."""
    made = tool_step(state, said, [GET], _run)
    if made is not None:
        return made
    wanted = REPLIES[state["form"]].format(_total(state))
    right = numeric(said.text, wanted) == 1.0
    return Step({**state, "told": [], "right": right}, over=True)


def _run(state: State, name: str, arguments: Arguments) -> tuple[State, str]:
    value = get(state["store"], arguments["key"])
    known = {arguments["key"]: value} if arguments["key"] in state["store"] else {}
    return {**state, "terms": [known.get(term, term) for term in state["terms"]]}, value


def _total(state: State) -> int:
    return sum(int(state["store"].get(term, term)) for term in state["terms"])


def score(state: State) -> tuple[float, ...]:
    """1 for the right sum."""
    return (float(state["right"]),)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """The values of the letters, and whether the answer was right."""
    return ("store", "right")


def best(state: State) -> str:
    """What the best policy says: it looks up the first letter, or adds."""
    letter = next((term for term in state["terms"] if term.isalpha()), None)
    if letter is None:
        return REPLIES[state["form"]].format(sum(map(int, state["terms"])))
    return f"get {letter}"


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    news=news,
    step=step,
    score=score,
    hidden=hidden,
    max_turns=MAX_TURNS,
    max_observation_bytes=96,
    tools=(GET.as_data(),),
)
verify = replayed(ENVIRONMENT)


def gold(answer: str) -> str:
    """The transcript of the best script."""
    return gold_transcript(ENVIRONMENT, answer, best)


def audit(text: str, answer: str) -> float:
    """1.0 iff the only turn without calls is the last, comes in time, and says the sum.

    Reads the transcript and the start alone, and takes no step.
    """
    said = final_text(read_turns(text, MAX_TURNS))
    if said is None:
        return 0.0
    state = json.loads(read_start(answer).state)
    total = sum(int(state["store"][one] if one.isalpha() else one) for one in state["terms"])
    wanted = f"<{total}>" if "<" in VIEWS[state["form"]] else str(total)
    return float(said.strip() == wanted or numeric(said, wanted) == 1.0)
