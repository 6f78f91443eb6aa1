"""Paired differences: the verdict's rules, what it promises, and how often it keeps the promise."""

from __future__ import annotations

import os

import numpy as np
import pytest

from crlbench.stats.intervals import (
    Interval,
    Stratum,
    replicate,
    task_balanced_iqm,
)
from crlbench.stats.measures import ItemTable
from crlbench.stats.paired import (
    MOST_SEEDS,
    Paired,
    paired,
    seeds_to_settle,
    verdict,
)
from tests.support.simulate import lam_stratum

STUDIES = 2000 if os.environ.get("CRLBENCH_FULL") else 150
"""Simulated pairs of arms of each simulation."""
COUNT = 2000 if os.environ.get("CRLBENCH_FULL") else 300
MARGIN = 0.05


def simulated(generator: np.random.Generator, n: int, effect: float, spread: float, items: int):
    """Base and arm on the same items; seeds share half of the variance of their speed.

    Items of unequal difficulty are learned over four points of a curve; each answer is a
    Bernoulli draw of its own.
    """
    logit = generator.normal(0.0, 1.3, items)
    common = generator.normal(0, spread / np.sqrt(2), n)
    x = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    weights = np.array([0.5, 1, 1, 1, 0.5]) / 4
    start = generator.binomial(4, 1 / (1 + np.exp(-logit))) / 4
    tables = []
    for gain in (0.0, effect):
        speed = 1.0 + gain + common + generator.normal(0, spread / np.sqrt(2), n)
        p = 1 / (1 + np.exp(-(logit + speed[:, None, None] * x[:, None])))
        learned = np.einsum("j,nji->ni", weights, generator.random(p.shape) < p) - start
        tables.append(ItemTable(learned, np.tile(start, (n, 1)), None, 1.0))
    return tables


def study(
    generator: np.random.Generator,
    n: int = 5,
    tasks: int = 1,
    effect: float = 0.0,
    spread: float = 0.3,
    items: int = 48,
) -> Paired:
    pairs = [simulated(generator, n, effect, spread, items) for _ in range(tasks)]
    arms = [
        [replicate(lam_stratum(f"t{k}", pair[side]), count=COUNT) for k, pair in enumerate(pairs)]
        for side in (0, 1)
    ]
    return paired(*arms, margin=MARGIN)


def plain(base: list[list[float]], arm: list[list[float]], margin: float = MARGIN) -> Paired:
    """Paired difference of plain numbers per task and seed."""
    arms = [
        [replicate(Stratum(f"t{k}", np.array(v, float)), count=2000) for k, v in enumerate(rows)]
        for rows in (base, arm)
    ]
    return paired(*arms, margin=margin)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((0.01, 0.2), (0.02, 0.15), "better"),
        ((-0.2, -0.01), (-0.15, -0.02), "worse"),
        ((-0.06, 0.06), (-0.05, 0.05), "equivalent"),
        ((0.01, 0.05), (0.02, 0.04), "equivalent"),
        ((-0.06, 0.2), (-0.04, 0.1), "undecided"),
        ((0.0, 0.2), (0.01, 0.1), "undecided"),
    ],
)
def test_the_four_verdicts(outer, inner, expected: str):
    assert verdict(Interval(*outer), Interval(*inner, 0.9), MARGIN) == expected


def test_without_an_interval_nothing_is_decided():
    assert verdict(None, None, MARGIN) == "undecided"
    one = plain([[0.1]], [[0.9]])
    assert (one.interval, one.verdict, one.correlation) == (None, "undecided", None)
    assert one.more_seeds == 4
    assert plain([[0.1], [0.2]], [[0.9], [0.3]]).more_seeds == 2


