"""The numbers beside the headline against rliable's, wherever the two define the same thing.

rliable knows boards with equally many runs of every task and no missing cells. On these, each
aggregate is the same number; the headline itself trims inside tasks and is not rliable's.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import library, metrics

from crlbench.stats import profiles
from crlbench.stats.intervals import task_balanced_iqm

TAU = np.linspace(-0.5, 1.5, 41)

BOARDS = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 12))
"""Seed, tasks and runs of a board."""

AGGREGATES = {
    "pooled IQM": (profiles.pooled_iqm, metrics.aggregate_iqm),
    "mean": (profiles.mean, metrics.aggregate_mean),
    "median": (profiles.median, metrics.aggregate_median),
    "optimality gap": (profiles.optimality_gap, metrics.aggregate_optimality_gap),
}


def scores(seed: int, tasks: int, runs: int, models: int = 3) -> list[np.ndarray]:
    """(M, n) per task, rounded so that ties with one another and with TAU occur."""
    generator = np.random.default_rng(seed)
    return [
        np.round(generator.normal(0.1 * k, 0.5, (models, runs)) * 20) / 20 for k in range(tasks)
    ]


def matrix(strata: list[np.ndarray], model: int) -> np.ndarray:
    """(runs, tasks), the layout of rliable."""
    return np.stack([rows[model] for rows in strata], axis=1)


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=25)
@given(board=BOARDS)
def test_aggregates(name: str, board: tuple[int, int, int]):
    ours, theirs = AGGREGATES[name]
    strata = scores(*board)
    expected = [theirs(matrix(strata, model)) for model in range(3)]
    np.testing.assert_allclose(ours(strata), expected, atol=1e-12)


@settings(max_examples=25)
@given(board=BOARDS)
def test_probability_of_improvement(board: tuple[int, int, int]):
    strata = scores(*board)
    found = profiles.improvement(strata)
    for a, b in ((0, 1), (1, 0), (0, 2)):
        expected = metrics.probability_of_improvement(matrix(strata, a), matrix(strata, b))
        assert found[a, b] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=25)
@given(board=BOARDS)
def test_performance_profiles(board: tuple[int, int, int]):
    strata = scores(*board)
    runs = {str(model): matrix(strata, model) for model in range(3)}
    expected, _ = library.create_performance_profile(runs, list(TAU), reps=2)
    np.testing.assert_allclose(
        profiles.share_above(strata, TAU), [expected[str(m)] for m in range(3)], atol=1e-12
    )


def test_pooled_iqm_trims_over_tasks_and_the_headline_inside_them():
    """One hopeless task of three: pooling drops it, the headline counts it as a third."""
    strata = [np.zeros(4), np.full(4, 0.5), np.full(4, 0.7)]
    assert metrics.aggregate_iqm(np.stack(strata, axis=1)) == pytest.approx(
        (0.0 + 4 * 0.5 + 0.7) / 6
    )
    assert task_balanced_iqm(strata) == pytest.approx(0.4)
