"""The interval over tasks: Student's and a bootstrap's together, and none below four tasks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlbench.stats.intervals import Interval, expanded, student_interval
from crlbench.stats.resampling import (
    MIN_TASKS,
    Replicates,
    axis_interval,
    linear_replicates,
    widen,
    wider_difference,
    wider_interval,
)

COUNT = 2000
SEEDS = 5
TASK, SEED = 0.18, 0.014
"""Spreads of Λ between a model's tasks beside what they share, and of its seeds, on mini."""


def task(name: str, middle: float, generator: np.random.Generator) -> Replicates:
    return linear_replicates(name, generator.normal(middle, SEED, SEEDS), {}, COUNT)


def board(middles: np.ndarray, generator: np.random.Generator) -> list[Replicates]:
    return [task(f"t{k}", middle, generator) for k, middle in enumerate(middles)]


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 24])
@pytest.mark.parametrize("level", [0.90, 0.95])
def test_students_interval_is_scipys(count: int, level: float) -> None:
    values = np.random.default_rng(count).normal(0.4, 0.2, count)
    found = student_interval(values, level)
    error = stats.sem(values)
    expected = stats.t.interval(level, count - 1, loc=values.mean(), scale=error)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9)
    assert found.level == level


def test_the_interval_holds_students_and_the_bootstraps() -> None:
    generator = np.random.default_rng(1)
    parts = board(np.array([0.24, 0.54, 0.73, 0.86]), generator)
    found = wider_interval(parts, COUNT)
    estimates = [part.location for part in parts]
    inner, students = axis_interval(parts), student_interval(estimates)
    assert found.low == students.low < min(estimates)
    assert found.high == students.high > max(estimates)
    assert found.low < inner.low and found.high > inner.high
    # Tasks alike: what the seeds leave open is more than what the tasks do.
    alike = [linear_replicates(f"t{k}", parts[0].values, {}, COUNT) for k in range(4)]
    inner, found = axis_interval(alike), wider_interval(alike, COUNT)
    assert student_interval([part.location for part in alike]).high == pytest.approx(
        parts[0].location
    )
    assert found.low <= inner.low and found.high >= inner.high


def test_a_bootstrap_of_four_means_ends_at_the_worst_and_the_best() -> None:
    """So that it is no 95 % interval by itself."""
    estimates = np.array([0.24, 0.54, 0.73, 0.86])
    drawn = np.random.default_rng(0).choice(estimates, size=(10_000, 4)).mean(axis=1)
    assert expanded(drawn, [4]) == Interval(pytest.approx(0.24), pytest.approx(0.86))
    assert widen(drawn, estimates, [SEEDS] * 4, 10_000).high > 0.86


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_fewer_than_four_tasks_are_refused(tasks: int) -> None:
    generator = np.random.default_rng(2)
    parts = board(np.linspace(0.2, 0.8, tasks), generator)
    assert MIN_TASKS == 4
    assert wider_interval(parts, COUNT) is None
    assert wider_difference(np.zeros(COUNT), parts, parts, COUNT) is None
    assert widen(np.zeros(COUNT), [0.1] * tasks, [SEEDS] * tasks, COUNT) is None


def test_a_difference_of_stabilities_lies_between_minus_one_and_one() -> None:
    drawn = np.zeros(COUNT)
    ends = [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (0.0, 0.2)]
    base, arm = (
        [
            Replicates(np.zeros(SEEDS), own[side], drawn, drawn, drawn, bounds=(0.0, 1.0))
            for own in ends
        ]
        for side in (0, 1)
    )
    found = wider_difference(drawn - 0.7, base, arm, COUNT)
    assert (found.low, student_interval([-1, -1, -1, 0.2]).low < -1) == (-1.0, True)


def covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "least"), [(4, 0.93), (6, 0.93), (8, 0.93)])
def test_it_covers_what_is_found_on_other_tasks(tasks: int, least: float) -> None:
    """1,500 boards of normal tasks with the spreads of mini; the bootstrap alone covers less."""
    generator, boards = np.random.default_rng(tasks), 1500
    found, bootstraps = 0, 0
    for _ in range(boards):
        parts = board(generator.normal(0.5, TASK, tasks), generator)
        found += covers(wider_interval(parts, COUNT), 0.5)
        estimates = np.array([part.location for part in parts])
        drawn = estimates[generator.integers(0, tasks, (COUNT, tasks))].mean(axis=1)
        bootstraps += covers(expanded(drawn, [tasks]), 0.5)
    assert found / boards >= least
    assert bootstraps <= found
    if tasks == 4:
        assert bootstraps / boards < 0.92
