"""The environment take: by hand, against exact game values, and where verifier and audit agree."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.reward.env import Draw, Said, Start, canonical, read_start, start_text, transcript
from crlbench.reward.playing import open_episode, take_turn

TASK = Catalog().load_task("take")
STATE = {
    "forfeit": False, "form": 0, "left": 17, "numbers": [1, 2, 3], "seat": 0, "winner": -1,
}  # fmt: skip


def start(name: str, seat: int = 0, **changes: Any) -> str:
    return start_text(Start(canonical(STATE | changes), seat, ((1 - seat, name),), "00"))


@cache
def grundy(numbers: tuple[int, ...], left: int) -> int:
    """Of a pile, by Sprague and Grundy: who must take loses iff it is 0."""
    reached = {grundy(numbers, left - number) for number in numbers if number <= left}
    return next(value for value in range(len(reached) + 1) if value not in reached)


def takes(name: str, numbers: tuple[int, ...], left: int) -> list[int]:
    """What a script takes, each with the same chance."""
    fitting = [number for number in numbers if number <= left]
    if name == "random":
        return fitting
    if name == "greedy":
        return [max(fitting)]
    winning = [number for number in fitting if grundy(numbers, left - number) == 0]
    return [min(winning or fitting)]


@cache
def wins(name: str, numbers: tuple[int, ...], left: int, own: bool, plays_best: bool) -> float:
    """The exact chance of winning against a script, in best play or with random numbers."""
    fitting = [number for number in numbers if number <= left]
    if not fitting:
        return float(not own)
    choices = fitting if own else takes(name, numbers, left)
    values = [wins(name, numbers, left - number, not own, plays_best) for number in choices]
    return max(values) if own and plays_best else sum(values) / len(values)


def exact(answer: str, plays_best: bool) -> tuple[str, float]:
    """(name of the script, chance of winning) from a row's start."""
    table = json.loads(answer)
    state, ((_, name),) = table["state"], table["rivals"].items()
    own = table["seat"] == 0
    return name, wins(name, tuple(state["numbers"]), state["left"], own, plays_best)


@pytest.mark.parametrize(
    ("numbers", "period", "lost"),
    [((1, 2), 3, {0}), ((1, 2, 3), 4, {0}), ((1, 3), 2, {0}), ((2, 3), 5, {0, 1}),
     ((1, 4), 5, {0, 2}), ((1, 3, 4), 7, {0, 2})],
)  # fmt: skip
def test_the_optimal_script_keeps_what_is_won(
    numbers: tuple[int, ...], period: int, lost: set[int]
) -> None:
    """Closed forms of subtraction games: the lost piles, by their remainder."""
    own, _ = TASK.code.chances("optimal", list(numbers), 39)
    for left in range(40):
        assert own[left] == (left % period not in lost) == (grundy(numbers, left) != 0)
        if left >= min(numbers):
            state = STATE | {"left": left, "numbers": list(numbers)}
            taken = int(TASK.code.rival("optimal", state, lambda label: 0.5))
            assert left % period in lost or (left - taken) % period in lost


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "id", "hard", "format"])
def test_the_ceiling_is_that_of_best_play(split: str) -> None:
    rows, card = TASK.rows(split), TASK.card.splits[split]
    total = variance = 0.0
    for row in rows:
        name, value = exact(row["answer"], plays_best=True)
        score = TASK.verify(TASK.code.gold(row["answer"]), row["answer"]).outcome
        assert score in (0.0, 1.0) and (name == "random" or score == value), row["id"]
        total, variance = total + value, variance + value * (1 - value)
    assert abs(card.ceiling - total / len(rows)) < 4.0 * math.sqrt(variance) / len(rows)


@pytest.mark.parametrize("split", ["id", "hard", "train"])
def test_the_floor_is_that_of_a_random_number(split: str) -> None:
    rows, card = TASK.rows(split)[:512], TASK.card.splits[split]
    chances = [exact(row["answer"], plays_best=False)[1] for row in rows]
    spread = math.sqrt(sum(p * (1 - p) for p in chances)) / len(rows)
    assert card.floor == card.nulls.random_legal == max(card.nulls.model_dump().values())
    assert abs(card.floor - sum(chances) / len(rows)) < 4.0 * spread


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_starts_are_shared_among_scripts_and_seats(split: str) -> None:
    rows = [json.loads(row["answer"]) for row in TASK.rows(split)]
    for name in ("random", "greedy", "optimal"):
        share = sum([*one["rivals"].values()] == [name] for one in rows) / len(rows)
        assert abs(share - 1 / 3) < 4.0 * math.sqrt(2 / 9 / len(rows))
    share = sum(one["seat"] for one in rows) / len(rows)
    assert abs(share - 1 / 2) < 4.0 * math.sqrt(1 / 4 / len(rows))


