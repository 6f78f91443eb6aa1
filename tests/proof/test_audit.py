"""What the rounding of stored figures leaves open is never held against a record."""

from __future__ import annotations

import pytest

from crlbench.proof.figures import same_total
from crlbench.proof.status import below, both, negate


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (0.949, 0.95, True),
        (0.951, 0.95, False),
        (0.95, 0.95, None),  # a share of 0.95 in float32 is a little less
        (0.9500001, 0.95, None),
        (0.0, 0.0, False),
        (0.0, 1e-9, True),
        (-1.0, 0.5, True),
    ],
)
def test_below_says_only_what_is_sure(a: float, b: float, answer: bool | None) -> None:
    assert below(a, b) is answer
    assert negate(below(a, b)) is (None if answer is None else not answer)


def test_all_of_them() -> None:
    assert both([True, True]) is True
    assert both([True, None]) is None
    assert both([None, False]) is False


@pytest.mark.parametrize(
    ("stated", "parts", "same"),
    [
        (300, [100.0, 200.0], True),
        (301, [100.0, 200.0], False),
        (12_345_678, [12_345_680.0], True),  # stored with 7 digits
        (12_345_978, [12_345_680.0], False),
        (0, [], True),
    ],
)
def test_totals_are_exact_as_far_as_they_are_stored_so(
    stated: int, parts: list[float], same: bool
) -> None:
    assert same_total(stated, parts) is same
