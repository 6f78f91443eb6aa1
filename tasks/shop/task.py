"""Find a thing in a list of 144 and buy it within a budget, by a search tool.

The wish names a thing, a budget and what the thing should be like: one property at level 1, two at
levels 2 and 3; at level 3 the budget is tight. ``search`` gives up to three products, ``buy`` ends
the episode. A product of another kind, or one over the budget, scores 0; else the score is the
share of the wish that it fulfils, the kind counted as one part. The key is the wish.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from crlbench.reward.bm25 import Corpus
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
from crlbench.reward.tools_audit import read_turns

CARD = {
    "name": "shop",
    "version": "1.0.0",
    "tags": ["tools", "memory"],
    "kind": "environment",
    "summary": "Search a list of products and buy one that fits a wish and a budget.",
    "max_completion_bytes": 256,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-0d95b7e3-shop-39d2f6a08b57",
    "contact": "crlbench maintainers",
    "golds": False,
}

SIZES = Sizes(train=512, train_fixed=64, id=128, hard=64, format=160)
MAX_TURNS = 6
RESULTS = 3
SLACK = 20
"""How far a budget may lie above the price of the product that it was made for."""
TIGHT = 3
"""Budgets of level 3 lie less than this above it."""
THINGS = "kettle lamp chair bowl clock vase shelf mirror basket stool tray bench".split()
COLOURS = "red blue green white black yellow".split()
MATERIALS = "steel oak glass clay bamboo copper".split()
PER_THING = 12
VIEWS = (
    "Wanted: {words}, at most {budget}.",
    "Buy a {words} for {budget} or less.",
    "I need a {words}. My budget is {budget}.",
    "{words}, no more than {budget}, please.",
    "Up to {budget}: {words}.",
    "Order: {words}. Limit: {budget}.",
)
SYSTEM = (
    "You buy for a customer. search finds products by words, buy orders one by its id and ends the "
    "order. Stay within the budget."
)
SEARCH = Tool(
    "search",
    "Up to three products: id, words, price.",
    {
        "type": "object",
        "properties": {
            "most": {"type": "integer", "description": "Highest price."},
            "query": {"type": "string", "description": "Words to look for."},
        },
        "required": ["most", "query"],
    },
)
BUY = Tool(
    "buy",
    "Orders a product.",
    {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
)


@dataclass(frozen=True)
class Product:
    """One line of the list."""

    colour: str
    material: str
    thing: str
    price: int

    @property
    def words(self) -> str:
        """What search looks through."""
        return f"{self.colour} {self.material} {self.thing}"


def _products() -> dict[str, Product]:
    """The list: of each thing twelve of the 36 kinds, with prices from 10 to 99, by a hash."""
    found: dict[str, Product] = {}
    for thing in THINGS:
        kinds = [(colour, material) for colour in COLOURS for material in MATERIALS]
        kinds.sort(key=lambda kind: hashlib.sha256(f"{thing} {kind}".encode()).digest())
        for colour, material in sorted(kinds[:PER_THING]):
            digest = hashlib.sha256(f"{colour} {material} {thing}".encode()).digest()
            price = 10 + int.from_bytes(digest[:4], "big") % 90
            found[f"p{len(found):03d}"] = Product(colour, material, thing, price)
    return found


PRODUCTS = _products()
CORPUS = Corpus({name: product.words for name, product in PRODUCTS.items()})


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id."""
    product = PRODUCTS[rng.choice(sorted(PRODUCTS))]
    wanted = {"colour": product.colour, "material": product.material}
    dropped, slack = rng.choice(sorted(wanted)), rng.randint(TIGHT, SLACK)
    if level == 1:
        del wanted[dropped]
    budget = product.price + (slack % TIGHT if level == 3 else slack)
    wish = {"thing": product.thing, "budget": budget, "like": sorted(wanted.values())}
    key = f"{' '.join(wish['like'])} {wish['thing']} {budget}"
    state = {"wish": wish, "form": template, "told": [], "asked": "", "bought": ""}
    start = Start(canonical(state), chance=dice("shop", key))
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
    """The wish, and what was found last."""
    wish = state["wish"]
    words = f"{' '.join(wish['like'])} {wish['thing']}"
    view = VIEWS[state["form"]].format(words=words, budget=wish["budget"])
    lines = "\n".join([view, *state["told"]])
    return [
        {"role": "system", "content": with_tools(SYSTEM, [SEARCH, BUY])},
        {"role": "user", "content": lines},
    ]


