"""Replicates: fast paths against plain ones, and noise that counts once."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats

from crlbench.stats.derivatives import derivative, gen_blocks, sum_clusters
from crlbench.stats.intervals import (
    Interval,
    Replicates,
    item_weights,
    plain_mean,
    replicate,
    seed_index,
    times_drawn,
    trimmed_mean,
)
from crlbench.stats.measures import ItemTable
from crlbench.stats.paired import paired
from crlbench.stats.paired_error import differences, paired_error
from crlbench.stats.resampling import (
    POSITIONS,
    Rows,
    _means,
    axis_interval,
    efficiency_replicates,
    linear_replicates,
    mean_rows,
    over_tasks,
    rescale,
    stability_replicates,
    trimmed_rows,
    wider_interval,
)
from crlbench.stats.stability_shares import headline, shares, swapped_differences
from tests.support.simulate import lam_stratum

COUNT = 500


def table(generator: np.random.Generator, n: int = 5, items: int = 32) -> ItemTable:
    head = np.repeat(generator.random((1, items)), n, axis=0)
    return ItemTable(0.3 * generator.random((n, items)), head, None, 1.0)


@pytest.mark.parametrize("location", ["trimmed", "mean"])
@pytest.mark.parametrize("same_start", [True, False])
def test_efficiency_is_the_crossed_bootstrap(location: str, same_start: bool):
    generator = np.random.default_rng(3)
    items = table(generator)
    if not same_start:
        items = ItemTable(items.learned, generator.random(items.head.shape), None, 1.0)
    plain, rows = {"trimmed": (trimmed_mean, trimmed_rows), "mean": (plain_mean, mean_rows)}[
        location
    ]
    slow = replicate(lam_stratum("addition", items), plain, COUNT)
    fast = efficiency_replicates("addition", items, location=rows, count=COUNT)
    assert fast.location == pytest.approx(slow.location, abs=1e-14)
    for name in ("drawn", "seeds", "items"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), atol=2e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("rows", [trimmed_rows, mean_rows])
def test_resampled_seeds_are_counted_and_not_sorted(rows: Rows, n: int):
    values = np.random.default_rng(n).normal(size=n).round(1)
    index = seed_index("t", n, COUNT).T
    found = rows.resampled(values, times_drawn("t", n, COUNT))
    np.testing.assert_allclose(found, rows(values[index]), atol=1e-14)


def test_a_mean_over_seeds_needs_no_resampled_rows():
    generator = np.random.default_rng(12)
    values, n = generator.normal(size=5), 5
    blocks = {size: generator.normal(size=(n, size)) for size in (8, 20)}
    moved = [
        item_weights(POSITIONS, size, COUNT) @ (rows - rows.mean(axis=1, keepdims=True)).T
        for size, rows in blocks.items()
    ]
    by_weight = values + sum(moved)
    index = seed_index("t", n, COUNT)
    found = linear_replicates("t", values, blocks, COUNT)
    np.testing.assert_allclose(found.seeds, values[index].mean(axis=1), atol=1e-14)
    np.testing.assert_allclose(found.items, by_weight.mean(axis=1), atol=2e-6)
    drawn = np.take_along_axis(by_weight, index, axis=1).mean(axis=1)
    np.testing.assert_allclose(found.drawn, drawn, atol=2e-6)


def test_noise_of_single_answers_counts_once():
    """Seeds, items and answers with known variances; n x N answers of a mean."""
    generator = np.random.default_rng(11)
    n, items, found = 10, 100, []
    for _ in range(40):
        effects = 0.05 * generator.normal(size=(n, 1)) + 0.3 * generator.normal(size=(1, items))
        rows = effects + 1.0 * generator.normal(size=(n, items))
        part = linear_replicates("t", rows.mean(axis=1), {items: rows}, 2000)
        found.append((over_tasks([part]).var(), part.drawn.var()))
    once, thrice = np.mean(found, axis=0)
    seeds, item, noise = 0.05**2 / n, 0.3**2 / items, 1.0 / (n * items)
    assert once == pytest.approx(seeds * 0.9 + item + noise, rel=0.15)
    assert thrice == pytest.approx(seeds * 0.9 + item + 3 * noise, rel=0.15)


def test_the_wider_interval_is_wider():
    generator = np.random.default_rng(5)
    parts = [
        linear_replicates(f"t{k}", generator.normal(0.3 * k, 0.1, 5), {}, COUNT) for k in range(4)
    ]
    inner, outer = axis_interval(parts), wider_interval(parts, COUNT)
    assert outer.low < inner.low and outer.high > inner.high
    alike = [linear_replicates(f"t{k}", parts[0].values, {}, COUNT) for k in range(4)]
    inner, outer = axis_interval(alike), wider_interval(alike, COUNT)
    assert outer.low <= inner.low and outer.high >= inner.high
    assert wider_interval(parts[:3], COUNT) is None  # too few to know how tasks differ
    assert axis_interval(parts[:1]) is not None
    one = [linear_replicates(f"t{k}", np.array([0.1]), {}, COUNT) for k in range(4)]
    assert axis_interval(one) is None


def test_the_wider_interval_of_stability_is_one_of_stabilities():
    """Tasks of unequal stability put the end that normal theory gives above 1."""
    generator = np.random.default_rng(7)
    gains = [generator.normal(0.6, spread, 5) for spread in (0.005, 0.005, 0.005, 0.25)]
    columns = [np.array([gain, np.zeros(5), gain, np.zeros(5), np.zeros(5)]) for gain in gains]
    parts = [stability_replicates(f"t{k}", own, COUNT) for k, own in enumerate(columns)]
    free = wider_interval([dataclasses.replace(part, bounds=None) for part in parts], COUNT)
    found = wider_interval(parts, COUNT)
    assert free.high > 1.0 and found == dataclasses.replace(free, high=1.0)


def test_another_unit():
    part = linear_replicates("t", np.arange(5.0), {}, COUNT)
    assert axis_interval([rescale(part, 0.5)]).high == pytest.approx(axis_interval([part]).high / 2)


def lam(before: np.ndarray, after: np.ndarray, weights: np.ndarray) -> float:
    start, end = float(weights @ before), float(weights @ after)
    return (end - start) / max(1.0 - start, 0.2)


@pytest.mark.parametrize("shift", [0.0, 0.9])
def test_the_derivative_is_the_slope(shift: float):
    """On both sides of the clamp of the headroom."""
    generator = np.random.default_rng(2)
    before = np.clip(generator.random(40) * 0.5 + shift, 0, 1)
    after = generator.random(40)
    even, step = np.full(40, 1 / 40), 1e-6
    slope = derivative(before, after)
    for _ in range(5):
        direction = generator.normal(size=40)
        direction -= direction.mean()
        ends = [lam(before, after, even + s * step * direction) for s in (1, -1)]
        assert slope @ direction == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_five_templates_are_one_cluster():
    rows = np.arange(12.0)
    assert sum_clusters(rows) == pytest.approx(np.array([10.0, 35.0, 21.0]) * 3 / 12)


def test_gen_adds_up_over_splits():
    generator = np.random.default_rng(9)
    half = (generator.random(60) < 0.3).astype(float), (generator.random(60) < 0.6).astype(float)
    names = ("id", "hard", "format", "transfer/a", "transfer/b")
    kept = {"copy": (half[0], half[0]), "text": (half[1], half[0])}
    blocks = gen_blocks(dict.fromkeys(names, half), kept)
    slope = derivative(*half)
    lost = (half[1] - half[0]) / 2
    np.testing.assert_allclose(blocks[60], 0.75 * slope - lost)
    np.testing.assert_allclose(blocks[12], 0.25 * sum_clusters(slope))
    gone = gen_blocks(dict.fromkeys(names, (half[0], None)), {})
    np.testing.assert_allclose(gone[60], 0.75 * derivative(half[0], None))


def test_a_member_that_neither_lost_nor_won_moves_gen_half_as_much():
    """The slope of the positive part at its kink, as a difference of both sides has it."""
    before, after = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 1.0, 1.0, 0.0])
    still = dict.fromkeys(("id", "hard", "format", "transfer/a"), (np.zeros(4), np.zeros(4)))

    def minus_fgt(weights: np.ndarray) -> float:
        return -max(0.0, float(weights @ (before - after)))

    slope = gen_blocks(still, {"copy": (before, after)}, unchanged=0.5)[4]
    even, step = np.full(4, 0.25), 1e-3
    for direction in (np.array([1.0, 0.0, -1.0, 0.0]), np.array([3.0, -1.0, -1.0, -1.0])):
        ends = [minus_fgt(even + sign * step * direction) for sign in (1, -1)]
        assert slope @ direction == pytest.approx((ends[0] - ends[1]) / (2 * step))
    assert not gen_blocks(still, {"copy": (before, after)})[4].any()


def seeds_of(generator: np.random.Generator, n: int, heads: bool) -> np.ndarray:
    head = generator.normal(0.2, 0.02, n) if heads else np.full(n, 0.2)
    ends = head + generator.normal(0.3, 0.2, n)
    return np.stack(
        [
            ends,
            head,
            generator.normal(0.4, 0.1, n),
            generator.random(n) * 0.1,
            (generator.random(n) < 0.2).astype(float),
        ],
        axis=1,
    )


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("heads", [True, False])
def test_stability_under_swaps_without_sorting(n: int, heads: bool):
    generator = np.random.default_rng(n)
    a, b = seeds_of(generator, n, heads), seeds_of(generator, n, heads)
    swaps = generator.integers(0, 2, (n, 64)).astype(bool)
    mine = np.concatenate([~swaps, swaps]).astype(np.int16)
    expected = []
    for column in swaps.T:
        first = np.where(column[:, None], b, a)
        second = np.where(column[:, None], a, b)
        expected.append(headline(shares(*first.T)) - headline(shares(*second.T)))
    np.testing.assert_allclose(swapped_differences(a, b, mine), expected, atol=1e-12)


@pytest.mark.parametrize("heads", [True, False])
def test_stability_is_recentred_and_uses_the_shares(heads: bool):
    columns = seeds_of(np.random.default_rng(8), 10, heads).T
    part = stability_replicates("addition", columns, COUNT)
    assert part.location == pytest.approx(float(headline(shares(*columns))))
    assert part.drawn.mean() == pytest.approx(part.location)
    index = seed_index("addition", 10, COUNT)
    plain = headline(shares(*(column[index] for column in columns)))
    np.testing.assert_allclose(part.drawn - part.location, plain - plain.mean(), atol=1e-12)


def test_the_interval_of_stability_is_students_on_the_scale_of_what_is_missing():
    generator = np.random.default_rng(4)
    parts = [
        stability_replicates(f"t{k}", seeds_of(generator, 5, False).T, COUNT) for k in range(4)
    ]
    value = np.mean([part.location for part in parts])
    found = axis_interval(parts)
    assert found.low < value < found.high < 1
    assert (1 - found.low) * (1 - found.high) == pytest.approx((1 - value) ** 2)
    variances = np.array([part.drawn.var() * 5 / 4 for part in parts]) / 16
    df = math.floor(variances.sum() ** 2 / (variances**2 / 4).sum())
    error = math.sqrt(variances.sum()) / (1 - value)
    wanted = scipy.stats.t.ppf(0.975, df) * error
    assert math.log((1 - found.low) / (1 - value)) == pytest.approx(wanted)


def of_seeds(values: np.ndarray, items: float = 0.0) -> Replicates:
    """A task of protocol CRL-2 whose replicates have just the variance of a bootstrapped mean;
    ``items`` is the standard deviation that the items of all tasks bring together."""
    drawn, shared = np.array([-1.0, 1.0] * 100), items * np.repeat([-1.0, 1.0], 100)
    middle = values.mean()
    by_seed = middle + drawn * values.std() / np.sqrt(len(values))
    return Replicates(values, middle, by_seed + shared, by_seed, middle + shared, rule="variance")


def test_the_interval_of_one_task_is_students():
    values = np.random.default_rng(6).normal(0.3, 0.05, 5)
    found = axis_interval([of_seeds(values)])
    t = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((t.low, t.high), abs=1e-12)
    assert axis_interval([of_seeds(values[:3])]) is None


def test_items_widen_an_interval_as_known_and_seeds_as_few():
    draw = np.random.default_rng(6)
    parts = [of_seeds(draw.normal(0.3, 1e-6, 3), 0.02) for _ in range(4)]
    found = axis_interval(parts)
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * 0.02, rel=1e-5)
    seeds = [draw.normal(0.3, 0.05, 3) for _ in range(4)]
    found = axis_interval([of_seeds(values) for values in seeds])
    variances = np.array([values.var(ddof=1) / 3 for values in seeds]) / 16
    df = variances.sum() ** 2 / (variances**2 / 2).sum()
    wanted = scipy.stats.t.ppf(0.975, df) * math.sqrt(variances.sum())
    assert (found.high - found.low) / 2 == pytest.approx(wanted)


def test_a_difference_of_one_task_has_students_paired_interval():
    values = np.random.default_rng(7).normal(0.3, 0.05, (2, 6))
    base, arm = (
        dataclasses.replace(linear_replicates("t", row, {}, COUNT), rule="variance")
        for row in values
    )
    found = paired([base], [arm], 0.05)
    wanted = scipy.stats.ttest_rel(values[1], values[0])
    for interval, level in ((found.interval, 0.95), (found.inner, 0.90)):
        ends = wanted.confidence_interval(level)
        assert interval.high - interval.low == pytest.approx(ends.high - ends.low, rel=0.05)
        assert interval.level == level


def test_items_of_one_side_widen_a_difference_and_shared_ones_do_not():
    draw = np.random.default_rng(8)
    seeds = draw.normal(0.3, 0.02, (2, 4, 5))
    for items, adds in (((0.0, 0.0), 0.0), ((0.1, 0.1), 0.0), ((0.1, 0.0), 0.1)):
        base, arm = (
            [of_seeds(values, own) for values in side]
            for side, own in zip(seeds, items, strict=True)
        )
        found, apart = paired(base, arm, 0.05), differences(base, arm)
        error, df = paired_error(apart, [5] * 4)
        own = math.sqrt(sum(np.var(part.seeds) * 5 / 4 for part in apart)) / 4
        assert error == pytest.approx(math.hypot(own, adds))
        half = scipy.stats.t.ppf(0.975, df) * error
        assert found.interval.high - found.value == pytest.approx(half)


def test_replicates_of_two_protocols_make_no_interval():
    first = of_seeds(np.linspace(0.2, 0.4, 5))
    with pytest.raises(ValueError, match="percentile, variance"):
        paired([first], [dataclasses.replace(first, rule="percentile")], 0.05)


def test_intervals_of_stability_stay_where_stabilities_are():
    generator = np.random.default_rng(4)
    wild = [stability_replicates("t", seeds_of(generator, 5, False).T, COUNT) for _ in range(2)]
    wild = [dataclasses.replace(p, drawn=10 * (p.drawn - p.location) + p.location) for p in wild]
    assert axis_interval(wild[:1]).low == 0.0
    effect = paired(wild[:1], wild[1:], 0.05)
    assert (effect.interval.low, effect.interval.high) == (-1.0, 1.0)


def test_a_perfect_stability_has_no_width():
    columns = np.array([[0.5] * 5, [0.1] * 5, [0.4] * 5, [0.0] * 5, [0.0] * 5])
    part = stability_replicates("t", columns, COUNT)
    perfect = dataclasses.replace(part, location=1.0, drawn=np.ones(COUNT), seeds=np.ones(COUNT))
    assert axis_interval([perfect]) == Interval(1.0, 1.0)


def test_a_difference_of_stabilities_has_students_interval():
    generator = np.random.default_rng(5)
    base, arm = (
        [stability_replicates(f"t{k}", seeds_of(generator, 6, False).T, COUNT) for k in range(3)]
        for _ in range(2)
    )
    found = paired(base, arm, 0.05)
    variances = np.array([(a.drawn - b.drawn).var() for a, b in zip(arm, base, strict=True)])
    variances *= 6 / 5 / 9
    df = math.floor(variances.sum() ** 2 / (variances**2 / 5).sum())
    for interval, level in ((found.interval, 0.95), (found.inner, 0.90)):
        width = scipy.stats.t.ppf(0.5 + level / 2, df) * math.sqrt(variances.sum())
        assert interval.high - found.value == pytest.approx(width)
        assert found.value - interval.low == pytest.approx(width)
        assert interval.level == level


@pytest.mark.parametrize("tasks", [1, 4, 5, 7, 8, 13])
def test_means_over_drawn_tasks_are_numpys_to_the_last_bit(tasks: int):
    generator = np.random.default_rng(tasks)
    values, index = generator.normal(size=tasks), generator.integers(0, tasks, (1000, tasks))
    for given in (index, np.asfortranarray(index)):
        np.testing.assert_array_equal(_means(values, given), values[index].mean(axis=1))
