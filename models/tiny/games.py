"""Games that documents are played in: starts, rules and scripts of two seats.

They are here and not tasks, so that models have read them before tasks of them exist. A view names
its game by its form. An illegal text ends a game: who says it gets 0, and the others a half.
:mod:`teams` has those that are won together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container
from functools import cache
from itertools import product

from worlds import Key, World

from crlbench.reward.env import Chance, Environment, Message, Said, State, Step

Legal = Callable[[State], Container[str]]
"""The legal texts; a game whose scripts draw from them gives them in order."""
Apply = Callable[[State, str], State]
"""(state, legal text) -> the next state; it has ``scores`` where the game is over."""


def make_game(
    seats: int,
    view: Callable[[State, int], str],
    legal: Legal,
    apply: Apply,
    start: Callable[[random.Random, int], State],
    key: Callable[[State], set[Key]],
    best: Callable[[State, random.Random], str],
    turns: int,
    blunder: Callable[[State, random.Random], str] | None = None,
) -> World:
    """A world from the functions of its game; states have ``seat``, who moves."""

    def observe(state: State, seat: int) -> list[Message]:
        return [{"role": "user", "content": view(state, seat)}]

    def step(state: State, said: Said, chance: Chance) -> Step:
        text = said.text.strip()
        if said.cut or text not in legal(state):
            scores = [0.0 if seat == state["seat"] else 0.5 for seat in range(seats)]
            return Step(state | {"scores": scores}, over=True, fault="not legal")
        after = apply(state, text)
        return Step(after, over="scores" in after)

    environment = Environment(
        mover=lambda state: state["seat"],
        observe=observe,
        step=step,
        score=lambda state: tuple(state.get("scores", [0.5] * seats)),
        seats=seats,
        max_turns=turns,
        max_observation_bytes=64,
        on_illegal="forfeit",
    )
    return World(
        environment,
        lambda rng, level, template: start(rng, level),
        key,
        best,
        blunder or (lambda state, rng: rng.choice(legal(state))),  # type: ignore[call-overload]
        lambda state, rng: rng.choice(["?", "no", "0x"]),
    )


# -- take: take one of a few numbers from a heap; who takes last wins ----------------------------


def _take_start(rng: random.Random, level: int) -> State:
    moves = sorted(rng.sample(range(1, 7), rng.choice([2, 3])))
    return {"moves": moves, "left": rng.randint(moves[0], 13 * level), "seat": 0}


def _take_legal(state: State) -> tuple[str, ...]:
    return tuple(str(move) for move in state["moves"] if move <= state["left"])


def _take_apply(state: State, text: str) -> State:
    after = state | {"left": state["left"] - int(text), "seat": 1 - state["seat"]}
    if after["left"] < state["moves"][0]:
        after["scores"] = [float(seat == state["seat"]) for seat in (0, 1)]
    return after


@cache
def _wins(moves: tuple[int, ...], left: int) -> bool:
    return any(move <= left and not _wins(moves, left - move) for move in moves)


def _take_best(state: State, rng: random.Random) -> str:
    moves, legal = tuple(state["moves"]), _take_legal(state)
    winning = [text for text in legal if not _wins(moves, state["left"] - int(text))]
    return rng.choice(winning or legal)


def _take_key(state: State) -> set[Key]:
    return {("take", f"{'/'.join(map(str, state['moves']))}:{state['left']}")}


TAKE = make_game(
    2,
    lambda state, seat: f"{state['left']} take {'/'.join(map(str, state['moves']))}:",
    _take_legal,
    _take_apply,
    _take_start,
    _take_key,
    _take_best,
    turns=40,
)


# -- tictactoe, from positions that are reached --------------------------------------------------

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
TURNS = ((6, 3, 0, 7, 4, 1, 8, 5, 2), (2, 1, 0, 5, 4, 3, 8, 7, 6))
"""A quarter turn and a reflection, as places that are read."""


def _won(board: str, mark: str) -> bool:
    return any(all(board[place] == mark for place in line) for line in LINES)


def _is_over(board: str) -> bool:
    return _won(board, "X") or _won(board, "O") or "." not in board


def _put(board: str, place: int, mark: str) -> str:
    return board[:place] + mark + board[place + 1 :]


@cache
def _value(board: str, mark: str) -> int:
    """1, 0 or -1 for the mark that moves."""
    other = "O" if mark == "X" else "X"
    if _won(board, other):
        return -1
    places = [place for place, found in enumerate(board) if found == "."]
    return max((-_value(_put(board, place, mark), other) for place in places), default=0)


def _board_start(rng: random.Random, level: int) -> State:
    while True:
        board = "." * 9
        for ply in range(rng.randint(max(4 - 2 * level, 0), 9 - 3 - level)):
            empty = [place for place, found in enumerate(board) if found == "."]
            board = _put(board, rng.choice(empty), "XO"[ply % 2])
        if not _is_over(board):
            return {"board": board, "seat": (9 - board.count(".")) % 2}


def _board_legal(state: State) -> tuple[str, ...]:
    return tuple(str(n + 1) for n, found in enumerate(state["board"]) if found == ".")


def _board_apply(state: State, text: str) -> State:
    mark = "XO"[state["seat"]]
    board = _put(state["board"], int(text) - 1, mark)
    after = {"board": board, "seat": 1 - state["seat"]}
    if _is_over(board):
        won = _won(board, mark)
        after["scores"] = [float(seat == state["seat"]) if won else 0.5 for seat in (0, 1)]
    return after


def _board_best(state: State, rng: random.Random) -> str:
    mark, other = ("X", "O") if state["seat"] == 0 else ("O", "X")
    worth = {
        text: -_value(_put(state["board"], int(text) - 1, mark), other)
        for text in _board_legal(state)
    }
    return rng.choice([text for text, value in worth.items() if value == max(worth.values())])


def _board_key(state: State) -> set[Key]:
    alike, board = [], state["board"]
    for _ in range(4):
        board = "".join(board[place] for place in TURNS[0])
        alike += [board, "".join(board[place] for place in TURNS[1])]
    return {("tictactoe", min(alike))}


TICTACTOE = make_game(
    2,
    lambda state, seat: (
        f"{'XO'[seat]} {state['board'][:3]}/{state['board'][3:6]}/{state['board'][6:]}"
    ),
    _board_legal,
    _board_apply,
    _board_start,
    _board_key,
    _board_best,
    turns=9,
)


# -- kuhn: a card each, one bet; "p" passes or folds, "b" bets or calls --------------------------


def _kuhn_start(rng: random.Random, level: int) -> State:
    count = 3 + 2 * level
    return {"cards": rng.sample(range(1, count + 1), 2), "of": count, "said": "", "seat": 0}


def _kuhn_apply(state: State, text: str) -> State:
    said = state["said"] + text
    after = state | {"said": said, "seat": 1 - state["seat"]}
    if said in ("", "p", "b", "pb"):
        return after
    first = 1 if state["cards"][0] > state["cards"][1] else -1
    if said.endswith("bp"):
        won = 1 if said == "bp" else -1
    else:
        won = first * (2 if said.endswith("bb") else 1)
    after["scores"] = [(2 + won) / 4, (2 - won) / 4]
    return after


def _kuhn_best(state: State, rng: random.Random) -> str:
    """High cards bet and call, the lowest bluffs at times."""
    strength = state["cards"][state["seat"]] / state["of"]
    faces_bet = state["said"].endswith("b")
    if strength > 0.7 or (faces_bet and strength > 0.5):
        return "b"
    return "b" if not faces_bet and strength < 0.3 and rng.random() < 1 / 3 else "p"


def _kuhn_key(state: State) -> set[Key]:
    return {("kuhn", f"{state['of']}:{state['cards'][0]},{state['cards'][1]}")}


KUHN = make_game(
    2,
    lambda state, seat: f"card {state['cards'][seat]} of {state['of']} {state['said']}:",
    lambda state: ("p", "b"),
    _kuhn_apply,
    _kuhn_start,
    _kuhn_key,
    _kuhn_best,
    turns=3,
)


# -- bargain: three kinds of things, worth something else to each; an offer is what one keeps ----


def _triple(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _bargain_start(rng: random.Random, level: int) -> State:
    things = [rng.randint(0, 1 + level) for _ in range(3)]
    things[rng.randrange(3)] += 1
    worth = [[rng.randint(0, 2 + level) for _ in range(3)] for _ in range(2)]
    for values in worth:
        values[next(i for i, count in enumerate(things) if count)] += 1
    return {"things": things, "worth": worth, "kept": [], "seat": 0}


def _bargain_legal(state: State) -> tuple[str, ...]:
    offers = product(*(range(count + 1) for count in state["things"]))
    return (*(_triple(list(offer)) for offer in offers), *(["deal"] if state["kept"] else []))


def _worth(values: list[int], things: list[int]) -> int:
    return sum(value * count for value, count in zip(values, things, strict=True))


def _rest(state: State) -> list[int]:
    return [count - kept for count, kept in zip(state["things"], state["kept"], strict=True)]


def _bargain_apply(state: State, text: str) -> State:
    mover = state["seat"]
    if text != "deal":
        return state | {"kept": [int(part) for part in text.split(",")], "seat": 1 - mover}
    scores = [0.0, 0.0]
    for seat, share in ((mover, _rest(state)), (1 - mover, state["kept"])):
        values = state["worth"][seat]
        scores[seat] = _worth(values, share) / _worth(values, state["things"])
    return state | {"scores": scores}


def _bargain_best(state: State, rng: random.Random) -> str:
    """Keep what is worth most a piece, give the rest; take what is worth at least half."""
    values, things = state["worth"][state["seat"]], state["things"]
    if state["kept"] and 2 * _worth(values, _rest(state)) >= _worth(values, things):
        return "deal"
    middle = sorted(values)[1]
    return _triple(
        [n if value >= max(middle, 1) else 0 for n, value in zip(things, values, strict=True)]
    )


def _bargain_view(state: State, seat: int) -> str:
    left = f" left {_triple(_rest(state))}" if state["kept"] else ""
    return f"{_triple(state['things'])} worth {_triple(state['worth'][seat])}{left}:"


def _bargain_key(state: State) -> set[Key]:
    first, second = map(_triple, state["worth"])
    return {("bargain", f"{_triple(state['things'])}:{first}:{second}")}


BARGAIN = make_game(
    2,
    _bargain_view,
    _bargain_legal,
    _bargain_apply,
    _bargain_start,
    _bargain_key,
    _bargain_best,
    turns=6,
)


GAMES = {
    "take": TAKE,
    "tictactoe": TICTACTOE,
    "kuhn": KUHN,
    "bargain": BARGAIN,
}
"""By the name that a task of it has or will have."""