def news(state: State, seat: int) -> list[Message]:
    """What the tools said in the last turn; the wish before the first."""
    return told_messages(state) or observe(state, seat)


def step(state: State, said: Said, chance: Chance) -> Step:
    """Search, or buy; a text without a call ends the episode with nothing bought."""
    made = tool_step(state, said, [SEARCH, BUY], _run)
    if made is None:
        return Step({**state, "told": []}, over=True)
    return replace(made, over=made.over or bool(made.state["bought"]))


def _run(state: State, name: str, arguments: Arguments) -> tuple[State, str]:
    if name == "buy":
        if state["bought"]:
            return state, "already bought"
        if arguments["id"] not in PRODUCTS:
            return state, "no such product"
        return {**state, "bought": arguments["id"]}, "bought"
    names = CORPUS.search(arguments["query"][:200], len(PRODUCTS))
    cheap = [name for name in names if PRODUCTS[name].price <= arguments["most"]][:RESULTS]
    lines = [f"{name} {PRODUCTS[name].words} {PRODUCTS[name].price}" for name in cheap]
    asked = f"{arguments['most']} {arguments['query']}"[:200]
    return {**state, "asked": asked}, "\n".join(lines) or "nothing found"


def score(state: State) -> tuple[float, ...]:
    """The share of the wish that the product fulfils; 0 without the right kind and price."""
    product, wish = PRODUCTS.get(state["bought"]), state["wish"]
    if product is None or product.thing != wish["thing"] or product.price > wish["budget"]:
        return (0.0,)
    met = sum(like in (product.colour, product.material) for like in wish["like"])
    return ((1 + met) / (1 + len(wish["like"])),)


def hidden(state: State, seat: int) -> tuple[str, ...]:
    """What was bought: who sees it has ended the episode."""
    return ("bought",)


def best(state: State) -> str:
    """What the best policy says: it searches for the wish, and buys the first that is found."""
    wish = state["wish"]
    if state["told"]:
        return f"buy {state['told'][0].split(' ')[0]}"
    return f"search {wish['budget']} {' '.join(wish['like'])} {wish['thing']}"


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    news=news,
    step=step,
    score=score,
    hidden=hidden,
    max_turns=MAX_TURNS,
    max_observation_bytes=512,
    history="append",
    tools=(SEARCH.as_data(), BUY.as_data()),
)
verify = replayed(ENVIRONMENT)


def gold(answer: str) -> str:
    """The transcript of the best script."""
    return gold_transcript(ENVIRONMENT, answer, best)


def audit(text: str, answer: str) -> float:
    """The score from the first order of the transcript, which must end it.

    Reads the transcript, the start and the list alone, and takes no step.
    """
    turns = read_turns(text, MAX_TURNS)
    if turns is None or not all(isinstance(turn, list) for turn in turns):
        return 0.0
    *before, last = [_ordered(turn) for turn in turns]
    if any(before) or not last:
        return 0.0
    wish = json.loads(read_start(answer).state)["wish"]
    colour, material, thing = PRODUCTS[last].words.split()
    if thing != wish["thing"] or PRODUCTS[last].price > wish["budget"]:
        return 0.0
    parts = [thing, *wish["like"]]
    return float(Fraction(len({colour, material, thing} & {*parts}), len(parts)))


def _ordered(calls: Any) -> str:
    """The first product that the calls of a turn order; "" for none."""
    for call in calls:
        given = call["arguments"]
        if call["name"] == "buy" and given.keys() == {"id"} and given["id"] in [*PRODUCTS]:
            return str(given["id"])
    return ""
