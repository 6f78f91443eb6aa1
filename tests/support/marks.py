"""Which cases of a kind are tried in every run of the slow tests, and which wait for .ci/full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """All values as parameters; those after the first ones are for .ci/full alone."""
    return [
        value if number < count else pytest.param(value, marks=pytest.mark.full)
        for number, value in enumerate(values)
    ]


def every(values: Iterable[Any], step: int) -> list[Any]:
    """The same, but each so many-th value stays."""
    return [
        pytest.param(value, marks=pytest.mark.full) if number % step else value
        for number, value in enumerate(values)
    ]
