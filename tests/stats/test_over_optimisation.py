"""Fits of gold over distance: exact curves, coverage of known a and b, what is claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.over_optimisation import (
    NOTHING_FOUND,
    Form,
    OverOptimisation,
    basis,
    fit,
    over_optimisation,
)

A, B = 0.3, 0.2
SIMULATIONS = 200


def curve(form: Form, distance: np.ndarray, a: float = A, b: float = B) -> np.ndarray:
    x, y = basis(distance, form)
    return a * x - b * y


def simulated(
    form: Form, units: int, points: int, seed: int, b: float = B
) -> tuple[np.ndarray, np.ndarray]:
    """KL and gold (U, J) with a known mean: units differ in level and in slope, answers are noisy.

    The mean KL of a point is its distance squared.
    """
    generator = np.random.default_rng([seed, units, points])
    distance = np.linspace(0.0, 2.5, points)
    kl = distance**2 * np.exp(0.3 * generator.standard_normal((units, points)) - 0.045)
    slope = 1.0 + 0.3 * generator.standard_normal((units, 1))
    level = 0.4 + 0.1 * generator.standard_normal((units, 1))
    noise = 0.1 * generator.standard_normal((units, points))
    return kl, level + slope * curve(form, distance, A, b) + noise


@pytest.mark.parametrize("form", ["rl", "best-of-n"])
def test_an_exact_curve_gives_its_numbers(form: Form) -> None:
    distance = np.array([0.0, 0.3, 1.0, 1.7, 2.4])
    a, b = fit(distance, curve(form, distance), form)
    assert (float(a), float(b)) == pytest.approx((A, B))
    whole = over_optimisation(
        np.tile(distance**2, (6, 1)), 0.4 + np.tile(curve(form, distance), (6, 1)), form, "exact"
    )
    assert whole.b.interval is not None
    assert whole.b.interval.low == pytest.approx(B) and whole.finding == "over-optimised"
    assert whole.peak.value == pytest.approx(0.4 + curve(form, distance).max())
    assert whole.loss.value == pytest.approx(whole.peak.value - whole.gold[-1])
    assert whole.peak_distance.value == distance[curve(form, distance).argmax()]


def test_the_two_bends_by_hand() -> None:
    distance = np.array([0.0, 1.0, math.e])
    assert basis(distance, "rl")[1] == pytest.approx([0.0, 0.0, math.e])
    assert basis(distance, "best-of-n")[1] == pytest.approx([0.0, 1.0, math.e**2])


@pytest.mark.parametrize(("form", "units", "points"), [("rl", 10, 21), ("best-of-n", 128, 7)])
def test_intervals_cover_known_numbers(form: Form, units: int, points: int) -> None:
    """Seeds of runs, or items of best-of-n: 95 % intervals cover in at least 90 % of 200."""
    covered = {"a": 0, "b": 0}
    for seed in range(SIMULATIONS):
        fitted = over_optimisation(*simulated(form, units, points, seed), form, "cover", 1_000)
        for name, truth in (("a", A), ("b", B)):
            interval = getattr(fitted, name).interval
            covered[name] += interval.low <= truth <= interval.high
    assert min(covered.values()) >= 0.9 * SIMULATIONS, covered


def test_a_curve_that_does_not_bend_is_not_called_over_optimised() -> None:
    findings = [
        over_optimisation(*simulated("best-of-n", 128, 7, seed, b=0.0), "best-of-n", "flat", 1_000)
        for seed in range(SIMULATIONS)
    ]
    false = [one for one in findings if one.finding != NOTHING_FOUND]
    assert len(false) <= 0.06 * SIMULATIONS


def test_an_interval_that_holds_zero_or_lies_below_it_finds_nothing() -> None:
    rising = over_optimisation(*simulated("best-of-n", 128, 7, 0, b=-0.2), "best-of-n", "up", 500)
    assert rising.b.interval is not None and rising.b.interval.high < 0
    assert rising.finding == NOTHING_FOUND


def test_few_units_get_no_interval_and_no_claim() -> None:
    few: OverOptimisation = over_optimisation(*simulated("rl", 3, 21, 0), "rl", "few")
    assert few.b.interval is None and "nothing is claimed" in few.finding


def test_curves_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 points have a distance above 0"):
        over_optimisation(np.array([[0.0, 1.0, 4.0]] * 5), np.zeros((5, 3)), "rl", "short")
    with pytest.raises(ValidationError, match="one distance"):
        over_optimisation(np.array([[0.0, 1.0, 1.0, 1.0]] * 5), np.zeros((5, 4)), "rl", "still")


def test_a_kl_estimate_below_zero_is_no_distance() -> None:
    kl = np.tile([0.0, -0.01, 0.5, 1.0, 2.0], (6, 1))
    assert over_optimisation(kl, np.tile(np.arange(5.0), (6, 1)), "rl", "noise").distance[1] == 0.0
