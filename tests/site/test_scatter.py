"""Charts of a score over a cost: where points stand, and what the axis says."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from crlbench.site.scatter import BASE, LEFT, RIGHT, UPPER, Point, draw_scatter, log_ticks
from crlbench.stats.intervals import Interval

POINTS = [
    Point("small", 1e6, 0.2, Interval(0.1, 0.3), best=True, named=True),
    Point("middle", 1e7, 0.5, Interval(0.45, 0.55), best=True, named=True),
    Point("poor", 1e8, 0.1, None, best=False, named=True),
    Point("large", 1e9, 0.8, Interval(0.7, 0.9), best=True, named=True),
]


def centres(marks: list[str]) -> list[tuple[float, float]]:
    found = []
    for mark in marks:
        if circle := re.search(r'cx="([\d.]+)" cy="([\d.]+)"', mark):
            found.append((float(circle[1]), float(circle[2])))
        else:
            corners = re.search(r'd="M([^"V]+)Z"', mark)[1].split("L")
            at = [tuple(map(float, corner.split())) for corner in corners]
            found.append((at[0][0], at[1][1]))
    return found


def test_equal_factors_of_cost_are_equally_far_apart_and_scores_are_linear() -> None:
    drawn = draw_scatter(POINTS, "Parameters", str)
    across, upward = zip(*centres(list(drawn.marks)), strict=True)
    steps = [b - a for a, b in zip(across, across[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.3) and steps[0] > 50
    later = zip(upward[1:], POINTS[1:], strict=True)
    heights = [(upward[0] - y) / (point.value - 0.2) for y, point in later]
    assert heights == pytest.approx([heights[0]] * 3, rel=0.03)
    assert all(LEFT < x < RIGHT for x in across) and all(UPPER < y < BASE for y in upward)


def test_the_front_has_a_shape_and_names() -> None:
    drawn = draw_scatter(POINTS, "Parameters", str)
    assert [("<circle" in mark) for mark in drawn.marks] == [False, False, True, False]
    assert [mark.count("V") for mark in drawn.marks] == [1, 1, 0, 1], "lines of intervals"
    labels = [one.text for one in ElementTree.fromstring(drawn.labels)]
    assert labels == ["small", "middle", "large"]
    ElementTree.fromstring(drawn.ground)


def test_points_without_names_are_a_part_of_the_ground() -> None:
    whole = draw_scatter(POINTS, "Parameters", str)
    some = [replace(point, named=point.best) for point in POINTS]
    drawn = draw_scatter(some, "Parameters", str)
    pairs = zip(whole.marks, POINTS, strict=True)
    assert list(drawn.marks) == [mark for mark, point in pairs if point.best]
    others = ElementTree.fromstring(drawn.ground).find("g[@class='others']")
    ((x, y),) = centres([whole.marks[2]])
    assert others[1].get("d") == f"M{x:g} {y:g}h0" and not others[0].get("d")


def test_points_without_a_front_or_of_one_cost_are_drawn() -> None:
    alike = [Point("a", 5.0, 0.5, None, False, True), Point("b", 5.0, 0.5, None, False, True)]
    drawn = draw_scatter(alike, "Time", str)
    assert drawn.labels == "" and len(set(centres(list(drawn.marks)))) == 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9e6, 1.1e9, [1e6, 1e7, 1e8, 1e9]),
        (2e5, 4e6, [3e5, 1e6, 3e6]),
        (1.5, 9.9, [2, 3, 5, 7]),
        (1.01, 1.04, [1.01, 1.04]),
    ],
)
def test_ticks_are_round_or_the_ends(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("decades", range(1, 13))
def test_ticks_are_few_and_inside(decades: int) -> None:
    low, high = 0.07, 0.07 * 10**decades
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 6 and low <= ticks[0] < ticks[-1] <= high
    logs = [math.log10(tick) for tick in ticks]
    assert logs == sorted(set(logs))
