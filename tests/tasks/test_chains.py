"""Chains: solved again from their texts, and what a step is paid for."""

from __future__ import annotations

import random
import re

import pytest

from crlbench.catalog.find import Catalog
from crlbench.reward.score import Score

TASK = Catalog().load_task("chains")
OPERATIONS = {1: {2, 3}, 2: {4, 5}, 3: {6, 7, 8}}


def totals(chain: str) -> list[int]:
    """Running totals by walking along the characters: a digit, then signs and digits in turn."""
    found = [int(chain[0])]
    for sign, digit in zip(chain[1::2], chain[2::2], strict=True):
        found.append(found[-1] + (int(digit) if sign == "+" else -int(digit)))
    return found[1:]


def earned(text: str, answer: str) -> tuple[float, float]:
    """Outcome and sum of the steps of a completion."""
    found = TASK.verify(text, answer)
    if not isinstance(found, Score):
        return found, 0.0
    return found.outcome, sum(value for _, value in found.steps)


@pytest.mark.parametrize("split", ["train", "train_fixed", "id", "hard", "format"])
def test_every_answer_is_what_walking_along_the_chain_gives(split: str) -> None:
    for row in TASK.rows(split):
        (chain,) = re.findall(r"\d(?:[+-]\d)+", row["messages"][-1]["content"])
        found = totals(chain)
        assert [int(c) for c in row["answer"] if c.isdigit()] == found
        assert all(0 <= total <= 9 for total in found)
        assert len(found) in OPERATIONS[row["level"]]
        assert totals(row["key"]) == found


def test_what_the_bundled_models_read_is_short() -> None:
    for split in ("train", "id", "hard"):
        for row in TASK.rows(split):
            assert len(row["messages"][-1]["content"]) <= 32 and len(row["answer"]) <= 24


def test_swapping_the_numbers_that_are_added_first_makes_no_new_key() -> None:
    for row in TASK.rows("id"):
        chain = row["messages"][-1]["content"].removesuffix("=")
        if chain[1] == "+":
            low, high = sorted((chain[0], chain[2]))
            assert row["key"] == f"{low}+{high}{chain[3:]}"
        else:
            assert row["key"] == chain


@pytest.mark.parametrize(
    ("text", "answer", "outcome", "steps"),
    [
        ("752", "752", 1.0, [(1, 1 / 3), (2, 1 / 3), (3, 1 / 3)]),
        (" 752\n", "752", 1.0, [(2, 1 / 3), (3, 1 / 3), (4, 1 / 3)]),
        ("so:\n752", "752", 1.0, [(5, 1 / 3), (6, 1 / 3), (7, 1 / 3)]),
        ("75", "752", 0.0, [(1, 1 / 3), (2, 1 / 3)]),
        ("759", "752", 0.0, [(1, 1 / 3), (2, 1 / 3)]),
        ("792", "752", 0.0, [(1, 1 / 3)]),  # nothing after the first wrong total
        ("952", "752", 0.0, []),
        ("7522", "752", 0.0, [(1, 1 / 3), (2, 1 / 3)]),  # the last step needs the end
        ("752 752", "752", 0.0, [(1, 1 / 3), (2, 1 / 3)]),
        ("2", "752", 0.0, []),  # the final total alone
        ("222", "752", 0.0, []),
        ("527", "752", 0.0, []),  # right values in the wrong place
        ("0123456789", "752", 0.0, []),
        ("", "752", 0.0, []),
        ("7,5", "7,5", 1.0, [(1, 0.5), (3, 0.5)]),
        ("75", "7,5", 0.0, [(1, 0.5)]),
        ("<75>", "<75>", 1.0, [(2, 0.5), (3, 0.5)]),
        ("<75", "<75>", 0.0, [(2, 0.5)]),
        ("75", "<75>", 0.0, []),
        ("\uff17\uff15", "75", 0.0, []),
    ],
)
def test_what_is_paid(
    text: str, answer: str, outcome: float, steps: list[tuple[int, float]]
) -> None:
    found = TASK.verify(text, answer)
    found = found if isinstance(found, Score) else Score(found)
    assert found.outcome == outcome == TASK.audit(text, answer) or text.startswith("so:")
    assert [end for end, _ in found.steps] == [end for end, _ in steps]
    assert [value for _, value in found.steps] == pytest.approx([value for _, value in steps])


def test_no_text_earns_more_than_the_answer_and_none_but_it_earns_as_much() -> None:
    rng = random.Random(0)
    for row in TASK.rows("format"):
        answer = row["answer"]
        assert earned(answer, answer) == (1.0, pytest.approx(1.0))
        pieces = [answer, answer[-1], answer[:2], answer[::-1], "\n", " ", ",", "0123456789"]
        for _ in range(40):
            text = "".join(rng.choices(pieces, k=rng.randrange(6)))
            outcome, steps = earned(text, answer)
            last = text.strip().rpartition("\n")[2].strip()
            assert (outcome == 1.0) == (last == answer)
            assert steps == pytest.approx(1.0) if outcome else steps < 0.95


def test_steps_are_the_share_of_the_totals_before_the_first_wrong_one() -> None:
    for row in TASK.rows("hard"):
        answer = row["answer"]
        for place, right in enumerate(answer):
            wrong = answer[:place] + str(9 - int(right)) + answer[place + 1 :]
            assert earned(wrong, answer) == (0.0, pytest.approx(place / len(answer)))


def test_the_card_says_that_steps_are_judged() -> None:
    catalog = Catalog()
    assert TASK.card.verifier.steps and not catalog.task_card("addition").verifier.steps
    path = catalog.find("task", "addition").path / "frozen.toml"
    assert "steps" not in path.read_text()
