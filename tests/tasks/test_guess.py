"""The environment guess: by hand, against exact values, and where verifier and audit agree."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest

from crlbench.catalog.find import Catalog
from crlbench.reward.env import Said, read_start, start_text, transcript
from crlbench.reward.playing import open_episode, take_turn
from crlbench.reward.policies import outcome, random_legal, recite, repeat

TASK = Catalog().load_task("guess")
START = (
    '{"chance":"00","seat":0,"state":{"form":0,"found":false,"hidden":29,"high":42,"left":4,'
    '"low":27}}'
)


@cache
def random_finds(count: int, turns: int) -> float:
    """Exact: a number is hidden among ``count``, and each turn names one of those left."""
    if not count or not turns:
        return 0.0
    later = sum(
        side / count * random_finds(side, turns - 1)
        for named in range(count)
        for side in (named, count - named - 1)
    )
    return (1.0 + later) / count


@cache
def best_finds(count: int, turns: int) -> int:
    """Exact: how many numbers of ``count`` the best play finds."""
    if not count or not turns:
        return 0
    return 1 + max(
        best_finds(named, turns - 1) + best_finds(count - named - 1, turns - 1)
        for named in range(count)
    )


@pytest.mark.parametrize(("split", "tolerance"), [("id", 4.0), ("hard", 4.0), ("train", 4.0)])
def test_the_floor_is_that_of_a_random_number(split: str, tolerance: float) -> None:
    rows, card = TASK.rows(split)[:512], TASK.card.splits[split]
    levels = [TASK.code.LEVELS[row["level"]] for row in rows]
    exact = [random_finds(count, turns) for count, turns in levels]
    mean = sum(exact) / len(exact)
    spread = math.sqrt(sum(p * (1 - p) for p in exact)) / len(exact)
    assert card.floor == card.nulls.random_legal == max(card.nulls.model_dump().values())
    assert abs(card.floor - mean) < tolerance * spread


def test_values_that_the_design_states() -> None:
    assert round(random_finds(32, 5), 2) == 0.53 and round(random_finds(64, 6), 2) == 0.49
    assert best_finds(32, 5) / 32 == 31 / 32 and best_finds(64, 6) / 64 == 63 / 64


@pytest.mark.parametrize("split", ["id", "hard", "format"])
def test_golds_play_as_well_as_anybody_can(split: str) -> None:
    for row in TASK.rows(split)[:60]:
        state = json.loads(read_start(row["answer"]).state)
        count, turns = TASK.code.LEVELS[row["level"]]
        assert (state["high"] - state["low"] + 1, state["left"]) == (count, turns)
    for count, turns in TASK.code.LEVELS.values():
        found = 0
        for hidden in range(20, 20 + count):
            state = {"form": 0, "found": False, "hidden": hidden, "high": 19 + count,
                     "left": turns, "low": 20}  # fmt: skip
            answer = start_text(read_start(json.dumps(
                {"chance": "", "seat": 0, "state": state}, sort_keys=True, separators=(",", ":")
            )))  # fmt: skip
            found += TASK.verify(TASK.code.gold(answer), answer).outcome
        assert found == best_finds(count, turns)


def test_an_episode_by_hand() -> None:
    start, environment = read_start(START), TASK.environment
    position = open_episode(environment, start)
    views = []
    for said in ("34", "27", "30", "29"):
        views.append(position.view[-1]["content"])
        position = take_turn(environment, start, position, Said(said))
    assert views == ["27-42", "27-33", "28-33", "28-29"] and position.scores == (1.0,)
    assert not any(turn.fault for turn in position.turns)


@pytest.mark.parametrize(
    ("said", "faults", "score"),
    [
        (["29"], [""], 1.0),
        (["43", "29"], ["not in the range", ""], 1.0),
        (["x", " 29\n"], ["no number", ""], 1.0),
        (["34", "34", "29"], ["", "not in the range", ""], 1.0),
        (["29x"] * 4, ["not in the range"] * 4, 0.0),
        ([""] * 4, ["no number"] * 4, 0.0),
        (["28", "30", "31", "32"], ["", "", "not in the range", "not in the range"], 0.0),
        (["２９"] * 4, ["not in the range"] * 4, 0.0),
        (["029"] * 4, ["not in the range"] * 4, 0.0),
    ],
)
def test_faults_spend_a_turn(said: list[str], faults: list[str], score: float) -> None:
    start, environment = read_start(START), TASK.environment
    position = open_episode(environment, start)
    for text in said:
        position = take_turn(environment, start, position, Said(text))
    assert [turn.fault for turn in position.turns] == faults
    assert position.scores == (score,)
    text = transcript([Said(one) for one in said])
    assert TASK.verify(text, START).outcome == TASK.audit(text, START) == score


def test_a_turn_that_was_cut_off_finds_nothing() -> None:
    text = transcript([Said("29", cut=True)])
    assert TASK.verify(text, START).outcome == TASK.audit(text, START) == 0.0


def test_forms_of_the_answer() -> None:
    for row in TASK.rows("format")[:20]:
        form = row["template"]
        first = json.loads(TASK.code.gold(row["answer"]))[0]
        assert first.startswith({4: "<", 5: "x="}.get(form, first[:1]))
        bare = first.strip("<>x=")
        plain = outcome(TASK.environment, row["answer"], repeat(bare))
        assert form in (4, 5) or plain in (0.0, 1.0)
        if form in (4, 5):
            assert outcome(TASK.environment, row["answer"], recite([bare] * 9)) == 0.0


def test_random_play_is_drawn_by_its_name() -> None:
    answers = [row["answer"] for row in TASK.rows("id")[:40]]

    def scores(name: str) -> list[float]:
        return [outcome(TASK.environment, a, random_legal(f"{name}/{i}")) for i, a in
                enumerate(answers)]  # fmt: skip

    assert scores("a") == scores("a") != scores("b")
