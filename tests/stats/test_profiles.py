"""Aggregates beside the headline: closed forms, bands, bad input. See also test_rliable.py."""

from __future__ import annotations

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    Stratum,
    expanded_tail,
    resample,
    task_balanced_iqm,
)
from crlbench.stats.profiles import (
    improvement,
    mean,
    median,
    optimality_gap,
    pooled_iqm,
    profile,
    share_above,
)
from tests.support.clock import cpu_seconds

TAU = np.linspace(-0.5, 1.5, 41)


def scores(seed: int, models: int = 2, tasks: int = 6, n: int = 5) -> list[np.ndarray]:
    """(M, n) per task, rounded so that ties with one another and with TAU occur."""
    generator = np.random.default_rng(seed)
    return [
        np.round(generator.normal(0.3 * k / tasks, 0.5, (models, n)) * 20) / 20
        for k in range(tasks)
    ]


def test_pooled_and_balanced_iqm_differ_where_tasks_do():
    """Pooling drops the easy and the hard task; balancing drops a run or two of each."""
    strata = [np.full(4, 0.0), np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 2.0)]
    assert pooled_iqm(strata) == pytest.approx((0.0 + 0.1 + 0.2 + 0.3 + 0.4 + 2.0) / 6)
    assert task_balanced_iqm(strata) == pytest.approx(2.25 / 3)


def test_tasks_weigh_the_same_with_unequal_numbers_of_runs():
    strata = [np.array([0.0, 0.0, 0.0, 0.0]), np.array([1.0, 3.0])]
    assert mean(strata) == median(strata) == pytest.approx(1.0)
    assert optimality_gap(strata) == pytest.approx(0.5)
    np.testing.assert_allclose(share_above(strata, np.array([-1, 0, 1, 3])), [1, 0.5, 0.25, 0])


def test_gap_neither_rewards_the_excess_nor_forgives_what_is_below_the_floor():
    assert optimality_gap([np.array([1.0, 1.7])]) == pytest.approx(0.0)
    assert optimality_gap([np.array([-0.2, 1.5])]) == pytest.approx(0.6)


def test_a_run_on_the_threshold_is_not_above_it():
    values = [np.array([0.25, 0.5, 0.5, 0.75])]
    found = share_above(values, np.array([0.2, 0.25, 0.5, 0.75]))
    np.testing.assert_array_equal(found, [1.0, 0.75, 0.25, 0.0])


def test_one_call_serves_all_models_and_all_resamples():
    strata = scores(3, models=4)
    alone = [[rows[m] for rows in strata] for m in range(4)]
    for aggregate in (pooled_iqm, mean, median, optimality_gap):
        np.testing.assert_allclose(aggregate(strata), [aggregate(one) for one in alone])
    np.testing.assert_allclose(share_above(strata, TAU), [share_above(one, TAU) for one in alone])


def strata_of(values: list[np.ndarray]) -> list[Stratum]:
    return [Stratum(f"t{k}", rows) for k, rows in enumerate(values)]


def test_bands_are_quantiles_of_the_shared_resamples():
    strata = strata_of([rows[0] for rows in scores(4)])
    found = profile(strata, TAU, count=500)
    drawn = np.stack([[(resample(s, 500) > tau).mean(axis=1) for s in strata] for tau in TAU]).mean(
        axis=1
    )
    tail = expanded_tail(5, 24)
    np.testing.assert_allclose(found.low, np.quantile(drawn, tail, axis=1), atol=1e-12)
    np.testing.assert_allclose(found.high, np.quantile(drawn, 1 - tail, axis=1), atol=1e-12)
    assert (found.low <= found.share).all() and (found.share <= found.high).all()
    assert (np.diff(found.share) <= 0).all() and found.high[0] > found.low[0]
    assert (found.share[0], found.share[-1]) == pytest.approx(
        tuple(np.mean([s.values > tau for s in strata]) for tau in (TAU[0], TAU[-1]))
    )


def test_equal_models_have_equal_bands_and_few_seeds_none():
    a = strata_of([rows[0] for rows in scores(5)])
    np.testing.assert_array_equal(
        profile(a, TAU, count=100).low, profile(list(a), TAU, count=100).low
    )
    one = profile(strata_of([rows[0, :1] for rows in scores(5)]), TAU, count=100)
    assert one.low is None and one.high is None and np.isfinite(one.share).all()


def test_items_that_are_resampled_widen_the_band():
    def noisy(weights: np.ndarray) -> np.ndarray:
        return np.repeat(weights @ np.linspace(-4, 4, 16)[:, None], 5, axis=1)

    still = [Stratum("t", np.zeros(5))]
    moving = [Stratum("t", np.zeros(5), 16, noisy)]
    tau = np.array([-0.01, 0.5])
    assert profile(still, tau, count=300).low[0] == 1.0
    assert profile(moving, tau, count=300).low[0] == 0.0


def test_improvement_counts_pairs_of_runs_and_ties_by_halves():
    strata = [np.array([[0.0, 1.0], [1.0, 2.0]]), np.array([[5.0, 5.0], [1.0, 1.0]])]
    found = improvement(strata)
    assert found[0, 1] == pytest.approx((0.5 / 4 + 1.0) / 2)
    assert found[0, 1] + found[1, 0] == pytest.approx(1.0)
    assert found[0, 0] == found[1, 1] == 0.5
    shuffled = [rows[:, ::-1] if k else rows for k, rows in enumerate(strata)]
    np.testing.assert_array_equal(improvement(shuffled), found)


def test_improvement_on_common_tasks_only():
    none = np.full(3, np.nan)
    strata = [np.stack([np.ones(3), np.zeros(3), none]), np.stack([none, np.ones(3), np.zeros(3)])]
    found = improvement(strata)
    assert found[0, 1] == found[1, 2] == 1.0
    assert np.isnan(found[0, 2]) and np.isnan(found[2, 0]) and found[2, 2] == 0.5


@pytest.mark.parametrize(
    "aggregate",
    [pooled_iqm, mean, median, optimality_gap, improvement, lambda s: share_above(s, TAU)],
)
@pytest.mark.parametrize(
    ("strata", "message"),
    [
        ([], "no task"),
        ([np.ones((2, 3)), np.ones((2, 0))], "task 1 of 2 has no runs"),
        ([np.array([[1.0, np.nan, 1.0], [1.0, 1.0, 1.0]])], "missing or infinite"),
        ([np.array([[1.0, np.inf, 1.0], [1.0, 1.0, 1.0]])], "missing or infinite"),
    ],
)
def test_bad_input_is_refused(aggregate, strata, message: str):
    with pytest.raises(ValidationError, match=message):
        aggregate(strata)


def test_thresholds_must_be_numbers():
    with pytest.raises(ValidationError, match="thresholds"):
        share_above([np.ones(3)], np.array([0.0, np.nan]))


@pytest.mark.slow
def test_profiles_of_a_board_take_seconds():
    strata = scores(9, models=30, n=10)
    started = cpu_seconds()
    for model in range(30):
        profile(strata_of([rows[model] for rows in strata]), TAU)
    improvement(strata)
    assert cpu_seconds() - started < 4
