"""The false-discovery line of a page: which of all the verdicts that it shows would stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crlbench.stats.false_discovery import discoveries
from crlbench.stats.paired import Verdict
from crlbench.verdict.axes import MARGIN


class Test(NamedTuple):
    """A pair on one axis, as a page shows it."""

    value: float | None
    error: float | None
    df: float | None
    call: str | None
    """Its verdict; anything else than a verdict is none."""


class Mark(NamedTuple):
    """What the line says of one pair."""

    q: float | None
    """Smallest false-discovery rate at which its verdict stays; None without a verdict."""
    stays: bool


@dataclass(frozen=True)
class Discovery:
    """The line (Benjamini and Yekutieli 2001)."""

    rate: float
    tests: int
    """Hypotheses of the family: two of each pair and axis that was compared."""
    differ: int
    """Verdicts *better* and *worse*."""
    differ_stay: int
    equivalent: int
    equivalent_stay: int


CALLS: dict[str, Verdict] = {
    "better": "better",
    "worse": "worse",
    "equivalent": "equivalent",
}


def draw_line(tests: Sequence[Test], margin: float = MARGIN) -> tuple[list[Mark], Discovery]:
    """The line over all pairs and axes of a page, and what it says of each.

    Args:
        margin: half-width of the region of equivalence.
    """
    value, error, df = (
        np.array([getattr(test, name) for test in tests], dtype=np.float64)
        for name in ("value", "error", "df")
    )
    calls: list[Verdict] = [CALLS.get(test.call or "", "undecided") for test in tests]
    line = discoveries(value, error, df, margin, verdicts=calls)
    differ = np.where(line.says_different, line.q_differ, np.nan)
    rates = np.where(line.says_equivalent, line.q_equivalent, differ)
    marks = [
        Mark(float(q) if np.isfinite(q) else None, bool(stays))
        for q, stays in zip(rates, line.stays, strict=True)
    ]
    count = int(np.isfinite(line.q_differ).sum() + np.isfinite(line.q_equivalent).sum())
    return marks, Discovery(
        line.rate, count, line.differ, line.differ_stay, line.equivalent, line.equivalent_stay
    )
