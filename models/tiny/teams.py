"""Teams that documents are played in: seats that know, or do, different things and win together.

As :mod:`games`: rules, starts and scripts, before tasks of them exist.
"""

from __future__ import annotations

import random
from collections.abc import Container

from games import make_game
from worlds import Key, addition_key

from crlbench.reward.env import State

# -- whisper: seat 1 asks seat 0 for a letter by one byte, hears one byte, and answers -----------


def _whisper_start(rng: random.Random, level: int) -> State:
    letters = sorted(rng.sample("abcdefgh", 1 + level))
    store = {letter: str(rng.randint(0, 9)) for letter in letters}
    return {"store": store, "want": rng.choice(letters), "said": "", "seat": 1}


def _whisper_view(state: State, seat: int) -> str:
    if seat == 1:
        return f"{state['want']}? {state['said'][1:]}".rstrip()
    return f"{';'.join(f'{k}={v}' for k, v in state['store'].items())} {state['said']}".rstrip()


def _whisper_legal(state: State) -> tuple[str, ...]:
    return tuple("0123456789" if len(state["said"]) == 2 else "0123456789abcdefgh")


def _whisper_apply(state: State, text: str) -> State:
    said = state["said"] + text
    after = state | {"said": said, "seat": 1 - state["seat"]}
    if len(said) == 3:
        after["scores"] = [float(text == state["store"][state["want"]])] * 2
    return after


def _whisper_best(state: State, rng: random.Random) -> str:
    said, store = state["said"], state["store"]
    if len(said) == 2:
        return said[1] if said[1].isdecimal() else rng.choice("0123456789")
    return store.get(said, rng.choice(sorted(store.values()))) if said else state["want"]


def _whisper_key(state: State) -> set[Key]:
    store = ",".join(letter + digit for letter, digit in state["store"].items())
    return {("whisper", f"{store}?{state['want']}")}


WHISPER = make_game(
    2,
    _whisper_view,
    _whisper_legal,
    _whisper_apply,
    _whisper_start,
    _whisper_key,
    _whisper_best,
    turns=3,
)


# -- crew: one poses a sum of three numbers, one adds the first two, one all, one judges both ----

ROLES = ("pose", "plan", "solve", "rate")


def _crew_view(state: State, seat: int) -> str:
    parts = [ROLES[seat], str(state["most"]) if seat == 0 else state["said"][0]]
    return " ".join(parts + state["said"][1 : seat and 2]) + ":"


def _crew_numbers(state: State) -> list[int]:
    return [int(part) for part in state["said"][0].split("+")]


def _crew_legal(state: State) -> Container[str]:
    return (_Sums(state["most"]), _NUMERALS, _NUMERALS, _MARKS)[state["seat"]]


class _Sums(Container[str]):
    """All sums of three numbers up to a most: too many to list."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __contains__(self, text: object) -> bool:
        parts = str(text).split("+")
        fits = len(parts) == 3 and all(p.isdecimal() and str(int(p)) == p for p in parts)
        return fits and all(1 <= int(part) <= self.most for part in parts)


_NUMERALS = frozenset(map(str, range(1000)))
_MARKS = frozenset(f"{number:02}" for number in range(100))
"""A digit for the problem and one for the plan."""


def _crew_apply(state: State, text: str) -> State:
    after = state | {"said": [*state["said"], text], "seat": state["seat"] + 1}
    if after["seat"] < len(ROLES):
        return after
    numbers, plan = _crew_numbers(state), int(state["said"][1])
    solved, planned = int(state["said"][2]) == sum(numbers), plan == sum(numbers[:2])
    judged = text == f"9{9 * planned}"
    return after | {"seat": 0, "scores": [0.5, float(planned), float(solved), float(judged)]}


def _crew_best(state: State, rng: random.Random) -> str:
    if state["seat"] == 0:
        return "+".join(str(rng.randint(1, state["most"])) for _ in range(3))
    numbers = _crew_numbers(state)
    if state["seat"] == 1:
        return str(sum(numbers[:2]))
    plan = int(state["said"][1])
    if state["seat"] == 2:
        return str(plan + numbers[2])
    return f"9{9 * (plan == sum(numbers[:2]))}"


def _crew_blunder(state: State, rng: random.Random) -> str:
    if state["seat"] in (0, 3):
        return _crew_best(state, rng) if state["seat"] == 0 else rng.choice(["99", "90", "09"])
    return str(max(int(_crew_best(state, rng)) + rng.choice([-10, -1, 1, 10]), 0))


def _crew_key(state: State) -> set[Key]:
    if not state["said"]:
        return set()
    numbers = state["said"][0].split("+")
    shown = [*state["said"][1:2], numbers[2]]
    return {("crew", state["said"][0])} | addition_key(numbers[:2]) | addition_key(shown)


CREW = make_game(
    4,
    _crew_view,
    _crew_legal,
    _crew_apply,
    lambda rng, level: {"most": (9, 29, 99)[level - 1], "said": [], "seat": 0},
    _crew_key,
    _crew_best,
    turns=4,
    blunder=_crew_blunder,
)

TEAMS = {"whisper": WHISPER, "crew": CREW}
"""By the name that a task of it has or will have."""
