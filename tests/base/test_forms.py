"""Forms of values: what an annotation says, and nothing that only looks like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from crlbench.base.forms import fields_of, form_of


@dataclass(frozen=True)
class Point:
    """Something with fields."""

    x: float
    names: tuple[str, ...]
    above: Point | None = None


FITS = [
    (float, [1.5, 3, -0.0], [True, "1", None, float("nan"), float("inf"), 10**400]),
    (int, [0, -7], [True, 1.0, "1", None]),
    (bool, [True], [1, None]),
    (str | None, ["", None], [0, b""]),
    (Literal["a", 1], ["a", 1], ["b", True, 1.0]),
    (tuple[str, ...], [(), ("a", "b")], [["a"], ("a", 1), "ab"]),
    (tuple[int, float], [(1, 2.5)], [(1,), (1, 2, 3), [1, 2]]),
    (list[int], [[], [1]], [(1,), [None]]),
    (Sequence[int], [[1], (1,)], ["1", {1: 1}]),
    (dict[str, float | None], [{}, {"a": None}], [{1: 1.0}, {"a": "x"}, []]),
    (Mapping[tuple[str, str], int], [{("a", "b"): 1}], [{"ab": 1}]),
    (np.ndarray, [np.zeros(2)], [[0, 0]]),
    (Point, [Point(1.0, ())], [(1.0, ())]),
    (Any, [None, "x", float("nan")], []),
]


@pytest.mark.parametrize(("hint", "fitting", "other"), FITS)
def test_a_form_is_what_its_annotation_says(hint: Any, fitting: list, other: list) -> None:
    assert [value for value in fitting if not form_of(hint)(value)] == []
    assert [value for value in other if form_of(hint)(value)] == []


def test_fields_come_in_their_order_with_their_forms() -> None:
    (x, fits_x), (names, fits_names), (above, fits_above) = fields_of(Point)
    assert (x, names, above) == ("x", "names", "above")
    assert fits_x(1.0) and not fits_x("1")
    assert fits_names(("a",)) and not fits_names(["a"])
    assert fits_above(Point(0.0, ())) and fits_above(None) and not fits_above(3)
