"""Products that are too hard to do in the head, and sums that are not; a calculator is at hand.

The view is a product or a sum of two numbers: ``37*84=``. ``calc 37*84`` shows the value behind it:
``37*84=3108``. Any text that calls no tool is the answer and ends the episode. A call for a sum,
and every call after the first, costs a quarter of the score: the model is to learn when to call.
Level 1 has a factor of one digit, level 2 two factors of two digits, level 3 two of three digits;
sums have as many digits as the longer factor. The key is the question with its smaller number
first.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

from crlbench.reward.calculator import calculate
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
    gold_transcript,
    told_messages,
    tool_step,
    with_tools,
)
from crlbench.reward.tools_audit import final_text, read_turns
from crlbench.reward.verify import numeric

CARD = {
    "name": "calc",
    "version": "1.0.0",
    "tags": ["mini", "tools", "arithmetic"],
    "kind": "environment",
    "summary": "Use a calculator for products, and none for sums.",
    "max_completion_bytes": 128,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-0d95b7e3-calc-a48d07e15c93",
    "contact": "crlbench maintainers",
    "relative": "addition",
    "golds": False,
}

SIZES = Sizes(train=2048, train_fixed=256, id=512, hard=256, format=320)
MAX_TURNS = 4
COST = 0.25
"""What a call costs that was not needed."""
MAX_RESULT = 14
"""Longest result that is shown, in bytes."""
DIGITS_OF_LEVEL = {1: (1, 2), 2: (2, 2), 3: (3, 3)}
VIEWS = (
    "{ask}={shown}",
    "{ask} is {shown}",
    "value of {ask}: {shown}",
    "compute {ask}: {shown}",
    "{ask} as <>: {shown}",
    "in <>: {ask}={shown}",
)
REPLIES = ("{}", "{}", "{}", "{}", "<{}>", "<{}>")
FORMS = ("a number only",) * 4 + ("a number in angle brackets, like <5>",) * 2
SYSTEM = (
    "Reply with the value, {}. The tool calc computes products for you. A call for a sum, or a "
    "second call, costs a quarter of the score."
)
CALC = Tool(
    "calc",
    "The value of an expression of numbers.",
    {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
)


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id."""
    sign = rng.choice("*+")
    low, high = DIGITS_OF_LEVEL[level]
    sizes = (low, high) if sign == "*" else (high, high)
    numbers = [rng.randint(max(2, 10 ** (size - 1)), 10**size - 1) for size in sizes]
    rng.shuffle(numbers)
    key = sign.join(map(str, sorted(numbers)))
    state = {
        **{"ask": sign.join(map(str, numbers)), "form": template},
        **{"shown": "", "told": [], "calls": 0, "right": False},
    }
    start = Start(canonical(state), chance=dice("calc", key))
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
    """The question, and behind it what the calculator showed last."""
    view = VIEWS[state["form"]].format(ask=state["ask"], shown=state["shown"]).rstrip()
    system = with_tools(SYSTEM.format(FORMS[state["form"]]), [CALC])
    return [{"role": "system", "content": system}, {"role": "user", "content": view}]


def news(state: State, seat: int) -> list[Message]:
    """What the calculator said in the last turn; the question before the first."""
    return told_messages(state) or observe(state, seat)


def step(state: State, said: Said, chance: Chance) -> Step:
    """Compute, or end with an answer."""
    made = tool_step(state, said, [CALC], _run)
    if made is not None:
        return made
    wanted = REPLIES[state["form"]].format(calculate(state["ask"]))
    right = numeric(said.text, wanted) == 1.0
    return Step({**state, "told": [], "right": right}, over=True)


def _run(state: State, name: str, arguments: Arguments) -> tuple[State, str]:
    value = calculate(arguments["expression"])
    shown = value if len(value) <= MAX_RESULT else "too large"
    return {**state, "shown": shown, "calls": state["calls"] + 1}, shown


def score(state: State) -> tuple[float, ...]:
    """1 for the right value, less what calls cost."""
    free = 1 if "*" in state["ask"] else 0
    unneeded = max(state["calls"] - free, 0)
    return (max(1.0 - COST * unneeded, 0.0) if state["right"] else 0.0,)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """How often the calculator was used, and whether the answer was right."""
    return ("calls", "right")


def best(state: State) -> str:
    """What the best policy says: it computes sums itself and products by one call."""
    if "*" in state["ask"] and not state["shown"]:
        return f"calc {state['ask']}"
    return REPLIES[state["form"]].format(state["shown"] or calculate(state["ask"]))


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    news=news,
    step=step,
    score=score,
    hidden=hidden,
    max_turns=MAX_TURNS,
    max_observation_bytes=128,
    tools=(CALC.as_data(),),
)
verify = replayed(ENVIRONMENT)


def gold(answer: str) -> str:
    """The transcript of the best script."""
    return gold_transcript(ENVIRONMENT, answer, best)


def audit(text: str, answer: str) -> float:
    """The score by counting: the last turn's number, and the calls that have an expression.

    Reads the transcript and the start alone, and takes no step.
    """
    turns = read_turns(text, MAX_TURNS)
    said = final_text(turns)
    if turns is None or said is None:
        return 0.0
    state = json.loads(read_start(answer).state)
    ask, form = state["ask"], "<{}>" if "<" in VIEWS[state["form"]] else "{}"
    left, sign, right = ask.partition("*" if "*" in ask else "+")
    wanted = int(left) * int(right) if sign == "*" else int(left) + int(right)
    if numeric(said, form.format(wanted)) != 1.0:
        return 0.0
    made = sum(_computes(call) for turn in turns if isinstance(turn, list) for call in turn)
    return float(max(1 - Fraction(1, 4) * max(made - (sign == "*"), 0), 0))


def _computes(call: dict[str, Any]) -> bool:
    given = call["arguments"]
    return (
        call["name"] == "calc"
        and given.keys() == {"expression"}
        and isinstance(given["expression"], str)
    )
