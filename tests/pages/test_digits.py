"""How many digits an interval supports: one rule, in Python and in the browser."""

from __future__ import annotations

from typing import Any

import pytest

from crlbench.base.wording import places
from crlbench.pages import words
from crlbench.pages.table import Column, Row, Table
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import Estimate
from crlbench.verdict.resources import leaderboard_folder

CASES = [
    (0.22, 0.87, 2),
    (0.57, 0.61, 2),
    (0.580, 0.601, 2),
    (0.583, 0.602, 3),
    (-0.004, 0.120, 3),
    (0.004, 0.120, 3),
    (-0.006, 0.120, 2),
    (0.0, 0.5, 2),
    (0.0, float("inf"), 2),
]
"""Ends of an interval and the decimals of its number, by hand."""


@pytest.mark.parametrize(("low", "high", "decimals"), CASES)
def test_a_third_decimal_needs_a_narrow_interval_or_an_end_near_0(low, high, decimals):
    assert places(low, high) == decimals


def test_a_number_and_its_interval_have_the_same_decimals():
    wide = Estimate(0.5884, Interval(0.561, 0.6149), 5)
    narrow = Estimate(0.5884, Interval(0.58, 0.599), 5)
    assert words.estimate(wide) == "0.59 [0.56, 0.61]"
    assert words.estimate(narrow) == "0.588 [0.580, 0.599]"
    assert words.estimate(Estimate(-0.0251, Interval(-0.05, -0.001), 5), signed=True) == (
        "−0.025 [−0.050, −0.001]"
    )
    assert words.estimate(Estimate(0.5884, None, 1)) == "0.59"
    assert words.value(Estimate(None, None, 0)) == words.value(None) == "–"


def test_a_table_for_latex_follows_the_intervals_of_its_rows():
    keys = ("value", "low", "high", "wider_low", "wider_high", "other")
    columns = (Column("name"), *(Column(key, "number") for key in keys))
    rows = [
        Row(("wide", 0.58841, 0.561, 0.6149, 0.22, 0.87, 0.12345)),
        Row(("narrow", 0.58841, 0.5801, 0.5967, None, None, 0.12345)),
    ]
    lines = Table(columns, rows).to_latex().decode().splitlines()
    assert "wide & 0.59 & 0.56 & 0.61 & 0.22 & 0.87 & 0.123 \\\\" in lines
    assert "narrow & 0.588 & 0.580 & 0.597 & - & - & 0.123 \\\\" in lines


@pytest.mark.browser
def test_the_browser_has_the_same_rule(chromium: Any):
    page = chromium.new_page()
    page.set_content("<p></p>")
    page.add_script_tag(path=str(leaderboard_folder() / "static" / "digits.js"))
    for low, high, decimals in CASES:
        if high != float("inf"):
            assert page.evaluate("ends => crlbench.places(ends)", [low, high]) == decimals
    assert page.evaluate("() => crlbench.places(null)") == 2
    assert page.evaluate("() => crlbench.number(-0.0251, 3)") == "−0.025"
    assert page.evaluate("() => crlbench.number(-0.0001, 3, true)") == "0.000"
    page.close()
