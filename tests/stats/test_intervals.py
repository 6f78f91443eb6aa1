"""Bootstrap intervals: definitions, honesty at small n, reproducibility.

Coverage is simulated in test_simulation.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlbench.seeding import derive
from crlbench.stats.intervals import (
    ROOT_SEED,
    Replicates,
    Stratum,
    arms_interval,
    bootstrap,
    drawn_items,
    expanded,
    expanded_at,
    expanded_tail,
    item_weights,
    mean_of_rows,
    plain_mean,
    resample,
    student_cdf,
    student_quantile,
    task_balanced_iqm,
    trimmed_mean,
)
from crlbench.stats.measures import ItemTable
from crlbench.stats.sorting import order_statistics, row_at
from tests.support.clock import cpu_seconds
from tests.support.simulate import lam_stratum


def strata(values: np.ndarray) -> list[Stratum]:
    return [Stratum(f"task-{k}", row) for k, row in enumerate(values)]


def test_trimmed_mean_drops_a_quarter_at_each_end():
    assert trimmed_mean(np.array([9.0, 1.0, 2.0, 3.0, 0.0])) == pytest.approx(2.0)
    assert trimmed_mean(np.array([5.0, 1.0, 0.0])) == pytest.approx(2.0)
    stats = pytest.importorskip("scipy.stats")
    for n in range(1, 21):
        values = np.random.default_rng(n).normal(size=n)
        assert trimmed_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_tasks_weigh_the_same_whatever_their_spread():
    assert task_balanced_iqm([[0, 0, 0, 0, 100], [1, 1, 1, 1, 1]]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("df", "quantile"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622)]
)
def test_student_quantile_against_its_table(df: int, quantile: float):
    assert student_quantile(0.975, df) == pytest.approx(quantile, abs=1e-4)
    assert student_cdf(quantile, df) == pytest.approx(0.975, abs=1e-5)


def test_expanded_tail_widens_small_samples_and_fades():
    tails = [expanded_tail(n, n - 1) for n in (3, 5, 10, 20, 1000)]
    assert tails == sorted(tails)
    assert tails[0] < 1e-4 and tails[-1] == pytest.approx(0.025, abs=2e-4)


@pytest.mark.parametrize("n", [2, 5, 1_000, 10_000])
def test_order_statistics_are_those_of_the_sorted_values(n: int):
    values = np.random.default_rng(n).normal(size=n).round(2)
    tails = [(0.025, 0.975), (0.001, 0.999, 0.05, 0.95)]
    for quantiles in [*tails, (0.0, 0.5, 1.0), (0.01,), (0.99,), (0.4999, 0.5001)]:
        positions = [q * (n - 1) for q in quantiles]
        assert order_statistics(values, *positions) == [
            float(row_at(np.sort(values), position)) for position in positions
        ]


def test_several_levels_at_once_are_each_alone():
    whole, seeds = np.random.default_rng(0).normal(size=2_000), [5, 10]
    together = expanded_at(whole, seeds, (0.95, 0.90))
    assert together == [expanded(whole, seeds, level) for level in (0.95, 0.90)]


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_a_mean_of_rows_is_that_of_one_array_to_the_last_bit(rows: int):
    values = list(np.random.default_rng(rows).normal(size=(rows, 10_000)))
    assert (mean_of_rows(values) == np.mean(values, axis=0)).all()


def test_one_seed_has_no_interval():
    assert bootstrap(strata(np.ones((4, 1)))) is None
    assert bootstrap([]) is None


def test_one_task_needs_five_seeds_and_several_need_three():
    values = np.arange(8.0)
    assert bootstrap(strata(values[None, :4])) is None
    assert bootstrap(strata(values[None, :5])) is not None
    assert bootstrap(strata(np.stack([values[:2], values[:2]]))) is None
    assert bootstrap(strata(np.stack([values[:3], values[:3]]))) is not None


def test_equal_seeds_have_a_point_interval():
    found = bootstrap(strata(np.full((2, 5), 0.3)))
    assert (found.low, found.high) == pytest.approx((0.3, 0.3))


def test_interval_moves_and_scales_with_its_data():
    values = np.random.default_rng(1).normal(size=(3, 6))
    base, moved = bootstrap(strata(values)), bootstrap(strata(2 * values + 1))
    assert moved.low == pytest.approx(2 * base.low + 1)
    assert moved.high == pytest.approx(2 * base.high + 1)


def test_reproducible_and_independent_of_the_global_generator():
    values = np.random.default_rng(2).normal(size=(3, 5))
    np.random.seed(1)
    first = bootstrap(strata(values))
    np.random.seed(2)
    assert bootstrap(strata(values)) == first
    assert bootstrap(strata(values), seed=5) != first


def test_models_share_the_resamples_of_a_task():
    a, b = np.arange(5.0), np.arange(5.0) + 10
    np.testing.assert_allclose(
        resample(Stratum("t", b), 50) - resample(Stratum("t", a), 50), 10.0
    )


def test_items_are_drawn_in_blocks_of_any_size():
    blocks = [np.concatenate(list(drawn_items("t", 7, 50, block=b)), axis=1) for b in (50, 8)]
    np.testing.assert_array_equal(*blocks)
    generator = np.random.Generator(np.random.PCG64(derive(ROOT_SEED, "t", "items", 7)))
    plain = [np.bincount(row, minlength=7) for row in generator.integers(0, 7, (50, 7))]
    np.testing.assert_array_equal(blocks[0].T, plain)


def test_the_expanded_interval_has_numpys_quantiles():
    whole = np.random.default_rng(6).normal(size=999)
    found, tail = expanded(whole, [5, 6]), expanded_tail(5, 9)
    assert (found.low, found.high) == pytest.approx(np.quantile(whole, [tail, 1 - tail]))


def test_items_are_resampled_jointly_for_all_seeds():
    weights = item_weights("t", 32, 200)
    assert weights.shape == (200, 32)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    table = ItemTable(np.tile(np.arange(32.0), (3, 1)), np.zeros((3, 32)), None, 1.0)
    drawn = resample(lam_stratum("t", table), 200)
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1])
    assert drawn[:, 0].std() > 0


def simulated(generator: np.random.Generator, n: int, items: int = 128) -> ItemTable:
    """Seeds with unequal speed on items of unequal difficulty; 5 curve points, 4 start draws."""
    logit = generator.normal(-0.5, 1.5, items)
    speed = 1.2 + generator.normal(0, 0.3, n)
    x = np.linspace(0, 1, 5)
    p = 1 / (1 + np.exp(-(logit + speed[:, None, None] * x[:, None])))
    start = generator.binomial(4, 1 / (1 + np.exp(-logit))) / 4
    curve = generator.random(p.shape) < p
    weights = np.array([0.5, 1, 1, 1, 0.5]) / 4
    learned = np.einsum("j,nji->ni", weights, curve) - start
    return ItemTable(learned, np.tile(start, (n, 1)), None, 1.0)


def test_intervals_that_ignore_the_items_would_be_too_narrow():
    generator = np.random.default_rng(3)
    board = [lam_stratum(f"t{k}", simulated(generator, 10)) for k in range(4)]
    whole = bootstrap(board, plain_mean)
    blind = bootstrap([Stratum(s.name, s.values) for s in board], plain_mean)
    assert (whole.high - whole.low) > 1.2 * (blind.high - blind.low)


def arm(seeds: np.ndarray, items: float = 0.0) -> Replicates:
    """An arm on one task of protocol CRL-2, whose replicates have just the variance of a
    bootstrapped mean; ``items`` is the standard deviation that all arms' items share."""
    n, drawn = len(seeds), np.array([-1.0, 1.0] * 100)
    shared = items * np.repeat([-1.0, 1.0], 100)
    by_seed = seeds.mean() + drawn * seeds.std() / np.sqrt(n)
    draws = by_seed + shared, by_seed, seeds.mean() + shared
    return Replicates(seeds, seeds.mean(), *draws, rule="variance")


