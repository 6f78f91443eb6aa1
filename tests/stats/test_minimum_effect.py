"""Minimum-effect tiers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.minimum_effect import (
    MinimumEffect,
    break_tiers,
    critical,
    minimum_effect_tiers,
    pair_degrees,
    pair_errors,
)
from crlbench.stats.rank_over_tasks import bar
from crlbench.stats.resampling import linear_replicates, spread


def even(models: int, error: float) -> np.ndarray:
    return np.full((models, models), error)


def test_bounds_of_two_are_students() -> None:
    found = minimum_effect_tiers([0.3, 0.4], even(2, 0.02), 16, 0.05)
    reach = stats.t.ppf(0.975, 16) * 0.02
    assert found.low[1, 0] == pytest.approx(0.1 - reach)
    assert found.high[1, 0] == pytest.approx(0.1 + reach)
    assert found.low[0, 1] == pytest.approx(-found.high[1, 0])


def test_a_tier_breaks_only_where_the_bound_exceeds_the_margin() -> None:
    reach = bar(3, 17) * 0.01
    for gap, tiers in ((0.05 + reach - 1e-6, [1, 1, 1]), (0.05 + reach + 1e-6, [1, 1, 2])):
        found = minimum_effect_tiers([0.5, 0.5, 0.5 - gap], even(3, 0.01), 16, 0.05)
        assert found.tier.tolist() == tiers
    plain = minimum_effect_tiers([0.5, 0.5, 0.5 - reach - 1e-6], even(3, 0.01), 16, 0.0)
    assert plain.tier.tolist() == [1, 1, 2] and plain.ranks.tolist() == [[1, 2], [1, 2], [3, 3]]


def test_a_chain_breaks_where_the_anchor_is_separated() -> None:
    """Steps of .05 with narrow bounds: each neighbour is near, and nobody is equivalent."""
    values = np.linspace(0.6, 0.2, 9)
    found = minimum_effect_tiers(values, even(9, 0.005), 30, 0.05)
    assert found.low[0, 1] < 0.05 < found.low[0, 2]
    assert found.tier.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert found.anchors == (0, 2, 4, 6, 8)
    assert found.ranks[0].tolist() == [1, 9 - found.beats[0].sum()]


def test_equivalent_neighbours_stay_in_one_tier() -> None:
    """Steps of .02: neighbours are equivalent, and first and last far apart."""
    values = 0.6 - 0.02 * np.arange(9)
    found = minimum_effect_tiers(values, even(9, 0.005), 30, 0.05)
    assert found.beats[0, 8] and found.tier.tolist() == [1] * 9
    nobody = np.zeros((9, 9), dtype=bool)
    broken = minimum_effect_tiers(values, even(9, 0.005), 30, 0.05, equivalent=nobody)
    assert broken.tier.max() == 3


def test_entries_stand_by_estimate_and_equal_ones_by_name() -> None:
    values, errors = [0.2, 0.9, 0.2, 0.5], even(4, 0.01)
    found = minimum_effect_tiers(values, errors, 30, 0.05, names=["d", "b", "a", "c"])
    assert found.order == (1, 3, 2, 0)
    assert found.tier.tolist() == [3, 1, 3, 2] and found.anchors == (1, 3, 2)
    assert minimum_effect_tiers(values, errors, 30, 0.05).order == (1, 3, 0, 2)
    with pytest.raises(ValidationError, match="each needs its own"):
        minimum_effect_tiers(values, errors, 30, 0.05, names=["a", "b", "a", "c"])


def permuted(
    found: MinimumEffect, names: list[str], place: tuple[int, ...]
) -> tuple[dict[str, int], list[str], list[str]]:
    """Tiers, order and anchors by name, of entries that came in another order."""
    by_place = [names[at] for at in place]
    tiers = dict(zip(by_place, found.tier.tolist(), strict=True))
    return (
        tiers,
        [by_place[at] for at in found.order],
        [by_place[at] for at in found.anchors],
    )


def test_tiers_do_not_depend_on_the_order_in_which_equal_entries_come() -> None:
    """Two share the first place; one of them beats all that are below, the other does not."""
    values, names = np.array([0.6, 0.6, 0.4, 0.4, 0.2]), list("abcde")
    errors = even(5, 0.01)
    errors[1, :] = errors[:, 1] = 0.08
    seen = []
    for place in itertools.permutations(range(5)):
        at = np.array(place)
        found = minimum_effect_tiers(
            values[at], errors[np.ix_(at, at)], 30, 0.05, names=[names[k] for k in place]
        )
        seen.append(permuted(found, names, place))
        without = minimum_effect_tiers(values[at], errors[np.ix_(at, at)], 30, 0.05)
        assert permuted(without, names, place)[0] == seen[0][0]
    assert all(one == seen[0] for one in seen)
    # b does not beat c and d, so a does not part from them either.
    tiers = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 2}
    assert seen[0] == (tiers, ["a", "b", "c", "d", "e"], ["a", "e"])


def test_the_verdicts_of_the_page_decide_who_beats_whom() -> None:
    values, errors = [0.9, 0.5, 0.1], even(3, 0.01)
    free = minimum_effect_tiers(values, errors, 30, 0.05)
    assert free.tier.tolist() == [1, 2, 3]
    better = np.triu(np.ones((3, 3), dtype=bool), 1)
    assert minimum_effect_tiers(values, errors, 30, 0.05, better=better).tier.tolist() == [1, 2, 3]
    # The page calls the first two undecided: they are not parted, and their ranks overlap.
    better[0, 1] = False
    found = minimum_effect_tiers(values, errors, 30, 0.05, better=better)
    assert found.tier.tolist() == [1, 1, 2] and not found.beats[0, 1] and found.low[0, 1] > 0.05
    assert found.ranks.tolist() == [[1, 2], [1, 2], [3, 3]]


def test_no_pair_is_in_two_tiers_and_equivalent() -> None:
    """Over random boards, with the equivalence of the same errors; and by hand."""
    generator = np.random.default_rng(0)
    broken = 0
    for _ in range(300):
        values = generator.normal(0.5, 0.15, 8)
        errors = even(8, float(generator.uniform(0.002, 0.03)))
        found = minimum_effect_tiers(values, errors, 16, 0.05)
        two = found.tier[:, None] != found.tier
        reach = stats.t.ppf(0.95, 16) * errors
        gaps = np.abs(values[:, None] - values)
        equivalent = gaps + reach <= 0.05
        broken += two.any()
        assert not (two & equivalent).any()
        # And every anchor is separated from all lower tiers.
        for anchor in found.anchors:
            assert found.beats[anchor, found.tier > found.tier[anchor]].all()
    assert broken > 100
    said = np.zeros((2, 2), dtype=bool)
    assert (
        minimum_effect_tiers([0.9, 0.1], even(2, 0.01), 16, 0.05, equivalent=said).tier.max() == 2
    )
    said[0, 1] = said[1, 0] = True
    assert (
        minimum_effect_tiers([0.9, 0.1], even(2, 0.01), 16, 0.05, equivalent=said).tier.max() == 1
    )


def test_pairs_that_are_not_compared_break_nothing() -> None:
    errors = even(3, 0.001)
    errors[0, 2] = errors[2, 0] = np.nan
    found = minimum_effect_tiers([0.9, 0.5, 0.1], errors, 16, 0.05)
    assert found.tier.tolist() == [1, 1, 1] and np.isnan(found.low[0, 2])
    assert found.beats[0, 1] and found.beats[1, 2]


def test_degrees_of_freedom_may_differ_by_pair() -> None:
    df = np.array([[np.nan, 4.9, 200], [4.9, np.nan, 16], [200, 16, np.nan]])
    bars = critical(3, df)
    assert bars[0, 1] == bar(3, 5) and bars[1, 2] == bar(3, 17) and bars[0, 2] == bar(3, 61)
    # Between two steps the bar is that of the lower one.
    between = critical(3, np.array([8.0, 9.99, 10.0 - 1e-9, 17.0, 0.5]))
    assert between.tolist() == [bar(3, 9), bar(3, 9), bar(3, 11), bar(3, 17), bar(3, 2)]
    assert critical(1, 16) == 0
    assert critical(3, np.array([np.inf, 61.0])).tolist() == [bar(3, 61)] * 2


@pytest.mark.parametrize("models", [2, 5, 8])
def test_with_one_variance_the_bar_is_tukeys(models: int) -> None:
    tukey = stats.studentized_range.ppf(0.95, models, 12) / np.sqrt(2)
    found = critical(models, 12.7, has_one_variance=True)
    assert float(found) == pytest.approx(tukey)
    assert models == 2 or float(found) < float(critical(models, 12.7))
    reach = minimum_effect_tiers(np.zeros(models), even(models, 0.01), 12, 0, has_one_variance=True)
    assert reach.high[0, 1] == pytest.approx(0.01 * tukey)


def test_breaks_need_the_anchor_and_no_equivalent_pair() -> None:
    beats = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    nobody, order = np.zeros((3, 3), dtype=bool), np.array([0, 1, 2])
    values = np.array([0.9, 0.5, 0.1])
    assert break_tiers(order, beats, nobody, values)[0].tolist() == [1, 2, 2]
    # The anchor must be separated from everyone below, also from one with a larger error.
    beats[0, 2] = False
    assert break_tiers(order, beats, nobody, values)[0].tolist() == [1, 1, 1]
    beats[0] = [0, 0, 1]
    assert break_tiers(order, beats, nobody, values)[0].tolist() == [1, 1, 2]
    alike = nobody.copy()
    alike[1, 2] = alike[2, 1] = True
    tiers, anchors = break_tiers(order, beats, alike, values)
    assert tiers.tolist() == [1, 1, 1] and anchors == (0,)


def test_degrees_of_freedom_are_those_of_welch_and_satterthwaite() -> None:
    """Of one task those of a paired t; of tasks with equal spreads the sum; of one task that alone
    brings variance its own; without any limit where items bring nearly all."""
    generator = np.random.default_rng(2)
    seeds = generator.normal(size=(3, 1, 6))
    errors = np.abs(generator.normal(size=(3, 3)))
    for i, j in ((0, 1), (1, 2)):
        errors[i, j] = stats.sem(seeds[i, 0] - seeds[j, 0])
    found = pair_degrees(seeds, errors)
    assert found[0, 1] == pytest.approx(5) and found[1, 2] == pytest.approx(5)
    # More error than the seeds bring comes from items.
    errors[0, 1] *= 10
    assert pair_degrees(seeds, errors)[0, 1] == pytest.approx(5 * 10**4)
    d = np.array([0.1, 0.2, 0.3, 0.4])
    alike = np.stack([np.tile(d, (4, 1)), np.zeros((4, 4))])
    none = np.zeros((2, 2))
    assert pair_degrees(alike, none)[0, 1] == pytest.approx(12)
    alike[0, 1:] = 0.0
    assert pair_degrees(alike, none)[0, 1] == pytest.approx(3)
    assert np.isinf(pair_degrees(alike, none)[0, 0])
    gap = np.full((2, 2), np.nan)
    assert np.isnan(pair_degrees(alike, gap)[0, 1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValidationError, match="finite estimate"):
        minimum_effect_tiers([0.1, np.nan], even(2, 0.1), 3, 0.05)
    with pytest.raises(ValidationError, match="one is needed for each pair"):
        minimum_effect_tiers([0.1, 0.2], even(3, 0.1), 3, 0.05)
    with pytest.raises(ValidationError, match="must not be below 0"):
        minimum_effect_tiers([0.1, 0.2], even(2, -0.1), 3, 0.05)
    with pytest.raises(ValidationError, match="at least 2 seeds"):
        pair_errors(np.zeros((2, 3, 10)), 1)


def test_errors_of_pairs_are_those_of_paired_seeds() -> None:
    """On seeds alone: the standard error of the mean of the paired differences, in the limit of
    many replicates."""
    generator = np.random.default_rng(5)
    names, n = ("a", "b", "c", "d"), 6
    common = generator.normal(0, 0.05, (4, n))
    seeds = common + generator.normal(0, 0.02, (3, 4, n))
    parts = [
        [linear_replicates(name, row, {}, 20_000) for name, row in zip(names, rows, strict=True)]
        for rows in seeds
    ]
    found = pair_errors(np.stack([spread(rows) for rows in parts]), n)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        d = seeds[i] - seeds[j]
        wanted = np.sqrt((d.var(axis=1, ddof=1) / n).sum()) / 4
        assert found[i, j] == pytest.approx(wanted, rel=0.02)
    assert np.diag(found).tolist() == [0.0] * 3


def test_errors_of_pairs_hold_the_items_once() -> None:
    """S + N of the seeds and I of the items: see intervals.split_variance."""
    generator = np.random.default_rng(6)
    both, seeds, items = (generator.normal(0, size, (2, 5000)) for size in (0.05, 0.03, 0.04))
    spreads = np.stack([both, seeds, items], axis=1)
    t, s, i = (np.var(part[0] - part[1]) for part in (both, seeds, items))
    noise = max(0.0, t - s - i)
    wanted = s * 5 / 4 + max(0.0, i - noise)
    assert pair_errors(spreads, 5)[0, 1] == pytest.approx(np.sqrt(wanted), rel=1e-6)


@pytest.mark.parametrize("gaps", [(0,) * 6, (0, 0, 0, 0.05, 0.05, 0.05)])
def test_false_separations_are_rare(gaps: tuple[float, ...]) -> None:
    """1,500 boards of six models, five seeds on four tasks. The hypothesis at its limit: no
    difference, and a difference of the margin."""
    generator, margin = np.random.default_rng(7), max(gaps)
    true, wrong = np.array(gaps), []
    for _ in range(1500):
        seeds = true[:, None, None] + generator.normal(0, 0.014, (6, 4, 5))
        d = seeds[:, None] - seeds
        errors = np.sqrt((d.var(axis=-1, ddof=1) / 5).sum(axis=-1)) / 4
        found = minimum_effect_tiers(seeds.mean(axis=(1, 2)), errors, 16, margin)
        wrong.append((found.beats & (true[:, None] - true <= margin)).any())
    assert np.mean(wrong) < 0.07
