"""Questions with one whole number as their answer, which a short program finds.

The tool ``python`` runs code in the sandbox and says what it prints. Any text that calls no tool is
the answer and ends the episode. Level 1 counts or sums below 2,000, level 2 below 20,000 or over
large powers, level 3 asks two things of one number. Each call starts afresh. The key is the
question.
"""

from __future__ import annotations

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
)
from crlbench.reward.playing import replayed
from crlbench.reward.python_tool import run_python
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
    "name": "python-tool",
    "version": "1.0.0",
    "tags": ["tools", "code"],
    "kind": "environment",
    "summary": "Answer questions about numbers by running short programs.",
    "max_completion_bytes": 1024,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-0d95b7e3-python-tool-f05b9c72d18e",
    "contact": "crlbench maintainers",
    "golds": False,
    "heavy": True,
}

SIZES = Sizes(train=256, train_fixed=64, id=128, hard=64, format=160)
MAX_TURNS = 4
VIEWS = (
    "{}",
    "Question: {}",
    "{} Use a program.",
    "Find this out: {}",
    "{} Answer as <>.",
    "Answer in <>: {}",
)
REPLIES = ("{}", "{}", "{}", "{}", "<{}>", "<{}>")
FORMS = ("a whole number only",) * 4 + ("a whole number in angle brackets, like <5>",) * 2
SYSTEM = (
    "Answer with {}. The tool python runs a program and tells you what it prints; use it before "
    "you answer."
)
PYTHON = Tool(
    "python",
    "Runs Python code and says what it prints.",
    {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
QUESTIONS = (
    (
        "How many whole numbers from 1 to {n} are divisible by {a} or by {b}, but not by {c}?",
        "sum((x % {a} == 0 or x % {b} == 0) and x % {c} != 0 for x in range(1, {n} + 1))",
    ),
    (
        "How many whole numbers from 1 to {n} have a sum of digits that is divisible by {a}?",
        "sum(sum(map(int, str(x))) % {a} == 0 for x in range(1, {n} + 1))",
    ),
    (
        "What is the sum of the squares of all numbers from 1 to {n} that leave {r} when divided "
        "by {a}?",
        "sum(x * x for x in range(1, {n} + 1) if x % {a} == {r})",
    ),
    (
        "What is the sum of the decimal digits of {a} to the power of {p}?",
        "sum(map(int, str({a} ** {p})))",
    ),
)
"""Words, and the expression whose value is the answer."""
BOTH = (
    "How many whole numbers from 1 to {n} are divisible by {a}, have a sum of digits above {s}, "
    "and contain the digit {d}?",
    "sum(x % {a} == 0 and sum(map(int, str(x))) > {s} and '{d}' in str(x) "
    "for x in range(1, {n} + 1))",
)
LARGEST = {1: 2_000, 2: 20_000, 3: 20_000}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id."""
    words, expression = BOTH if level == 3 else rng.choice(QUESTIONS)
    a, b, c = rng.sample(range(3, 24), 3)
    facts = {
        "n": rng.randint(LARGEST[level] // 4, LARGEST[level]),
        **{"a": a, "b": b, "c": c, "r": rng.randrange(a)},
        **{"p": rng.randint(20, 40 * level), "s": rng.randint(8, 20), "d": rng.randint(1, 9)},
    }
    expression = expression.format(**facts)
    state = {
        **{"ask": words.format(**facts), "code": f"print({expression})"},
        **{"value": str(eval(expression)), "form": template},
        **{"told": [], "ran": "", "right": False},
    }
    start = Start(canonical(state), chance=dice("python-tool", state["ask"]))
    return {
        "messages": observe(state, 0),
        "answer": start_text(start),
        "level": level,
        "template": template,
        "key": state["ask"],
        "meta": {},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng, SIZES, by_start)


def mover(state: State) -> int:
    """The one seat."""
    return 0


def observe(state: State, seat: int) -> list[Message]:
    """The question, and what the last program printed."""
    view = "\n".join([VIEWS[state["form"]].format(state["ask"]), *state["told"]])
    system = with_tools(SYSTEM.format(FORMS[state["form"]]), [PYTHON])
    return [{"role": "system", "content": system}, {"role": "user", "content": view}]


def news(state: State, seat: int) -> list[Message]:
    """What the tool said in the last turn; the question before the first."""
    return told_messages(state) or observe(state, seat)


def step(state: State, said: Said, chance: Chance) -> Step:
    """Run a program, or end with an answer."""
    made = tool_step(state, said, [PYTHON], _run)
    if made is not None:
        return made
    right = numeric(said.text, REPLIES[state["form"]].format(state["value"])) == 1.0
    return Step({**state, "told": [], "right": right}, over=True)


def _run(state: State, name: str, arguments: Arguments) -> tuple[State, str]:
    return {**state, "ran": arguments["code"][:2048]}, run_python(arguments["code"])


def score(state: State) -> tuple[float, ...]:
    """1 for the right number."""
    return (float(state["right"]),)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """The program and its value, and whether the answer was right."""
    return ("code", "value", "right")


def best(state: State) -> str:
    """What the best policy says: it runs the program, and repeats what that prints."""
    if state["told"]:
        return REPLIES[state["form"]].format(state["told"][0])
    return f"python {state['code']}"


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    news=news,
    step=step,
    score=score,
    hidden=hidden,
    max_turns=MAX_TURNS,
    max_observation_bytes=8400,
    history="append",
    tools=(PYTHON.as_data(),),
    max_state_bytes=1 << 16,
)
verify = replayed(ENVIRONMENT)


def gold(answer: str) -> str:
    """The transcript of the best script."""
    return gold_transcript(ENVIRONMENT, answer, best)


def audit(text: str, answer: str) -> float:
    """1.0 iff the only turn without calls is the last, comes in time, and says the number.

    Reads the transcript and the start alone, and runs nothing.
    """
    said = final_text(read_turns(text, MAX_TURNS))
    state = json.loads(read_start(answer).state)
    wanted = f"<{state['value']}>" if "<" in VIEWS[state["form"]] else state["value"]
    return float(said is not None and numeric(said, wanted) == 1.0)
