"""Who plays the documents of several turns: an environment, its starts, and a script.

A script blunders: it says the best text, a legal one that is drawn, or an illegal one. Here are the
worlds whose environment is a task; :mod:`games` and :mod:`teams` have those of several seats.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from corpus import load_task

from crlbench.reward.env import Environment, State, read_start

Key = tuple[str, str]
"""A task, and the key of one of its items."""
LARGEST = 99
"""Numbers of one and two digits are drawn up to it."""


@dataclass(frozen=True)
class World:
    """An environment with a script for every seat."""

    environment: Environment
    start: Callable[[random.Random, int, int], State]
    """(generator, level, template) -> the state in which an episode begins."""
    keys: Callable[[State], set[Key]]
    """The items that a seat meets in a state: as a start of this world, or as another task."""
    best: Callable[[State, random.Random], str]
    blunder: Callable[[State, random.Random], str]
    """A text that is legal, and whatever else."""
    illegal: Callable[[State, random.Random], str]
    """A text that is a fault."""


def addition_key(terms: list[str]) -> set[Key]:
    """The item of addition that a sum of two numbers is."""
    if len(terms) != 2 or not all(map(str.isdecimal, terms)):
        return set()
    low, high = sorted(map(int, terms))
    return {("addition", f"{low}+{high}")}


def _start(name: str) -> Callable[[random.Random, int, int], State]:
    def start(rng: random.Random, level: int, template: int) -> State:
        row = load_task(name).item(rng, level, template)
        state: State = json.loads(read_start(row["answer"]).state)
        return state

    return start


def _best(name: str) -> Callable[[State, random.Random], str]:
    def best(state: State, rng: random.Random) -> str:
        text: str = load_task(name).best(state)
        return text

    return best


def _world(
    name: str,
    keys: Callable[[State], set[Key]],
    blunder: Callable[[State, random.Random], str],
    illegal: Callable[[State, random.Random], str],
) -> World:
    environment: Environment = load_task(name).ENVIRONMENT
    return World(environment, _start(name), keys, _best(name), blunder, illegal)


# -- guess ---------------------------------------------------------------------------------------


def _guess_keys(state: State) -> set[Key]:
    """A range that is no start's, as most are after a guess, is no item."""
    count = state["high"] - state["low"] + 1
    if count not in {numbers for numbers, _ in load_task("guess").LEVELS.values()}:
        return set()
    return {("guess", f"{state['low']}-{state['high']}:{state['hidden']}")}


def _guess_blunder(state: State, rng: random.Random) -> str:
    return rng.choice(load_task("guess").legal(state))


def _guess_illegal(state: State, rng: random.Random) -> str:
    outside = [n for n in range(10, LARGEST + 1) if not state["low"] <= n <= state["high"]]
    form: str = load_task("guess").REPLIES[state["form"]]
    return form.format(rng.choice(outside))


# -- relay-sum -----------------------------------------------------------------------------------


def _relay_keys(state: State) -> set[Key]:
    terms = [str(state["last"]), *map(str, state["terms"])]
    is_start = len(terms) - 1 in load_task("relay-sum").TERMS.values()
    return ({("relay-sum", "+".join(terms))} if is_start else set()) | addition_key(terms[:2])


def _relay_blunder(state: State, rng: random.Random) -> str:
    a, b = state["last"], state["terms"][0]
    wrong = max(a + b + rng.choice([-10, -2, -1, 1, 2, 10]), 0)
    form: str = load_task("relay-sum").REPLIES[state["form"]]
    return form.format(a=a, b=b, c=wrong)


def _no_number(state: State, rng: random.Random) -> str:
    return rng.choice(["?", "no", "x", ""])


# -- lookup --------------------------------------------------------------------------------------


def _lookup_keys(state: State) -> set[Key]:
    terms = state["terms"]
    if not any(map(str.isalpha, terms)):
        return addition_key(terms)
    return {("lookup", "+".join(sorted(term + state["store"].get(term, "") for term in terms)))}


def _lookup_blunder(state: State, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"get {rng.choice(sorted(state['store']))}"
    form: str = load_task("lookup").REPLIES[state["form"]]
    return form.format(rng.randint(2, LARGEST))


# -- calc ----------------------------------------------------------------------------------------


def _calc_keys(state: State) -> set[Key]:
    sign = "*" if "*" in state["ask"] else "+"
    terms = state["ask"].split(sign)
    key = sign.join(sorted(terms, key=int))
    return {("calc", key)} | (addition_key(terms) if sign == "+" else set())


def _calc_blunder(state: State, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"calc {state['ask']}"
    form: str = load_task("calc").REPLIES[state["form"]]
    return form.format(rng.randint(2, LARGEST if "+" in state["ask"] else LARGEST**2))


# -- shop ----------------------------------------------------------------------------------------


def _shop_keys(state: State) -> set[Key]:
    wish = state["wish"]
    return {("shop", f"{' '.join(wish['like'])} {wish['thing']} {wish['budget']}")}


def _shop_blunder(state: State, rng: random.Random) -> str:
    products = load_task("shop").PRODUCTS
    if state["told"] and rng.random() < 0.5:
        return f"buy {rng.choice(state['told']).split(' ')[0]}"
    product = products[rng.choice(sorted(products))]
    return f"search {state['wish']['budget']} {product.material} {state['wish']['thing']}"


def _bare(tool: str) -> Callable[[State, random.Random], str]:
    """A call that lacks its arguments."""
    return lambda state, rng: tool


WORLDS: dict[str, World] = {
    "guess": _world("guess", _guess_keys, _guess_blunder, _guess_illegal),
    "relay-sum": _world("relay-sum", _relay_keys, _relay_blunder, _no_number),
    "lookup": _world("lookup", _lookup_keys, _lookup_blunder, _bare("get")),
    "calc": _world("calc", _calc_keys, _calc_blunder, _bare("calc")),
    "shop": _world("shop", _shop_keys, _shop_blunder, _bare("search")),
}
"""By the name of the task."""
