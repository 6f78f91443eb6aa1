"""Tasks that share items with another one: by whose name their keys are held out of training."""

from __future__ import annotations

import pytest

from crlbench.catalog.find import Catalog
from crlbench.suite.gauntlet.code import check_seeds
from crlbench.suite.gauntlet.items import check_disjoint, fence_of

CALC = Catalog().load_task("calc")


def test_rows_of_another_task_keep_its_fence() -> None:
    judged = Catalog().load_task("judged")
    assert fence_of(judged) == judged.card.relative == "addition"
    assert check_disjoint(judged).problems == []
    assert check_seeds(judged).skipped == "the rows are those of 'addition': see regeneration"


def test_rows_of_its_own_keep_its_own() -> None:
    assert CALC.card.relative == "addition" and fence_of(CALC) == "calc"
    assert check_disjoint(CALC).problems == []
    found = check_seeds(CALC, "quick")
    assert found.skipped == "" and found.problems == []


@pytest.mark.parametrize("split", ["train", "hard"])
def test_rows_on_the_wrong_side_of_both_are_found(split: str) -> None:
    rows = CALC.rows("id" if split == "train" else "train")
    moved = [{**row, "id": f"{split}-{n:05d}"} for n, row in enumerate(rows)]
    problems = check_disjoint(CALC.with_rows({split: moved})).problems
    assert any("belongs to the other side" in problem for problem in problems)