def test_value_is_the_difference_of_the_headlines():
    generator = np.random.default_rng(1)
    base, arm = generator.normal(size=(3, 6)).tolist(), generator.normal(size=(3, 6)).tolist()
    found = plain(base, arm)
    assert found.value == pytest.approx(task_balanced_iqm(arm) - task_balanced_iqm(base))
    assert found.interval.low < found.inner.low < found.value < found.inner.high
    assert plain(arm, base).interval.low == pytest.approx(-found.interval.high)
    assert found.n == 6


def test_pairing_removes_what_both_arms_share():
    wild = [[0.0, 0.3, 0.6, 0.9, 1.2]]
    shifted = [[v + 0.1 for v in wild[0]]]
    found = plain(wild, shifted)
    assert found.correlation == pytest.approx(1.0)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.1, 0.1))
    assert found.verdict == "better" and found.more_seeds is None
    assert plain(shifted, wild).verdict == "worse"
    same = plain(wild, wild)
    assert same.verdict == "equivalent" and same.value == 0.0
    assert plain(wild, [wild[0][::-1]]).correlation == pytest.approx(-1.0)
    assert plain(wild, [[0.5] * 5]).correlation is None


def test_seeds_to_settle_follows_the_rough_formula():
    """n of about 7.84 var / d² in all, for a difference that is far beyond the margin."""
    more = seeds_to_settle(0.1, 0.02, 0.0, [5] * 6, margin=0.01)
    assert 5 + more == pytest.approx(7.84 * 0.02 / 0.1**2, abs=1)
    assert seeds_to_settle(0.0, 0.01, 0.0, [5], MARGIN) > 10
    assert seeds_to_settle(0.05, 0.5, 0.0, [5], MARGIN) == MOST_SEEDS
    assert seeds_to_settle(0.04, 1e-6, 0.1, [5], MARGIN) == MOST_SEEDS


@pytest.mark.parametrize(
    ("tasks", "low"), [(1, 0.925), pytest.param(3, 0.925, marks=pytest.mark.slow)]
)
def test_equal_arms_are_rarely_told_apart(tasks: int, low: float):
    """Coverage of the 95 % interval is at least near 95 %; A/A verdicts err at most in 7 %."""
    generator = np.random.default_rng(21 + tasks)
    found = [study(generator, tasks=tasks) for _ in range(STUDIES)]
    covered = np.mean([f.interval.low <= 0.0 <= f.interval.high for f in found])
    wrong = np.mean([f.verdict in ("better", "worse") for f in found])
    assert covered >= low
    assert wrong <= 0.07


def test_noise_of_single_answers_widens_the_interval_once():
    """Few items and equal seeds: the half-width is about what Student's t would give."""
    generator = np.random.default_rng(51)
    found = [study(generator, n=10, tasks=3, spread=0.05, items=32) for _ in range(STUDIES // 2)]
    half = np.median([f.interval.high - f.interval.low for f in found]) / 2
    assert 1.9 <= half / np.std([f.value for f in found]) <= 2.8


def test_the_interval_covers_a_real_difference():
    generator = np.random.default_rng(31)
    found = [study(generator, effect=0.8) for _ in range(STUDIES)]
    truth = np.mean([f.value for f in found])
    assert np.mean([f.interval.low <= truth <= f.interval.high for f in found]) >= 0.925


def test_tight_equal_arms_are_equivalent_and_distant_ones_differ():
    generator = np.random.default_rng(41)
    studies = max(20, STUDIES // 10)
    equal = [study(generator, 10, 3, spread=0.02, items=256) for _ in range(studies)]
    apart = [study(generator, 5, 3, effect=1.5, items=128) for _ in range(studies)]
    assert np.mean([f.verdict == "equivalent" for f in equal]) >= 0.9
    assert np.mean([f.verdict == "better" for f in apart]) >= 0.9
    noisy = [study(generator, 5, 1, spread=0.6) for _ in range(studies)]
    undecided = [f for f in noisy if f.verdict == "undecided"]
    assert len(undecided) >= 0.8 * studies
    assert all(1 <= f.more_seeds <= MOST_SEEDS for f in undecided)
