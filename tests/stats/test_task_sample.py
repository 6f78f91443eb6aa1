"""The interval over tasks of protocol CRL-2."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.intervals import Interval
from crlbench.stats.resampling import MIN_TASKS, widen
from crlbench.stats.task_sample import (
    OverTasks,
    interval_over_tasks,
    skewness,
    stretch,
    student_ends,
)

COUNT = 1000
BOARDS = 4000


@pytest.mark.parametrize("tasks", [4, 6, 10])
@pytest.mark.parametrize("level", [0.90, 0.95])
def test_symmetric_tasks_have_students_interval(tasks: int, level: float) -> None:
    """scipy's; the difference of two entries, so that four tasks have no higher level."""
    values = np.linspace(-0.3, 0.7, tasks)
    low, high = student_ends(values, difference=True, level=level)
    error = stats.sem(values)
    expected = stats.t.interval(level, tasks - 1, loc=values.mean(), scale=error)
    assert (float(low), float(high)) == pytest.approx(expected, rel=1e-9)


def test_one_entry_on_four_tasks_has_the_higher_quantile() -> None:
    values = np.array([0.2, 0.4, 0.6, 0.8])
    low, high = student_ends(values)
    half = stats.t.ppf(0.9825, 3) * stats.sem(values)
    assert (float(low), float(high)) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-9)
    at_90 = stats.t.ppf(1 - 0.7 * 0.1 / 2, 3) * stats.sem(values)
    assert float(student_ends(values, level=0.9)[1]) == pytest.approx(0.5 + at_90, rel=1e-9)
    five = np.array([0.2, 0.35, 0.5, 0.65, 0.8])
    assert float(student_ends(five)[1]) == pytest.approx(
        0.5 + stats.t.ppf(0.975, 4) * stats.sem(five), rel=1e-9
    )


def test_the_half_towards_the_long_tail_is_longer() -> None:
    values = np.array([0.1, 0.6, 0.65, 0.7, 0.75, 0.8])
    g = stats.skew(values)
    low, high = student_ends(values)
    half = stats.t.ppf(0.975, 5) * stats.sem(values)
    assert g < -1
    factor = math.exp(-g * math.sqrt(4 / 6))
    assert float(low) == pytest.approx(values.mean() - half * factor, rel=1e-9)
    assert float(high) == pytest.approx(values.mean() + half, rel=1e-9)
    mirrored = student_ends(-values)
    assert (float(mirrored[0]), float(mirrored[1])) == pytest.approx((-float(high), -float(low)))


def test_skewness_is_scipys_and_0_without_spread() -> None:
    rows = np.random.default_rng(0).exponential(size=(5, 7))
    assert skewness(rows) == pytest.approx(stats.skew(rows, axis=1))
    assert skewness(np.full((2, 4), 0.1)).tolist() == [0.0, 0.0]
    assert [float(x) for x in stretch(np.array(1.0), np.array(0.5), np.array(0.0), 4)] == [0.5, 1.5]


def test_the_longer_half_shrinks_with_the_number_of_tasks() -> None:
    """The same skewness on four, sixteen and sixty-four tasks: exp(1), exp(1/2), exp(1/4)."""
    one = np.array(1.0)
    for tasks, power in ((4, 1.0), (16, 0.5), (64, 0.25)):
        low, high = stretch(np.array(0.0), one, one, tasks)
        assert (float(low), float(high)) == pytest.approx((-1.0, math.exp(power)))


LEVELS = (0.5, 0.8, 0.9, 0.94, 0.95, 0.9501, 0.96, 0.965, 0.97, 0.98, 0.99, 0.999)


@pytest.mark.parametrize("tasks", [4, 5, 8])
@pytest.mark.parametrize("difference", [False, True])
def test_a_higher_level_holds_a_lower_one(tasks: int, difference: bool) -> None:
    """Strictly, without replicates and with them."""
    values = np.random.default_rng(tasks).exponential(0.2, tasks)
    within = values.mean() + np.random.default_rng(1).normal(0, 0.02, COUNT)
    for more in ({}, {"within": within, "seeds": [5] * tasks}):
        found = [
            interval_over_tasks(
                values, difference=difference, count=COUNT, level=level, **more
            ).interval
            for level in LEVELS
        ]
        for inner, outer in itertools.pairwise(found):
            assert outer.low < inner.low and inner.high < outer.high


