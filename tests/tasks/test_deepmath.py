"""DeepMath from the real file: splits, levels, golds, and what is paid."""

from __future__ import annotations

import pytest

from crlbench.reward.splits import held_out
from tests.support.external_data import fetched, needs_data

pytestmark = needs_data


@pytest.mark.slow
def test_every_problem_has_one_place() -> None:
    task = fetched("deepmath")
    keys = {name: {row["key"] for row in task.rows(name)} for name in ("train", "id", "hard")}
    assert sum(map(len, keys.values())) == len(set().union(*keys.values()))
    assert 4800 < sum(map(len, keys.values())) <= 4994 - len(task.code.LEFT_OUT)
    assert all(held_out("deepmath", key) for key in keys["id"])
    assert not any(held_out("deepmath", key) for key in keys["train"])


@pytest.mark.slow
def test_levels_are_the_published_difficulty() -> None:
    task = fetched("deepmath")
    for split, levels in (("train", {1, 2}), ("id", {1, 2}), ("hard", {3})):
        rows = task.rows(split)
        assert {row["level"] for row in rows} == levels
        for row in rows:
            difficulty = row["meta"]["difficulty"]
            assert row["level"] == 1 + (difficulty >= 5.5) + (difficulty >= 7.0), row["id"]


@pytest.mark.slow
def test_both_judges_pay_every_gold() -> None:
    task = fetched("deepmath")
    for row in (row for split in task.card.splits for row in task.rows(split)):
        assert task.verify(row["answer"], row["answer"]) == 1.0, row["id"]
        assert task.audit(row["answer"], row["answer"]) == 1.0, row["id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("origin", "text", "paid"),
    [
        ("1", r"Therefore \boxed{1}", 1.0),
        ("1", r"Therefore \boxed{1.0}", 1.0),
        ("1", "Therefore 1", 0.0),
        ("1", r"\boxed{1} hence \boxed{2}", 0.0),
        ("3", r"\boxed{k \ne 1}", 1.0),
        ("3", r"\boxed{k \neq 0}", 0.0),
        ("3", r"\boxed{1}", 0.0),
    ],
)
def test_answers_are_compared_as_mathematics(origin: str, text: str, paid: float) -> None:
    task = fetched("deepmath")
    rows = [row for split in ("train", "id", "hard") for row in task.rows(split)]
    row = next(row for row in rows if row["meta"]["origin_id"] == origin)
    assert task.verify(text, row["answer"]) == paid
