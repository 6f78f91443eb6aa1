"""Verifier and audit judge every spelled answer of the table as the person did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.spellings import INDEPENDENT, UNSEEN, Spelling, audit, read_spellings, verify

ROWS = read_spellings()
KINDS = list(dict.fromkeys(row.kind for row in ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judge", [verify, audit])
def test_a_kind_is_judged_as_a_person_does(judge: Callable[[Spelling], bool], kind: str) -> None:
    rows = [row for row in ROWS if row.kind == kind]
    assert [row for row in rows if judge(row) != row.right] == []


OTHERWISE = ["25 000 \u20ac"]
"""Unseen replies that both judge otherwise: a plain space separates words in a sentence."""


@pytest.mark.slow
@pytest.mark.parametrize("judge", [verify, audit])
def test_spellings_that_nobody_had_in_mind(judge: Callable[[Spelling], bool]) -> None:
    rows = read_spellings(UNSEEN)
    assert [row.reply for row in rows if judge(row) != row.right] == OTHERWISE
    assert len(rows) == 168


UNITS_OF_COUNT = (
    "1.5 million", "$1.5 million", r"\boxed{1.5\text{ million}}", "3 thousand", "3 dozen",
    r"\boxed{3\text{ million}}", "3 hundred", "$3k", "3k", "3M", "3 billion", "3 bn",
)  # fmt: skip
"""Paid as 1.5 and 3: the question may ask for millions or dozens."""
LETTERS = ("18x", "x = 18y", r"\boxed{18x}", r"\boxed{18!}", "18+", "f(18)", "log 18", "3 : 18")
"""Paid as 18: in a word problem they are a unit ("18x as many"), an exclamation, a call."""
DIFFERENT_FORM = (
    "####18", r"\boxed{1,000 \le x \le 2,000}", r"\boxed{x \le 1,000}", r"\boxed{x > 0}",
    r"\boxed{1 \le x \le 2}", r"\boxed{{-}5}", r"\boxed{1.5e6}",
)  # fmt: skip
"""Not paid: a marker without its space, relations for an interval, and e that is no constant."""
ROUNDED = (r"\boxed{0.5000001}",)
"""Paid: the library rounds decimals to six places."""
TO_THE_AUDIT = (r"\boxed{\left(\begin{array}{c}1\\2\end{array}\right)}",)
"""Not read by the audit alone."""
SETTLED = {*UNITS_OF_COUNT, *LETTERS, *DIFFERENT_FORM, *ROUNDED}


SECOND = read_spellings(INDEPENDENT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", dict.fromkeys(row.kind for row in SECOND))
@pytest.mark.parametrize(("judge", "more"), [(verify, ()), (audit, TO_THE_AUDIT)])
def test_spellings_of_a_second_reader(
    judge: Callable[[Spelling], bool], more: tuple[str, ...], kind: str
) -> None:
    """All but those that the verifiers leave as they are, for the reasons above."""
    rows = [row for row in SECOND if row.kind == kind]
    left = {row.reply for row in rows} & {*SETTLED, *more}
    assert {row.reply for row in rows if judge(row) != row.right} == left


def test_the_second_reader_wrote_many_spellings_of_either_verdict() -> None:
    assert len(SECOND) == 1667 and sum(row.right for row in SECOND) == 1082
    assert {*SETTLED, *TO_THE_AUDIT} <= {row.reply for row in SECOND}


def test_the_table_is_large_and_holds_near_misses_of_every_kind() -> None:
    assert len(ROWS) >= 500 and len(KINDS) >= 25
    assert len({(row.gold, row.reply) for row in ROWS}) > 0.95 * len(ROWS)
    for kind in KINDS:
        verdicts = [row.right for row in ROWS if row.kind == kind]
        assert 3 * verdicts.count(False) >= len(verdicts), kind
        assert any(verdicts), kind


def test_the_page_counts_the_rows_of_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text("utf-8")
    for rows in (ROWS, read_spellings(UNSEEN), read_spellings(INDEPENDENT)):
        for kind, count in Counter(row.kind for row in rows).items():
            assert f"| {kind} | {count} | " in page, kind
        assert f"| **all** | {len(rows)} | " in page
