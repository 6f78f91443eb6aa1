"""Split files from published problems: who owns a problem, in what order, and what is drawn."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from crlbench.errors import UsageError
from crlbench.reward.published import Problem, build_published


def tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    return [{"role": "user", "content": f"{template}: {problem.text}"}], problem.answer


def problems(first: int, count: int) -> list[Problem]:
    return [
        Problem(f"What is {n} plus {n}?", str(2 * n), 1 + (n % 3 == 0), {"line": n})
        for n in range(first, first + count)
    ]


DATA = {"train": problems(0, 600), "id": problems(1000, 300), "hard": problems(2000, 50)}


def build(split: str, data: dict[str, list[Problem]] = DATA, seed: int = 1) -> list[dict]:
    return build_published(split, random.Random(seed), data, tell)


def test_a_key_is_the_words_whatever_their_case_and_marks() -> None:
    first, second, third = (
        Problem(text, "1", 1) for text in ("Is it  1+1?", "is IT 1 1", "is it 1 2")
    )
    assert first.key == second.key != third.key


def test_training_loses_what_evaluation_has_and_no_key_comes_twice() -> None:
    again = Problem("what is 1000 PLUS 1000", "2000", 1)
    held = Problem("What is 2000 plus 2000?", "4000", 2)
    double = Problem("What is 5 plus 5?!", "10", 1)
    data = DATA | {"train": [*DATA["train"], again, held, double], "id": [*DATA["id"], held]}
    rows = {split: build(split, data) for split in ("train", "id", "hard")}
    assert {split: len(found) for split, found in rows.items()} == {
        "train": 600,
        "id": 301,
        "hard": 49,
    }
    keys = Counter(row["key"] for found in rows.values() for row in found)
    assert max(keys.values()) == 1


def test_a_short_prefix_is_balanced_and_nothing_is_lost() -> None:
    rows = build("id")
    assert Counter(row["level"] for row in rows[:100]) == {1: 50, 2: 50}
    assert sorted(row["meta"]["line"] for row in rows) == [*range(1000, 1300)]
    assert [row["meta"]["line"] for row in rows] != sorted(row["meta"]["line"] for row in rows)
    assert [row["id"] for row in rows[:2]] == ["id-00000", "id-00001"]


def test_the_order_of_the_published_file_and_the_generator_change_nothing() -> None:
    assert build("id", DATA | {"id": DATA["id"][::-1]}, seed=2) == build("id")


def test_the_parts_hold_items_of_their_wholes() -> None:
    train = {row["id"]: row for row in build("train")}
    fixed = build("train_fixed")
    assert len(fixed) == 256 and Counter(row["level"] for row in fixed) == {1: 128, 2: 128}
    for row in fixed:
        source = train[row["meta"]["source"]]
        assert source["messages"] == row["messages"] and source["key"] == row["key"]
    whole = {row["id"]: row for row in build("id")}
    told = build("format")
    assert Counter(row["template"] for row in told) == dict.fromkeys((1, 2, 3, 4, 5), 64)
    for row in told:
        assert whole[row["meta"]["source"]]["key"] == row["key"]
        assert row["messages"][0]["content"].startswith(f"{row['template']}: ")
    assert build("format", seed=2) != told


def test_a_split_that_the_dataset_does_not_have_is_named() -> None:
    with pytest.raises(UsageError, match="hard"):
        build("hard", {"id": DATA["id"]})
