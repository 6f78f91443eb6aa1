"""Verifier and audit judge every spelled answer of the table as the person did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.spellings import Spelling, audit, read_spellings, verify

ROWS = read_spellings()
KINDS = list(dict.fromkeys(row.kind for row in ROWS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judge", [verify, audit])
def test_a_kind_is_judged_as_a_person_does(judge: Callable[[Spelling], bool], kind: str) -> None:
    rows = [row for row in ROWS if row.kind == kind]
    assert [row for row in rows if judge(row) != row.right] == []


def test_the_table_is_large_and_holds_near_misses_of_every_kind() -> None:
    assert len(ROWS) >= 500 and len(KINDS) >= 25
    assert len({(row.gold, row.reply) for row in ROWS}) > 0.95 * len(ROWS)
    for kind in KINDS:
        verdicts = [row.right for row in ROWS if row.kind == kind]
        assert 3 * verdicts.count(False) >= len(verdicts), kind
        assert any(verdicts), kind