def test_arms_of_one_task_have_welchs_interval():
    draw = np.random.default_rng(3)
    real, mode = draw.normal(0.3, 0.02, 10), draw.normal(0.2, 0.05, 3)
    found = arms_interval([arm(real)], [arm(mode)])
    welch = stats.ttest_ind(real, mode, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high), abs=1e-12)


def test_items_that_arms_share_add_nothing_to_their_difference():
    draw = np.random.default_rng(3)
    parts = [[draw.normal(0.3, 0.02, 5) for _ in range(4)] for _ in range(2)]
    plain, shared = (
        arms_interval(*([arm(x, items) for x in side] for side in parts))
        for items in (0.0, 0.3)
    )
    assert (plain.low, plain.high) == pytest.approx((shared.low, shared.high), abs=1e-12)
    own = [[arm(x, items) for x in side] for side, items in zip(parts, (0.3, 0.0), strict=True)]
    wide = arms_interval(*own)
    assert wide.high - wide.low > 2 * 1.96 * 0.3


def test_arms_that_never_vary_have_a_point_interval():
    parts = [arm(np.full(3, value)) for value in (0.3, 0.1)]
    found = arms_interval(parts[:1], parts[1:])
    assert (found.low, found.high) == pytest.approx((0.2, 0.2), abs=1e-12)


@pytest.mark.slow
def test_a_board_of_thirty_models_takes_seconds():
    generator = np.random.default_rng(4)
    tables = [
        [ItemTable(generator.random((10, 256)), generator.random((10, 256)), None, 1.0)
         for _ in range(6)]
        for _ in range(30)
    ]
    started = cpu_seconds()
    for model in tables:
        bootstrap([lam_stratum(f"task-{k}", table) for k, table in enumerate(model)])
    assert cpu_seconds() - started < 10
