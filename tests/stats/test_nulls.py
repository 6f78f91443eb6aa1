"""Nulls: the isotonic fit, the noise of fixed items, and what is drawn from them.

That the corrections leave no bias is shown in test_simulation.py.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.nulls import (
    CurveNull,
    curve_null,
    curve_nulls,
    isotonic,
    mean_noise,
    positive_part,
)
from crlbench.stats.stability import expected_dispersion, expected_drawdown, max_drawdown
from tests.support.clock import cpu_seconds

RUNS = 2000 if os.environ.get("CRLBENCH_FULL") else 200
"""Simulated runs of each simulation."""
POINTS, ITEMS = 21, 256

SHAPES = {
    "flat": lambda t: 0.0 * t,
    "rising": lambda t: 2.5 * t,
    "saturating": lambda t: 3.0 * (1 - np.exp(-6 * t)),
    "late": lambda t: 4.0 / (1 + np.exp(-20 * (t - 0.6))),
}
"""Skill over the budget; none of them ever falls."""


def probabilities(
    generator: np.random.Generator, shape: str, points: int = POINTS, items: int = ITEMS
) -> np.ndarray:
    """(T, N) success probabilities: items of unequal difficulty and unequal pace."""
    difficulty = generator.normal(-1.0, 1.7, items)
    pace = np.exp(generator.normal(0, 0.5, items))
    skill = SHAPES[shape](np.linspace(0, 1, points))
    return 1 / (1 + np.exp(-(difficulty + pace * skill[:, None])))


def answers(generator: np.random.Generator, p: np.ndarray) -> np.ndarray:
    return (generator.random(p.shape) < p).astype(np.float64)


def test_isotonic_fit_against_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    generator = np.random.default_rng(1)
    for points in (1, 2, 3, 11, 21, 40):
        curves = generator.normal(size=(20, points)) + np.linspace(0, 1, points)
        curves[0] = np.round(curves[0])
        wanted = [optimize.isotonic_regression(y).x for y in curves]
        np.testing.assert_allclose(isotonic(curves), wanted, atol=1e-12)


def test_isotonic_fit_by_hand():
    np.testing.assert_allclose(isotonic(np.array([1.0, 3, 2, 4])), [1, 2.5, 2.5, 4])
    np.testing.assert_allclose(isotonic(np.array([3.0, 2, 1])), [2, 2, 2])
    np.testing.assert_allclose(isotonic(np.array([1.0, 2, 3])), [1, 2, 3])


def test_noise_by_hand():
    # Changes (1, 0, -1, 0): variance 2/3, halved, over 4 items.
    items = np.array([[0.0, 1, 1, 0], [1, 1, 0, 0]])
    np.testing.assert_allclose(mean_noise(items), np.sqrt([1 / 12, 1 / 12]))
    # All items move together: signal, no noise.
    np.testing.assert_allclose(mean_noise(np.array([[0.0, 0], [1, 1], [0, 0]])), 0.0)
    assert mean_noise(np.ones((1, 5))).tolist() == [0.0]
    with pytest.raises(ValidationError, match="at least 2 items"):
        mean_noise(np.ones((3, 1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_is_that_of_fixed_items_and_not_binomial(shape: str):
    generator = np.random.default_rng(2)
    p = probabilities(generator, shape)
    truth = (p * (1 - p)).sum(axis=1) / ITEMS**2
    mean = p.mean(axis=1)
    binomial = mean * (1 - mean) / ITEMS
    found = np.mean([mean_noise(answers(generator, p)) ** 2 for _ in range(RUNS)], axis=0)
    assert np.abs(np.sqrt(found / truth) - 1).max() < 0.2
    assert np.abs(np.sqrt(found / truth) - 1).mean() < 0.07
    assert np.sqrt(binomial / truth).mean() > 1.15


def test_noise_of_partial_credit_is_not_taken_for_that_of_0_and_1():
    generator = np.random.default_rng(3)
    scores = np.clip(0.5 + 0.1 * generator.normal(size=(POINTS, 4000)), 0, 1)
    assert mean_noise(scores).mean() == pytest.approx(0.1 / np.sqrt(4000), rel=0.02)


def test_a_real_drop_is_seen_nearly_whole():
    generator = np.random.default_rng(5)
    found = []
    for run in range(RUNS // 4):
        p = probabilities(generator, "rising")
        p[14:] = p[4]
        scores = answers(generator, p)
        drop = float(max_drawdown(scores.mean(axis=1)))
        truth = float(max_drawdown(p.mean(axis=1)))
        found.append(drop - expected_drawdown(curve_null(scores, "t", run)) - truth)
    assert truth > 0.15
    assert abs(np.mean(found)) < 0.05


def test_positive_part_is_half_the_mean_absolute_permuted_difference():
    # One item changed: its difference is ±1/4 with either sign, whatever the rest does.
    before, after = np.array([1.0, 1, 0, 1]), np.array([0.0, 1, 0, 1])
    assert positive_part(before, after, "t", 0) == pytest.approx(1 / 8)
    assert positive_part(before, before, "t", 0) == 0.0
    assert positive_part(after, before, "t", 0) == positive_part(before, after, "t", 0)
    # Many: the normal law's E max(0, X) = sd / sqrt(2 pi).
    change = np.random.default_rng(8).normal(size=2000)
    found = positive_part(change, np.zeros(2000), "t", 0, count=4000)
    sd = np.sqrt((change**2).sum()) / 2000
    assert found == pytest.approx(sd / np.sqrt(2 * np.pi), rel=0.05)


def test_without_noise_there_is_nothing_to_expect():
    items = np.tile(np.linspace(0, 1, 5)[:, None], (1, 6))
    null = curve_null(items, "t", 0)
    assert expected_drawdown(null) == pytest.approx(0.0, abs=1e-12)
    assert null.expectation(lambda u: u[..., -1]) == pytest.approx(1.0)


def test_draws_belong_to_task_and_seed_and_to_nobody_else():
    generator = np.random.default_rng(9)
    scores = answers(generator, probabilities(generator, "rising"))
    first = curve_null(scores, "a", 3)
    np.random.seed(1)
    curve_null(scores[:9], "a", 3)
    again = curve_null(scores, "a", 3)
    assert expected_drawdown(first) == expected_drawdown(again)
    for other in (curve_null(scores, "a", 4), curve_null(scores, "b", 3)):
        assert expected_drawdown(other) != expected_drawdown(first)
    other_model = answers(generator, probabilities(generator, "flat"))
    shared = curve_null(other_model, "a", 3)
    np.testing.assert_allclose(
        (shared.drawn - shared.fit) / shared.noise, (first.drawn - first.fit) / first.noise
    )


def test_runs_at_once_are_runs_one_by_one():
    generator = np.random.default_rng(6)
    items = [(generator.random((9, 30)) < 0.5).astype(float) for _ in range(3)]
    together = curve_nulls(items, "addition", [4, 0, 2])
    for k, index in enumerate((4, 0, 2)):
        alone = curve_null(items[k], "addition", index)
        for name in ("fit", "noise", "drawn", "redrawn"):
            np.testing.assert_allclose(getattr(together, name)[k], getattr(alone, name))


def test_expectation_is_moved_and_scaled_with_the_curve():
    generator = np.random.default_rng(10)
    scores = answers(generator, probabilities(generator, "rising"))
    base, moved = curve_null(scores, "t", 0), curve_null(2 * scores - 0.3, "t", 0)
    assert isinstance(base, CurveNull)
    assert expected_drawdown(moved) == pytest.approx(2 * expected_drawdown(base))
    np.testing.assert_allclose(moved.fit, 2 * base.fit - 0.3)


def test_a_null_takes_under_five_milliseconds():
    generator = np.random.default_rng(11)
    scores = answers(generator, probabilities(generator, "rising"))
    best = np.inf
    for _ in range(20):
        started = cpu_seconds()
        null = curve_null(scores, "t", 0)
        expected_drawdown(null)
        expected_dispersion(null)
        best = min(best, cpu_seconds() - started)
    assert best < 0.005