def test_no_set_is_a_smaller_one_in_disguise() -> None:
    """Two games are the same move for move where all numbers share a divisor."""
    keys = {row["key"] for split in ("id", "hard") for row in TASK.rows(split)}
    for key in keys:
        left, _, numbers = key.partition(" of ")
        sizes = [int(number) for number in numbers.split(",")]
        assert math.gcd(*sizes) == 1 and sorted(sizes) == sizes
        assert sizes[0] + sizes[-1] <= int(left) < 40


def test_a_game_by_hand() -> None:
    """17 of 1,2,3: leaving 16, 12, 8 and 4 wins whatever the script does."""
    answer = start("greedy")
    position, views = open_episode(TASK.environment, read_start(answer)), []
    for text in ("1", "1", "1", "1", "1"):
        views.append(position.view[-1]["content"])
        position = take_turn(TASK.environment, read_start(answer), position, Said(text))
    assert views == [f"{left} take 1,2,3:" for left in (17, 13, 9, 5, 1)]
    assert position.scores == (1.0, 0.0) and len(position.turns) == 9
    assert "".join(turn.said.text for turn in position.turns) == "131313131"


@pytest.mark.parametrize(
    ("said", "fault", "scores"),
    [
        (["4"], "cannot be taken", (0.0, 0.5)),
        (["1", ""], "cannot be taken", (0.0, 0.5)),
        (["01"], "cannot be taken", (0.0, 0.5)),
        (["<1>"], "cannot be taken", (0.0, 0.5)),
        (["１"], "cannot be taken", (0.0, 0.5)),
        (["3", "3", "3"], "", (0.0, 1.0)),
        ([" 1\n"] * 5, "", (1.0, 0.0)),
    ],
)
def test_what_is_paid_for(said: list[str], fault: str, scores: tuple[float, ...]) -> None:
    answer = start("greedy")
    position = open_episode(TASK.environment, read_start(answer))
    for text in said:
        if position.scores is None:
            position = take_turn(TASK.environment, read_start(answer), position, Said(text))
    assert position.scores == scores
    assert [turn.fault for turn in position.turns if turn.fault] == ([fault] if fault else [])
    text = transcript([Said(one) for one in said])
    outcome = TASK.verify(text, answer).outcome
    assert outcome == TASK.audit(text, answer) == (scores[0] if scores[0] == 1.0 else 0.0)


def test_the_script_begins_where_the_policy_has_the_second_seat() -> None:
    answer = start("optimal", seat=1)
    position = open_episode(TASK.environment, read_start(answer))
    assert position.view[-1]["content"] == "16 take 1,2,3:" and position.seat == 1
    lost = transcript([Said("1")] * 4)
    assert TASK.verify(lost, answer).outcome == TASK.audit(lost, answer) == 0.0


def test_the_random_script_takes_every_number_alike() -> None:
    """By the dice: numbers in [0, 1) are cut into equal parts."""
    drawn = [TASK.code.rival("random", STATE, Draw(f"{key}", "rival", 0)) for key in range(3000)]
    for number in "123":
        assert abs(drawn.count(number) / 3000 - 1 / 3) < 4.0 * math.sqrt(2 / 9 / 3000)


def test_a_turn_that_was_cut_off_forfeits() -> None:
    text, answer = transcript([Said("1", cut=True)]), start("random")
    assert TASK.verify(text, answer).outcome == TASK.audit(text, answer) == 0.0


@pytest.mark.parametrize(("form", "said"), [(4, "<1>"), (5, "t=1")])
def test_forms_of_the_answer(form: int, said: str) -> None:
    answer = start("greedy", form=form)
    for text, score in ((said, 1.0), ("1", 0.0)):
        play = transcript([Said(text)] * 5)
        assert TASK.verify(play, answer).outcome == TASK.audit(play, answer) == score
