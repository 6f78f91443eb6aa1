"""SVAMP and GSM-Hard from the real files: counts, levels, every gold, and what is paid."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.external_data import fetched, needs_data

pytestmark = needs_data


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("svamp", 1320), ("gsm-hard", 1639)])
def test_every_gold_of_every_row_is_paid_by_both_judges(name: str, count: int) -> None:
    task = fetched(name)
    rows = [row for split in task.card.splits for row in task.rows(split)]
    assert len(rows) == count
    for row in rows:
        assert task.verify(row["answer"], row["answer"]) == 1.0, row["id"]
        assert task.audit(row["answer"], row["answer"]) == 1.0, row["id"]


def test_svamp_is_whole_and_levels_are_operations() -> None:
    rows = fetched("svamp").rows("id")
    assert sorted(int(row["meta"]["published"].removeprefix("chal-")) for row in rows) == [
        *range(1, 1001)
    ]
    assert Counter(row["level"] for row in rows) == {1: 763, 2: 237}
    first = next(row for row in rows if row["meta"]["published"] == "chal-1")
    assert first["answer"] == "51"
    assert first["messages"][-1]["content"].endswith(
        "a discount of 25 dollars on each pack, How much do you have to pay to buy each pack?"
    )


def test_gsm_hard_is_whole_and_its_answers_have_three_decimals_at_most() -> None:
    task = fetched("gsm-hard")
    rows = task.rows("id") + task.rows("hard")
    assert sorted(row["meta"]["line"] for row in rows) == [*range(1, 1320)]
    assert Counter(row["level"] for row in rows) == {1: 623, 2: 472, 3: 224}
    assert max(len(row["answer"].partition(".")[2]) for row in rows) == 3
    assert (
        sum("." in row["answer"] for row in rows) + sum(row["answer"] == "0" for row in rows) <= 303
    )
    assert sum(row["answer"].startswith("-") for row in rows) >= 140


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("14,053,029.667", 1),
        ("14053029.6666667", 1),
        ("14053029.67", 0),
        ("14053030", 0),
        ("-14053029.667", 0),
    ],
)
def test_gsm_hard_compares_to_three_decimals(text: str, paid: int) -> None:
    task = fetched("gsm-hard")
    assert task.verify(text, "14053029.667") == paid
    assert task.audit(text, "14053029.667") == paid
