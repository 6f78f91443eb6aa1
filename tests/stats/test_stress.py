"""Stab with a stress arm: shares by hand, resamples and swaps against plain loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from crlbench.stats.intervals import times_drawn
from crlbench.stats.stability import RunStability, seed_columns
from crlbench.stats.stress import (
    STRESS_SEEDS,
    arm_shares,
    failure_bound,
    rows_headline,
    seed_rows,
    selected_arm_shares,
    stress_headline,
    stress_replicates,
    swapped_stress_differences,
    task_stress,
)

CALM = RunStability(0.6, 0.1, 0.5, 0.04, 0.04, 0.0, 0.0, 0.0, 0.0, 0.0, False)


def runs(seed: int, n: int, failed: int = 0) -> list[RunStability]:
    generator = np.random.default_rng(seed)
    made = []
    for i in range(n):
        end, drop = generator.uniform(0.3, 0.7), generator.uniform(0, 0.2)
        made.append(
            dataclasses.replace(
                CALM, final=end, peak=end - 0.1, drawdown=drop, failed=i < failed
            )
        )
    return made


def by_hand(arm: list[RunStability]) -> list[float]:
    n = len(arm)
    gaps = [abs(a.final - b.final) for i, a in enumerate(arm) for b in arm[:i]]
    peak = sum(run.peak for run in arm) / n
    return [
        1 - min(1, sum(gaps) / len(gaps) / max(peak, 0.1)),
        sum(1 - min(1, run.drawdown / max(run.peak, 0.1)) for run in arm) / n,
        1 - sum(run.failed for run in arm) / n,
    ]


def test_shares_and_headline_by_hand() -> None:
    calm, stress = runs(0, 5), runs(1, 3, failed=1)
    shares = [by_hand(calm), by_hand(stress)]
    assert arm_shares(seed_columns(calm)) == pytest.approx(shares[0])
    task = task_stress(calm, stress)
    assert list(task.stress.values()) == pytest.approx(shares[1])
    product = np.prod([(a + b) / 2 for a, b in zip(*shares, strict=True)])
    assert task.value == pytest.approx(product ** (1 / 3))
    assert (task.runs, task.failures) == (8, 1)


@pytest.mark.parametrize("n", [5, 10, 20])
def test_perfect_runs_have_1_whatever_their_number_and_say_what_that_rests_on(n: int) -> None:
    task = task_stress([CALM] * n, [CALM] * STRESS_SEEDS)
    assert task.value == 1.0
    assert task.runs == n + STRESS_SEEDS
    assert task.bound == pytest.approx(1 - 0.025 ** (1 / task.runs))


def test_what_no_failure_rests_on_differs_with_the_number_of_seeds() -> None:
    bounds = [failure_bound(0, n + STRESS_SEEDS) for n in (5, 10, 20)]
    assert bounds == sorted(bounds, reverse=True) and len(set(bounds)) == 3


def test_stab_of_twice_the_seeds_is_another_number() -> None:
    few, many = runs(3, 5), runs(3, 10)
    stress = runs(4, 3)
    assert task_stress(few, stress).value != pytest.approx(task_stress(many, stress).value)


def test_a_break_under_stress_alone_is_seen() -> None:
    broken = dataclasses.replace(CALM, final=0.0, drawdown=0.5, failed=True)
    assert task_stress([CALM] * 5, [broken] + [CALM] * 2).value < 0.85


def test_selections_of_seeds_are_those_of_the_seeds_themselves() -> None:
    columns = seed_columns(runs(5, 6, failed=1))
    generator = np.random.default_rng(0)
    picks = generator.integers(0, 6, (40, 6))
    drawn = np.stack([(picks == i).sum(axis=1) for i in range(6)]).astype(np.float32)
    expected = np.stack([arm_shares(columns[:, pick]) for pick in picks])
    assert selected_arm_shares(columns, drawn) == pytest.approx(expected, abs=1e-12)


def test_replicates_have_the_estimate_as_their_mean() -> None:
    calm, stress = seed_columns(runs(6, 5)), seed_columns(runs(7, 3))
    part = stress_replicates("addition", calm, stress, 500)
    value = float(stress_headline(arm_shares(calm), arm_shares(stress)))
    assert part.location == pytest.approx(value)
    assert part.drawn.mean() == pytest.approx(part.location)
    assert part.drawn.std() > 0
    again = stress_replicates("addition", calm, stress, 500)
    assert np.array_equal(part.drawn, again.drawn)


def test_the_arm_that_spreads_gives_the_degrees_of_freedom() -> None:
    spreads, alike = seed_columns(runs(7, 3)), np.repeat(seed_columns(runs(6, 1)), 5, axis=1)
    part = stress_replicates("addition", alike, spreads, 2_000)
    shares = selected_arm_shares(spreads, times_drawn("addition/stress", 3, 2_000))
    alone = stress_headline(arm_shares(alike), shares)
    assert part.size == pytest.approx(3)
    assert part.drawn.var() == pytest.approx(alone.var())
    assert stress_replicates("addition", alike, alike[:, :3], 50).drawn.std() == 0


def test_each_arm_brings_its_unbiased_variance() -> None:
    calm, stress = seed_columns(runs(6, 5)), seed_columns(runs(7, 3))
    part = stress_replicates("addition", calm, stress, 2_000)
    drawn = selected_arm_shares(calm, times_drawn("addition", 5, 2_000))
    other = selected_arm_shares(stress, times_drawn("addition/stress", 3, 2_000))
    of_calm = stress_headline(drawn, arm_shares(stress)).var() * 5 / 4
    of_stress = stress_headline(arm_shares(calm), other).var() * 3 / 2
    found = part.drawn.var() * part.size / (part.size - 1)
    assert found == pytest.approx(of_calm + of_stress)


def test_entries_that_have_nothing_in_common_do_not_look_correlated() -> None:
    def entry(seed: int) -> np.ndarray:
        columns = (seed_columns(runs(seed, 5)), seed_columns(runs(seed + 10_000, 3)))
        return stress_replicates("addition", *columns, 300).drawn

    pairs = [(entry(seed), entry(seed + 1_000)) for seed in range(200)]
    apart, sides = (
        sum(np.var(b - a) for a, b in pairs), sum(np.var(a) + np.var(b) for a, b in pairs)
    )
    assert apart / sides == pytest.approx(1, abs=0.05)
    assert np.array_equal(entry(5), entry(5)), "an entry is one with itself"


def test_draws_that_only_repeat_seeds_stay_as_they_are() -> None:
    two = np.repeat(seed_columns(runs(7, 1)), 2, axis=1)
    two[0, 1] += 0.2
    part = stress_replicates("addition", two, np.repeat(two[:, :1], 3, axis=1), 500)
    values = np.unique(part.drawn.round(9))
    assert len(values) == 2, "one seed twice, or both"


def test_two_arms_of_equal_spread_share_their_degrees_of_freedom() -> None:
    both = seed_columns(runs(7, 5))
    part = stress_replicates("addition", both, both, 4_000)
    assert part.size == pytest.approx(9, abs=0.5)


@pytest.mark.parametrize("n", [3, 5])
def test_swaps_are_those_of_whole_seeds(n: int) -> None:
    a, b = (
        seed_rows(seed_columns(runs(s, n, failed=s == 8)), seed_columns(runs(s + 20, 3)))
        for s in (8, 9)
    )
    swapped = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    mine = np.concatenate([~swapped.T, swapped.T]).astype(np.int8)
    expected = [
        float(
            (rows_headline(np.where(swap[:, None], b, a)[None])
             - rows_headline(np.where(swap[:, None], a, b)[None])).item()
        )
        for swap in swapped
    ]
    assert swapped_stress_differences(a, b, mine) == pytest.approx(expected, abs=1e-12)
    some = mine[:, [0, 1, 2]]
    assert swapped_stress_differences(a, b, some) == pytest.approx(expected[:3], abs=1e-12)
    pairs = np.stack([a, b]), np.stack([b, a])
    assert swapped_stress_differences(*pairs, mine)[0] == pytest.approx(expected, abs=1e-12)
