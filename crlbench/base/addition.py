"""Sums that every version of Python makes to the same bit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add


def sum_in_order(values: Iterable[float]) -> float:
    """The sum of floats, rounded after each addition.

    The built-in ``sum`` does this up to Python 3.11; later ones carry the error of rounding along
    (Neumaier), so that a published number could end in another digit.
    """
    return reduce(add, values, 0.0)
