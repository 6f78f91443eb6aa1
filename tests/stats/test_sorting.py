"""Order statistics of many values, and few rows in order: the same numbers as by sorting all."""

from __future__ import annotations

import numpy as np
import pytest

from crlbench.stats.sorting import FEW_ROWS, MANY, order_statistics, row_at, sorted_rows

POSITIONS = (3.25, 250.0, 480.7, 9518.3, 9749.0, 9995.75)


def values(kind: str) -> np.ndarray:
    generator = np.random.default_rng(5)
    plain = generator.normal(size=10_000)
    return {
        "normal": plain,
        "ties": np.round(plain, 1),
        "constant": np.full(10_000, 0.5),
        "rising": np.arange(10_000.0),
        "falling": np.arange(10_000.0)[::-1].copy(),
        "heavy": plain**9,
        "two": (plain > 1.5).astype(float),
        "odd one out": np.where(np.arange(10_000) % 16 == 0, 1e6, plain),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["normal", "ties", "constant", "rising", "falling", "heavy", "two", "odd one out"],
)
def test_ends_are_those_of_all_values_sorted(kind: str) -> None:
    numbers = values(kind)
    ordered = np.sort(numbers)
    expected = [float(row_at(ordered, position)) for position in POSITIONS]
    assert order_statistics(numbers, *POSITIONS) == expected


@pytest.mark.parametrize("positions", [(0.0,), (9999.0,), (5000.5,), (0.0, 4999.5, 9999.0)])
def test_any_position_may_be_asked_for(positions: tuple[float, ...]) -> None:
    numbers = values("normal")
    ordered = np.sort(numbers)
    expected = [float(row_at(ordered, position)) for position in positions]
    assert order_statistics(numbers, *positions) == expected


def test_few_values_have_them_too() -> None:
    assert order_statistics(np.array([3.0, 1.0, 2.0]), 0.0, 1.5, 2.0) == [1.0, 2.5, 3.0]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 10, FEW_ROWS, FEW_ROWS + 4])
def test_rows_in_order_are_the_sorted_columns(n: int, kind: type) -> None:
    rows = np.random.default_rng(n).normal(size=(n, MANY)).astype(kind)
    rows[:, ::7] = np.round(rows[:, ::7])
    before = rows.copy()
    found = sorted_rows(rows)
    assert found.dtype == kind
    np.testing.assert_array_equal(found, np.sort(rows, axis=0))
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(sorted_rows(list(rows)), found)


def test_what_is_no_number_comes_last() -> None:
    rows = np.random.default_rng(1).normal(size=(5, MANY))
    rows[1, 3] = rows[4, 9] = np.nan
    np.testing.assert_array_equal(sorted_rows(rows), np.sort(rows, axis=0))
