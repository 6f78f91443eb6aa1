"""Rank intervals with tasks resampled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.rank_over_tasks import bar, rank_over_tasks, task_t


def test_t_is_scipys_paired_one() -> None:
    table = np.random.default_rng(0).normal(size=(4, 6))
    found = task_t(table)
    for i, j in itertools.permutations(range(4), 2):
        assert found[i, j] == pytest.approx(stats.ttest_rel(table[i], table[j]).statistic)
    assert np.diag(found).tolist() == [0.0] * 4
    moved = task_t(np.stack([np.zeros(5), np.full(5, 0.1), np.zeros(5)]))
    assert moved[1, 0] == np.inf and moved[0, 1] == -np.inf and moved[0, 2] == 0


@pytest.mark.parametrize("tasks", [4, 8])
def test_the_bar_of_two_models_is_students(tasks: int) -> None:
    assert bar(2, tasks) == pytest.approx(stats.t.ppf(0.975, tasks - 1))


def test_with_many_tasks_the_bar_is_the_studentised_range() -> None:
    """Tukey's: with 61 tasks each pair's own error is nearly the common one."""
    for models in (3, 5):
        tukey = stats.studentized_range.ppf(0.95, models, 60 * (models - 1)) / np.sqrt(2)
        assert tukey < bar(models, 61) < 1.06 * tukey


def test_the_bar_lies_below_bonferronis_and_rises_with_models() -> None:
    bars = [bar(models, 6) for models in (2, 3, 5, 8)]
    assert bars == sorted(bars)
    assert bars[-1] < stats.t.ppf(1 - 0.025 / 28, 5) * 1.02
    assert bar(8, 6) == bars[-1]


def test_four_tasks_separate_nobody_whose_tasks_differ() -> None:
    generator = np.random.default_rng(1)
    found = rank_over_tasks(0.5 + generator.normal(0, 0.18, (8, 4)))
    assert found.ranks.tolist() == [[1, 8]] * 8 and found.reason is None


def test_clear_models_have_their_ranks() -> None:
    generator = np.random.default_rng(2)
    table = np.array([[0.2], [0.8], [0.5]]) + generator.normal(0, 0.01, (3, 8))
    found = rank_over_tasks(table)
    assert found.ranks.tolist() == [[3, 3], [1, 1], [2, 2]]
    assert found.better.tolist() == [[0, 0, 0], [1, 0, 1], [1, 0, 0]]
    assert found.bar == bar(3, 8)


def test_what_cannot_be_ranked_says_why() -> None:
    assert "at least 4" in rank_over_tasks([[0.1, 0.2, 0.3], [0.2, 0.3, 0.5]]).reason
    alone = rank_over_tasks([[0.1, 0.2, 0.3, 0.4]])
    assert alone.ranks is None and "two models" in alone.reason
    with pytest.raises(ValidationError, match="leave out tasks"):
        rank_over_tasks([[0.1, np.nan, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]])


@pytest.mark.parametrize("tasks", [4, 8])
def test_equal_models_are_seldom_told_apart(tasks: int) -> None:
    """4,000 boards of six equal models, whose spreads differ threefold: at most 5 % and noise."""
    generator = np.random.default_rng([4, tasks])
    spreads = np.linspace(0.1, 0.3, 6)[:, None]
    tables = generator.normal(size=(4000, 1, tasks)) + spreads * generator.normal(
        size=(4000, 6, tasks)
    )
    wrong = (np.abs(task_t(tables)) > bar(6, tasks)).any(axis=(1, 2)).mean()
    assert 0.03 < wrong < 0.06


def test_rounding_is_no_difference() -> None:
    found = rank_over_tasks([[0.1 + 0.2] * 4, [0.3] * 4])
    assert found.ranks is not None and found.ranks.tolist() == [[1, 2], [1, 2]]