def test_it_holds_the_intervals_of_protocol_1() -> None:
    values = [0.24, 0.54, 0.73, 0.86]
    within = np.random.default_rng(0).normal(np.mean(values), 0.4, COUNT)
    found = interval_over_tasks(values, within, [5] * 4, difference=True, count=COUNT)
    before = widen(within, values, [5] * 4, COUNT)
    assert found.interval.low <= before.low and found.interval.high >= before.high
    # The spread inside the tasks is the larger part here.
    assert found.interval.high > float(student_ends(np.array(values), True)[1])
    assert found.value == pytest.approx(np.mean(values))


@pytest.mark.parametrize("tasks", [0, 1, 2, 3])
def test_fewer_than_four_tasks_are_refused_with_a_reason(tasks: int) -> None:
    found = interval_over_tasks(np.linspace(0.2, 0.8, tasks))
    assert found.interval is None and found.tasks == tasks and MIN_TASKS == 4
    assert "at least 4" in found.reason
    assert found.reason.startswith("1 task:" if tasks == 1 else f"{tasks} tasks:")


def test_too_few_seeds_are_refused_with_a_reason() -> None:
    found = interval_over_tasks([0.1, 0.2, 0.3, 0.4], np.zeros(COUNT), [2, 5, 5, 5], count=COUNT)
    assert found == OverTasks(pytest.approx(0.25), None, 4, found.reason)
    assert found.reason.startswith("2 seeds")


def test_what_is_no_number_per_task_is_refused() -> None:
    for values in ([0.1, math.nan, 0.3, 0.4], [[0.1, 0.2], [0.3, 0.4]], [0.1, math.inf, 0, 0]):
        with pytest.raises(ValidationError, match="one finite number for each task"):
            interval_over_tasks(values)
    with pytest.raises(ValidationError, match="4 tasks and seeds for 3"):
        interval_over_tasks([0.1, 0.2, 0.3, 0.4], np.zeros(10), [5, 5, 5])


def test_an_interval_ends_at_the_bounds_of_the_number() -> None:
    values = [0.1, 0.5, 0.9, 0.7, 0.2]
    free = interval_over_tasks(values, count=COUNT).interval
    assert free.low < 0.15 and free.high > 0.85
    held = interval_over_tasks(values, bounds=(0.15, 0.85), count=COUNT).interval
    assert held == Interval(0.15, 0.85)
    assert interval_over_tasks(values, bounds=(-math.inf, 2.0), count=COUNT).interval == free


def test_tasks_without_spread_have_a_point() -> None:
    assert interval_over_tasks([0.5] * 6, count=COUNT).interval == Interval(0.5, 0.5)


SHAPES = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "skewed": lambda generator, shape: (
        0.22 * (1 - generator.exponential(size=shape))
        + 0.18 * (1 - generator.exponential(size=shape))
    ),
    "exponential": lambda generator, shape: 1 - generator.exponential(size=shape),
}


@pytest.mark.parametrize("tasks", [4, 5, 6, 8, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_covers_one_entry(tasks: int, shape: str) -> None:
    """93 to 98 %, with two standard errors of 4,000 boards; Student's own misses skewed tasks."""
    values = SHAPES[shape](np.random.default_rng([7, tasks]), (BOARDS, tasks))
    low, high = student_ends(values)
    covered = ((low <= 0) & (high >= 0)).mean()
    assert 0.922 <= covered <= 0.984
    if shape == "exponential":
        t = values.mean(axis=1) / stats.sem(values, axis=1)
        assert (np.abs(t) <= stats.t.ppf(0.975, tasks - 1)).mean() < 0.915


@pytest.mark.parametrize("tasks", [4, 5, 6, 8, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_covers_a_difference(tasks: int, shape: str) -> None:
    pairs = SHAPES[shape](np.random.default_rng([8, tasks]), (2, BOARDS, tasks))
    low, high = student_ends(pairs[1] - pairs[0], difference=True)
    assert 0.922 <= ((low <= 0) & (high >= 0)).mean() <= 0.984
