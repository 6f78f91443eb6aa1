"""Samples to threshold: two in a row, censoring, exact intervals, the frozen reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.errors import ValidationError
from crlbench.stats.intervals import Interval
from crlbench.stats.thresholds import (
    arrival,
    clopper_pearson,
    on_axis,
    reach,
    reference_times,
    speed_profile,
    speed_ratios,
    speed_score,
)

X = np.array([0, 10, 20, 30, 40])
TIMES = st.lists(st.one_of(st.floats(1, 100), st.just(math.inf)), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("u", "expected"),
    [
        ([0.1, 0.6, 0.4, 0.5, 0.5], 40),
        ([0.5, 0.5, 0.0, 0.0, 0.0], 10),
        ([0.1, 0.6, 0.7, 0.0, 0.0], 20),
        ([0.6, 0.4, 0.6, 0.4, 0.6], math.inf),
        ([0.1, 0.2, 0.3, 0.4, 0.9], math.inf),
    ],
)
def test_second_of_two_in_a_row(u, expected):
    assert reach(X, np.array(u), 0.5) == expected


def test_many_curves_at_once_and_other_grids():
    u = np.random.default_rng(1).random((4, 7, 5))
    found = reach(X, u, 0.4)
    assert found.shape == (4, 7)
    for i in range(4):
        for j in range(7):
            assert found[i, j] == reach(X, u[i, j], 0.4)
    assert reach(X[:1], np.array([0.9]), 0.5) == math.inf


def test_a_score_at_the_threshold_reaches_it_whatever_the_rounding():
    u = (np.array([0.55, 0.55, 0.55, 0.1, 0.1]) - 0.1) / (1.0 - 0.1)
    assert reach(X, u - 2e-16, 0.5) == 10
    assert reach(X, u - 1e-9, 0.5) == math.inf


def test_a_single_hit_would_fire_early_on_noise():
    """Straight learning through τ at point 13 with the noise of 128 fixed items."""
    generator = np.random.default_rng(2)
    truth = 0.5 + (np.arange(21) - 13) * 0.015
    u = truth + generator.normal(0, 0.035, (4000, 21))
    single = np.argmax(u >= 0.5, axis=1).mean()
    two = reach(np.arange(21), u, 0.5)
    assert single < 12.6
    assert 14 < two[np.isfinite(two)].mean() < 15


def test_arrival_counts_censored_runs_as_the_budget():
    found = arrival(np.array([10.0, 30, math.inf, 50]), 40, 0.5)
    assert (found.n, found.arrived, found.share) == (4, 2, 0.5)
    assert found.restricted_mean == pytest.approx((10 + 30 + 40 + 40) / 4)
    assert found.censored == (False, False, True, True)
    never = arrival(np.full(5, math.inf), 40, 0.5)
    assert (never.share, never.restricted_mean, never.interval.low) == (0.0, 40.0, 0.0)
    with pytest.raises(ValidationError, match="no runs"):
        arrival(np.array([]), 40, 0.5)


def test_clopper_pearson_against_what_can_be_solved_by_hand():
    """All or none of n: the other end is a root. One of two: a square equation."""
    assert clopper_pearson(0, 10) == Interval(0.0, pytest.approx(1 - 0.025**0.1, abs=1e-14))
    assert clopper_pearson(10, 10) == Interval(pytest.approx(0.025**0.1, abs=1e-14), 1.0)
    found = clopper_pearson(1, 2)
    assert found.low == pytest.approx(1 - math.sqrt(0.975), abs=1e-14)
    assert found.high == pytest.approx(math.sqrt(0.975), abs=1e-14)
    # Clopper & Pearson 1934, as tables have it: 4 of 10.
    assert clopper_pearson(4, 10).low == pytest.approx(0.1216, abs=5e-5)
    assert clopper_pearson(4, 10).high == pytest.approx(0.7376, abs=5e-5)
    assert clopper_pearson(5, 10, level=0.9).low > clopper_pearson(5, 10).low


def test_reference_needs_half_of_its_seeds():
    times = {
        ("a", 0.5): np.array([40.0, 10, math.inf, 20]),
        ("a", 0.75): np.array([math.inf, 30, math.inf, math.inf]),
        ("b", 0.5): np.array([7.0, math.inf, math.inf, 5, 6]),
        ("b", 0.75): np.array([7.0, math.inf, math.inf, 5, math.inf]),
    }
    assert reference_times(times) == {("a", 0.5): 20.0, ("b", 0.5): 7.0}
    assert reference_times({("a", 0.5): np.array([])}) == {}
    half = {("a", 0.5): np.array([math.inf, 30, math.inf, 20])}
    assert reference_times(half) == {("a", 0.5): 30.0}


def test_hand_worked_speed_profile():
    reference = {("a", 0.5): 20.0, ("b", 0.5): 10.0}
    times = {
        ("a", 0.5): np.array([20.0, 40]),
        ("b", 0.5): np.array([5.0, math.inf]),
        ("b", 0.75): np.array([1.0, 1]),
    }
    ratios = speed_ratios(times, reference)
    assert sorted(ratios) == [0.5, 1, 2, math.inf]
    np.testing.assert_allclose(
        speed_profile(ratios, [0.25, 0.5, 0.9, 1, 4]), [0, 0.25, 0.25, 0.5, 0.75]
    )
    # A doubling is a quarter of the axis from 1/4 to 4.
    assert speed_score(ratios) == pytest.approx((0.75 + 0.5 + 0.25 + 0) / 4)


@pytest.mark.slow
@given(TIMES)
def test_score_is_the_mean_height_of_the_profile(times):
    ratios = np.array(times) / 20
    a = np.exp(np.linspace(-math.log(4), math.log(4), 20_001))
    assert speed_score(ratios) == pytest.approx(speed_profile(ratios, a).mean(), abs=1e-3)


@given(TIMES, st.floats(0.3, 3))
def test_faster_is_never_lower(times, factor):
    ratios = np.array(times) / 20
    faster = ratios / max(1.0, factor)
    assert speed_score(faster) >= speed_score(ratios)
    assert 0.0 <= speed_score(ratios) <= 1.0


def test_the_reference_itself_scores_about_a_half():
    times = {("a", 0.5): np.array([20.0, 20, 20])}
    assert speed_score(speed_ratios(times, reference_times(times))) == pytest.approx(0.5)


def test_another_entry_moves_no_score():
    reference = reference_times({("a", 0.5): np.array([20.0, 30, 25])})
    mine = {("a", 0.5): np.array([10.0, 12, math.inf])}
    before = speed_score(speed_ratios(mine, reference))
    speed_score(speed_ratios({("a", 0.5): np.array([1.0, 1, 1])}, reference))
    assert speed_score(speed_ratios(mine, reference)) == before


def test_what_cannot_be_compared_is_said():
    with pytest.raises(ValidationError, match="reaches no threshold"):
        speed_ratios({}, {})
    with pytest.raises(ValidationError, match=r"no runs for b at 0\.5"):
        speed_ratios({("a", 0.5): np.ones(2)}, {("a", 0.5): 1.0, ("b", 0.5): 1.0})


def test_other_axes():
    spent = np.array([0.0, 100, 150, 400, 500])
    assert on_axis(20, X, spent) == 150
    assert on_axis(35, X, spent) == 450
    found = on_axis(np.array([0.0, math.inf, 40, 41]), X, spent)
    assert found.tolist() == [0, math.inf, 500, math.inf]
    u = np.array([0.1, 0.6, 0.7, 0.8, 0.9])
    assert on_axis(reach(X, u, 0.5), X, spent) == reach(spent, u, 0.5)
