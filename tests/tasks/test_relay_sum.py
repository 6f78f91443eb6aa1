"""The environment relay-sum: by hand, its payments, and the items that it may not show."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest

from crlbench.catalog.find import Catalog
from crlbench.reward.env import Said, Start, canonical, read_start, start_text, transcript
from crlbench.reward.playing import open_episode, take_turn
from crlbench.reward.splits import held_out

TASK = Catalog().load_task("relay-sum")


def start(form: int = 0) -> str:
    state = {"count": 2, "form": form, "last": 25, "right": 41, "terms": [8, 8]}
    return start_text(Start(canonical(state), chance="00"))


def test_an_episode_goes_on_from_its_own_answers() -> None:
    environment, begin = TASK.environment, read_start(start())
    position = open_episode(environment, begin)
    assert position.view[-1]["content"] == "25+8="
    position = take_turn(environment, begin, position, Said("34"))
    assert position.view[-1]["content"] == "34+8=" and position.turns[0].paid == (0.0,)
    position = take_turn(environment, begin, position, Said("42"))
    assert position.scores == (0.0,) and position.turns[1].paid == (0.5,)


@pytest.mark.parametrize(
    ("said", "outcome", "steps"),
    [
        (["33", "41"], 1.0, ((5, 0.5), (10, 0.5))),
        (["33", "42"], 0.0, ((5, 0.5),)),
        (["34", "42"], 0.0, ((10, 0.5),)),
        (["34", "41"], 1.0, ()),  # two errors that cancel out
        (["33"], 0.0, ()),
        (["33", "41", "41"], 0.0, ()),
        (["x"], 0.0, ()),
        (["33", "41."], 0.0, ((5, 0.5),)),
        ([" 33", "41\n"], 1.0, ((6, 0.5), (13, 0.5))),
        (["10000"], 0.0, ()),
        (["9" * 4000], 0.0, ()),
        (["-33"], 0.0, ()),
        (["３３"], 0.0, ()),
    ],
)
def test_outcomes_and_steps(
    said: list[str], outcome: float, steps: tuple[tuple[int, float], ...]
) -> None:
    text = transcript([Said(one) for one in said])
    found = TASK.verify(text, start())
    assert (found.outcome, found.steps) == (outcome, steps)


def test_the_audit_follows_the_numbers() -> None:
    agreeing = [["33", "41"], ["33", "42"], ["34", "41"], ["33"], ["x"], [" 33", "41\n"], [],
                ["33", "41", "1"], ["33", "41."]]  # fmt: skip
    for said in agreeing:
        text = transcript([Said(one) for one in said])
        assert TASK.audit(text, start()) == TASK.verify(text, start()).outcome, said
    for form, replies in ((4, ["<33>", "<41>"]), (5, ["25+8=33", "33+8=41"])):
        text = transcript([Said(one) for one in replies])
        assert TASK.audit(text, start(form)) == TASK.verify(text, start(form)).outcome == 1.0
        bare = transcript([Said("33"), Said("41")])
        assert TASK.audit(bare, start(form)) == TASK.verify(bare, start(form)).outcome == 0.0


@pytest.mark.parametrize("split", ["train", "id", "hard", "format"])
def test_no_item_that_addition_evaluates_is_on_the_right_way(split: str) -> None:
    for row in TASK.rows(split):
        state = json.loads(read_start(row["answer"]).state)
        terms = [state["last"], *state["terms"]]
        assert row["key"] == "+".join(map(str, terms)) and state["right"] == sum(terms)
        sums = [*accumulate(terms)]
        for total, term in zip(sums, terms[1:], strict=False):
            assert not held_out("addition", f"{min(total, term)}+{max(total, term)}")


def test_steps_of_golds_sum_to_one() -> None:
    for split in ("id", "hard", "format"):
        for row in TASK.rows(split)[:100]:
            score = TASK.verify(TASK.gold(row), row["answer"])
            assert score.outcome == 1.0
            assert sum(value for _, value in score.steps) == pytest.approx(1.0)
