"""Verifier and audit judge every spelled answer of the table as the person did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spellings import UNSEEN, Spelling, audit, read_spellings, verify

ROWS = read_spellings()
KINDS = list(dict.fromkeys(row.kind for row in ROWS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judge", [verify, audit])
def test_a_kind_is_judged_as_a_person_does(judge: Callable[[Spelling], bool], kind: str) -> None:
    rows = [row for row in ROWS if row.kind == kind]
    assert [row for row in rows if judge(row) != row.right] == []


OTHERWISE = ["25 000 \u20ac"]
"""Unseen replies that both judge otherwise: a plain space separates words in a sentence."""


@pytest.mark.parametrize("judge", [verify, audit])
def test_spellings_that_nobody_had_in_mind(judge: Callable[[Spelling], bool]) -> None:
    rows = read_spellings(UNSEEN)
    assert [row.reply for row in rows if judge(row) != row.right] == OTHERWISE
    assert len(rows) == 168


def test_the_table_is_large_and_holds_near_misses_of_every_kind() -> None:
    assert len(ROWS) >= 500 and len(KINDS) >= 25
    assert len({(row.gold, row.reply) for row in ROWS}) > 0.95 * len(ROWS)
    for kind in KINDS:
        verdicts = [row.right for row in ROWS if row.kind == kind]
        assert 3 * verdicts.count(False) >= len(verdicts), kind
        assert any(verdicts), kind


def test_the_page_counts_the_rows_of_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text("utf-8")
    for rows in (ROWS, read_spellings(UNSEEN)):
        for kind, count in Counter(row.kind for row in rows).items():
            assert f"| {kind} | {count} | " in page, kind
        assert f"| **all** | {len(rows)} | " in page
