"""OlympiadBench from the real file: counts, levels, golds, and what is paid."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.external_data import fetched, needs_data

pytestmark = needs_data


def test_it_is_whole_but_for_what_cannot_be_judged() -> None:
    task = fetched("olympiadbench")
    assert [*task.card.splits] == ["id", "format"]
    ids = {row["meta"]["origin_id"] for row in task.rows("id")}
    assert len(task.rows("id")) == len(ids) == 671
    assert not ids & {1782, 1965, 2045, 2303}
    assert len(task.rows("format")) == 315


def test_levels_are_kinds_of_answers() -> None:
    rows = fetched("olympiadbench").rows("id")
    assert set(Counter(row["level"] for row in rows)) == {1, 2, 3}
    first = next(row for row in rows if row["meta"]["origin_id"] == 1606)
    assert (first["level"], first["answer"]) == (1, r"\boxed{2}")
    several = [row for row in rows if "several answers" in row["messages"][0]["content"]]
    assert len(several) >= 90 and {row["level"] for row in several} == {3}


def test_units_stand_in_the_question() -> None:
    rows = fetched("olympiadbench").rows("id")
    assert sum("Give the answer in this unit: " in r["messages"][0]["content"] for r in rows) == 8


def test_both_judges_pay_every_gold() -> None:
    task = fetched("olympiadbench")
    for row in task.rows("id") + task.rows("format"):
        assert task.verify(row["answer"], row["answer"]) == 1.0, row["id"]
        assert task.audit(row["answer"], row["answer"]) == 1.0, row["id"]


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        (r"So $\mu = \boxed{\frac{1}{2(n+1)}}$.", 1.0),
        (r"\boxed{1/(2n+2)}", 1.0),
        (r"\boxed{\frac{1}{2n+1}}", 0.0),
        (r"\frac{1}{2 n+2}", 0.0),
        (r"\boxed{\frac{1}{2 n+2}} or \boxed{\frac{1}{n}}", 0.0),
    ],
)
def test_the_last_box_is_compared_as_mathematics(text: str, paid: float) -> None:
    task = fetched("olympiadbench")
    row = next(row for row in task.rows("id") if row["meta"]["origin_id"] == 1610)
    assert task.verify(text, row["answer"]) == paid
    assert task.audit(text, row["answer"]) == paid
