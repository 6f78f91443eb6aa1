"""Small environments: what they do can be followed by hand."""

from __future__ import annotations

from dataclasses import replace

from crlbench.reward.env import (
    Chance,
    Environment,
    Message,
    Said,
    Start,
    State,
    Step,
    canonical,
    start_text,
)


def countdown_start(left: int, chance: str = "0") -> str:
    """A number from which 1 or 2 is taken in each turn."""
    return start_text(Start(canonical({"left": left, "turn": 0}), chance=chance))


def _show(state: State, seat: int) -> list[Message]:
    return [{"role": "user", "content": str(state["left"])}]


def _take(state: State, said: Said, chance: Chance) -> Step:
    after = state | {"turn": state["turn"] + 1}
    if said.cut or said.text not in ("1", "2"):
        return Step(after, fault="cut off" if said.cut else "1 or 2")
    taken = int(said.text)
    after["left"] = max(state["left"] - taken, 0)
    return Step(after, paid=(float(taken),), over=after["left"] == 0)


COUNTDOWN = Environment(
    mover=lambda state: 0,
    observe=_show,
    step=_take,
    score=lambda state: (float(state["left"] == 0),),
    legal=lambda state: ("1", "2"),
    max_turns=5,
    max_observation_bytes=8,
)
"""One seat; said texts other than 1 and 2 are faults."""


def _take_by_length(state: State, said: Said, chance: Chance) -> Step:
    text = said.text if said.cut else str(1 + len(said.text) % 2)
    return _take(state, Said(text, cut=said.cut), chance)


LENIENT = replace(COUNTDOWN, step=_take_by_length, legal=None)
"""The same, taken 1 by a text of even length and 2 by any other: random models score at times."""


def _add(state: State, said: Said, chance: Chance) -> Step:
    number = int(said.text) if said.text in ("1", "2", "3") else 1
    total, mover = state["sum"] + number, state["mover"]
    after = {"sum": total, "mover": 1 - mover, "winner": mover if total >= 6 else -1}
    paid = (float(number), 0.0) if mover == 0 else (0.0, float(number))
    return Step(after, paid=paid, over=total >= 6)


def _score(state: State) -> tuple[float, ...]:
    return tuple(float(state["winner"] == seat) for seat in (0, 1))


DUEL = Environment(
    mover=lambda state: state["mover"],
    observe=lambda state, seat: [{"role": "user", "content": str(state["sum"])}],
    step=_add,
    score=_score,
    rival=lambda name, state, chance: str(1 + int(3 * chance("step"))),
    seats=2,
    max_turns=8,
    max_observation_bytes=8,
    panel=("random",),
)
"""Two seats add 1, 2 or 3; who reaches 6 wins."""
DUEL_START = start_text(
    Start(canonical({"sum": 0, "mover": 0, "winner": -1}), 1, ((0, "random"),), "7")
)
"""The policy has seat 1, and a script begins."""
