"""Sums that published files hold are equal under every version of Python."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from crlbench.base.addition import sum_in_order


def test_it_rounds_after_each_addition() -> None:
    tenths = [0.1] * 10
    assert math.fsum(tenths) == 1.0
    assert sum_in_order(tenths) == 0.9999999999999999
    assert sum_in_order([1e16, 1.0, 1.0, -1e16]) == 0.0
    assert sum_in_order([]) == 0.0 and isinstance(sum_in_order(x for x in (1, 2)), float)


@given(st.lists(st.floats(-1e6, 1e6)))
def test_it_is_the_loop(values: list[float]) -> None:
    total = 0.0
    for value in values:
        total = total + value
    assert sum_in_order(values) == total
