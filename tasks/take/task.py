"""A game of taking from a pile: "23 take 1,4,6:" -> "4", then the other player takes, and so on.

Two players take one of the numbers of a set in turn; who can take no more has lost. The policy has
one seat, a script the other: it plays at random, greedily, or as well as one can. An answer that
is not in the set, or more than is left, forfeits the game: it scores 0, and the other seat a half.

Sets have 2 or 3 numbers from 1 to 9 that share no divisor: with one, the game is that of a smaller
set, move for move. Level 1 begins with at most 19, level 2 with 20 to 29, level 3 with 30 to 39.
The key is the pile and the set.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from itertools import combinations
from typing import Any

from crlbench.reward.env import (
    Chance,
    Draw,
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
from crlbench.reward.playing import open_episode, replayed, take_turn
from crlbench.reward.starts import Sizes, build_split, by_start

CARD = {
    "name": "take",
    "version": "1.0.0",
    "tags": ["mini", "credit", "exploration"],
    "kind": "environment",
    "summary": "Win a game of taking from a pile against players of three strengths.",
    "max_completion_bytes": 8,
    "golds": False,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-7b5f13b3-take-a55c0cec9eba",
    "contact": "crlbench maintainers",
}
SIZES = Sizes(train=2048, train_fixed=256, id=512, hard=256, format=320)

LEVELS = {1: (3, 19), 2: (20, 29), 3: (30, 39)}
"""Level -> smallest and largest pile."""
LARGEST = 9
SETS = tuple(
    numbers
    for count in (2, 3)
    for numbers in combinations(range(1, LARGEST + 1), count)
    if math.gcd(*numbers) == 1
)
RIVALS = ("random", "greedy", "optimal")

VIEWS = (
    "{left} take {numbers}:",
    "take {numbers} from {left}:",
    "{left} left, {numbers}:",
    "of {left} take {numbers}:",
    "{left} take {numbers} as <>:",
    "{left} take {numbers} as t=:",
)
REPLIES = ("{}", "{}", "{}", "{}", "<{}>", "t={}")
SYSTEM = (
    "Two players take from a pile in turn. Take one of the numbers. Who can take no more has lost. "
    "Reply with {}."
)
FORMS = ("the number only",) * 4 + (
    "the number in angle brackets, like <4>",
    "an equation, like t=4",
)
ILLEGAL = "cannot be taken"
CUT = "cut off"
DRAWN = 0.5
"""What a seat gets whose opponent forfeits, and of a game that is not over."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One start without its id; ``template`` changes the words, never the draws.

    No game begins so low that the first turn can end it: the policy always speaks.
    """
    low, high = LEVELS[level]
    numbers = rng.choice([one for one in SETS if one[0] + one[-1] <= high])
    left = rng.randint(max(low, numbers[0] + numbers[-1]), high)
    seat, rival = rng.randrange(2), rng.choice(RIVALS)
    state = {"left": left, "numbers": list(numbers), "seat": 0, "form": template}
    state |= {"winner": -1, "forfeit": False}
    key = f"{left} of {','.join(map(str, numbers))}"
    dice = hashlib.sha256(f"take|{key}|{seat}|{rival}".encode()).hexdigest()[:16]
    start = Start(canonical(state), seat, ((1 - seat, rival),), dice)
    return {
        "messages": list(open_episode(ENVIRONMENT, start).view),
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
    """The seats take turns."""
    return int(state["seat"])


def observe(state: State, seat: int) -> list[Message]:
    """What is left, and the set: all that decides the game."""
    numbers = ",".join(map(str, state["numbers"]))
    view = VIEWS[state["form"]].format(left=state["left"], numbers=numbers)
    return [
        {"role": "system", "content": SYSTEM.format(FORMS[state["form"]])},
        {"role": "user", "content": view},
    ]


def legal(state: State) -> tuple[str, ...]:
    """Every number that fits, in the form that is asked for."""
    form = REPLIES[state["form"]]
    return tuple(form.format(number) for number in _fitting(state["numbers"], state["left"]))


def step(state: State, said: Said, chance: Chance) -> Step:
    """Take a number; it is over when the other seat can take none."""
    texts, text = legal(state), said.text.strip()
    if said.cut or text not in texts:
        fault = CUT if said.cut else ILLEGAL
        forfeited = {"winner": 1 - state["seat"], "forfeit": True}
        return Step(state | forfeited, over=True, fault=fault)
    fitting = _fitting(state["numbers"], state["left"])
    left = state["left"] - fitting[texts.index(text)]
    over = not _fitting(state["numbers"], left)
    after = state | {"left": left, "seat": 1 - state["seat"]}
    return Step(after | ({"winner": state["seat"]} if over else {}), over=over)


def score(state: State) -> tuple[float, ...]:
    """1 for the winner; a half where the opponent forfeited, or the game is not over."""
    won = DRAWN if state["forfeit"] else 1.0
    if state["winner"] < 0:
        return (DRAWN, DRAWN)
    return tuple(won if seat == state["winner"] else 0.0 for seat in range(2))


def rival(name: str, state: State, chance: Chance) -> str:
    """One of the numbers that a script of this name takes here."""
    numbers, left = state["numbers"], state["left"]
    choices = _choices(name, numbers, left, _lost(numbers, left))
    return REPLIES[state["form"]].format(choices[int(chance("number") * len(choices))])


def _fitting(numbers: list[int], left: int) -> list[int]:
    return [number for number in numbers if number <= left]


def _lost(numbers: list[int], left: int) -> list[bool]:
    """For each pile up to ``left``: whether who must take loses in best play."""
    lost: list[bool] = []
    for pile in range(left + 1):
        lost.append(not any(lost[pile - number] for number in _fitting(numbers, pile)))
    return lost


def _choices(name: str, numbers: list[int], left: int, lost: list[bool]) -> list[int]:
    """What a script takes, each with the same chance.

    ``greedy`` takes the largest number that fits. ``optimal`` takes the smallest number that
    wins; where none does, the smallest one.
    """
    fitting = _fitting(numbers, left)
    if name == "greedy":
        return fitting[-1:]
    if name == "optimal":
        return ([number for number in fitting if lost[left - number]] or fitting)[:1]
    return fitting


def chances(name: str, numbers: list[int], left: int) -> tuple[list[float], list[float]]:
    """The chance of winning against a script in best play, for each pile up to ``left``.

    The first list is for piles at which oneself takes, the second for those of the script.
    """
    own: list[float] = []
    other: list[float] = []
    lost = _lost(numbers, left)
    for pile in range(left + 1):
        fitting = _fitting(numbers, pile)
        own.append(max((other[pile - number] for number in fitting), default=0.0))
        values = [own[pile - number] for number in _choices(name, numbers, pile, lost)]
        other.append(sum(values) / len(values) if values else 1.0)
    return own, other


ENVIRONMENT = Environment(
    mover=mover,
    observe=observe,
    step=step,
    score=score,
    legal=legal,
    rival=rival,
    seats=2,
    panel=RIVALS,
    on_illegal="forfeit",
    max_turns=LEVELS[3][1],
    max_observation_bytes=24,
)
verify = replayed(ENVIRONMENT)


def best(state: State, name: str) -> str:
    """The number with the best chance against a script; of equal ones the smallest."""
    numbers, left = state["numbers"], state["left"]
    _, other = chances(name, numbers, left)
    fitting = _fitting(numbers, left)
    number = max(fitting, key=lambda one: other[left - one])
    return REPLIES[state["form"]].format(number)


def gold(answer: str) -> str:
    """The transcript of best play against the row's script, by the row's dice."""
    start, said = read_start(answer), []
    position, (_, name) = open_episode(ENVIRONMENT, start), start.rivals[0]
    while position.scores is None:
        said.append(Said(best(json.loads(position.state), name)))
        position = take_turn(ENVIRONMENT, start, position, said[-1])
    return transcript(said)


def audit(text: str, answer: str) -> float:
    """1.0 iff whoever finds nothing to take is the script, after all that was said.

    What the scripts take is found by other rules: the optimal one by Grundy values.
    """
    table = json.loads(answer)
    state, seat, ((_, name),) = table["state"], table["seat"], table["rivals"].items()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        return 0.0
    before, _, behind = REPLIES[state["form"]].partition("{}")
    pile, numbers, turn, waiting = state["left"], state["numbers"], 0, list(said)
    while pile >= min(numbers):
        if turn % 2 == seat:
            words = waiting.pop(0).strip() if waiting else ""
            spelt = {f"{before}{one}{behind}": one for one in numbers if one <= pile}
            if words not in spelt:
                return 0.0
            taken = spelt[words]
        else:
            taken = _taken(name, numbers, pile, Draw(table["chance"], "rival", turn)("number"))
        pile, turn = pile - taken, turn + 1
    return float(not waiting and turn % 2 != seat)


def _taken(name: str, numbers: list[int], pile: int, drawn: float) -> int:
    """What a script takes, by the sorted set and the Grundy values of the piles below."""
    fitting = sorted(one for one in numbers if one <= pile)
    if name == "random":
        return fitting[int(drawn * len(fitting))]
    if name == "greedy":
        return max(fitting)
    grundy: list[int] = []
    for left in range(pile):
        reached = {grundy[left - one] for one in numbers if one <= left}
        grundy.append(min(set(range(len(reached) + 1)) - reached))
    return next((one for one in fitting if grundy[pile - one] == 0), fitting[0])
