"""One variance of checkpoints from several designs, and all pairs of a board."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import board_squares
from crlbench.stats.design_pairs import design_pairs
from crlbench.stats.design_pool import make_pool
from crlbench.stats.designs import Design, design_difference, design_mean
from crlbench.stats.minimum_effect import minimum_effect_tiers
from crlbench.stats.resampling import mean_rows

SIX = tuple(f"i{i}o{o}" for i in range(3) for o in range(2))
THREE = ("i0o0", "i1o1", "i2o2")
TASKS = tuple(f"t{k}" for k in range(4))


def board(
    labels: tuple[str, ...], spreads: list[float], key: int = 0, tasks: tuple[str, ...] = TASKS
) -> list[Design]:
    generator = np.random.default_rng([key, len(labels)])
    return [
        Design(
            f"d{place}",
            labels,
            tasks,
            0.5
            + spread * generator.normal(size=(len(labels), 1, 1))
            + 0.01 * generator.normal(size=(len(labels), len(tasks), 3)),
            mean_rows,
        )
        for place, spread in enumerate(spreads)
    ]


def test_a_design_that_varies_more_has_its_own_variance() -> None:
    """As long as the F test does not say so: then its degrees of freedom are the pool's."""
    pools = (make_pool(board(THREE, [0.1] * 4, key)) for key in range(100))
    pool = next(one for one in pools if one.squares.spread_p.min() > 0.3)
    ratios = pool.squares.ratios
    high, low = int(ratios.argmax()), int(ratios.argmin())
    common = float(pool.squares.of_mean.variance)
    assert pool.warn(pool.names) is None and ratios[high] > 1 > ratios[low]
    assert float(pool.of_mean(f"d{high}").variance) == pytest.approx(common * ratios[high])
    assert float(pool.of_mean(f"d{low}").variance) == pytest.approx(common)
    both = max(1.0, (ratios[high] + ratios[low]) / 2)
    found = pool.of_difference(f"d{high}", f"d{low}")
    assert float(found.variance) == pytest.approx(2 * common * both)
    assert float(found.df) == 6.0


@pytest.mark.parametrize("labels", [THREE, SIX, ("i0o0", "i1o0", "i2o0")])
def test_a_design_that_varies_far_more_has_its_own_degrees_and_a_warning(
    labels: tuple[str, ...],
) -> None:
    designs = board(labels, [0.5, *[0.02] * 7])
    pool = make_pool(designs)
    ratios, own_df = pool.squares.ratios, float(pool.squares.own_df)
    common = float(pool.squares.of_mean.variance)
    mean = pool.of_mean("d0")
    assert float(mean.variance) == pytest.approx(common * ratios[0])
    assert float(mean.df) == pytest.approx(max(1.0, own_df))
    found = design_difference(designs[0], designs[1], designs[2:])
    assert found.warning.startswith("d0: checkpoints vary more") and "F test" in found.warning
    welch = ratios[:2].sum() ** 2 / (ratios[:2] ** 2).sum() * own_df
    assert found.df == pytest.approx(max(1.0, welch))
    assert found.error**2 == pytest.approx(common * ratios[:2].sum())
    others = design_difference(designs[1], designs[2], [designs[0], *designs[3:]])
    assert others.warning is None and others.error < found.error
    warning = design_mean(designs[0], designs[1:], count=100).warning
    assert (warning is None) == (labels != SIX)
    pairs = design_pairs(designs)
    assert set(pairs.warnings) == {(0, place) for place in range(1, 8)}


@pytest.mark.parametrize(("labels", "least"), [(("i0o0", "i1o0", "i2o0"), 0.04), (SIX, 0.02)])
def test_designs_alike_are_warned_of_as_often_as_the_test_says(
    labels: tuple[str, ...], least: float
) -> None:
    """1,000 boards of eight designs: each in 5 %, exactly where no order is taken off."""
    tables = np.random.default_rng(5).normal(size=(1000, 8, 3, len(labels) // 3))
    found = (board_squares(tables).spread_p < 0.05).mean()
    assert least <= found <= 0.06


def test_pairs_are_the_pooled_differences() -> None:
    designs = board(SIX, [0.1] * 5)
    pairs = design_pairs(designs)
    assert pairs.values == pytest.approx([one.value for one in designs])
    assert not pairs.reasons and np.diag(pairs.errors).tolist() == [0.0] * 5
    others = [designs[0], designs[2], designs[4]]
    found = design_difference(designs[1], designs[3], others)
    assert pairs.errors[1, 3] == pairs.errors[3, 1] == pytest.approx(found.error)
    assert pairs.df[1, 3] == pairs.df[3, 1] == pytest.approx(found.df)
    assert np.isnan(np.diag(pairs.df)).all()


def test_pairs_that_are_refused_say_why_and_break_no_tier() -> None:
    designs = board(SIX, [0.001] * 5)
    designs = [
        Design(one.name, one.labels, one.tasks, one.seeds - 0.2 * place, mean_rows)
        for place, one in enumerate(designs)
    ]
    single = Design("single", ("i0o0",), TASKS, designs[0].seeds[:1] - 2.0, mean_rows)
    pairs = design_pairs([*designs, single])
    assert sorted(pairs.reasons) == [(place, 5) for place in range(5)]
    assert pairs.reasons[0, 5] == "single: one checkpoint, which says nothing about its design"
    assert np.isnan(pairs.errors[:5, 5]).all() and np.isfinite(pairs.errors[:5, :5]).all()
    found = minimum_effect_tiers(pairs.values, pairs.errors, pairs.df, 0.05, has_one_variance=True)
    assert found.tier.tolist() == [1] * 6 and found.beats[0, 1:5].all()
    alone = minimum_effect_tiers(
        pairs.values[:5], pairs.errors[:5, :5], pairs.df[:5, :5], 0.05, has_one_variance=True
    )
    assert alone.tier.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ValidationError, match="named twice"):
        design_pairs([designs[0], designs[0]])


@pytest.mark.slow
@pytest.mark.parametrize("labels", [THREE, SIX, ("i0o0", "i1o0", "i2o0")])
def test_equal_designs_are_seldom_separated(labels: tuple[str, ...]) -> None:
    """600 boards of eight designs, orders that move all, no margin. With a variance for each pair
    of crossed designs 13 to 29 % are separated falsely."""
    generator, boards, wrong = np.random.default_rng(6), 600, 0
    orders = np.unique([int(label[-1]) for label in labels], return_inverse=True)[1]
    for _ in range(boards):
        runs = 0.05 * generator.normal(size=(8, len(labels), 1, 1)).repeat(4, axis=2)
        runs = runs + 0.1 * generator.normal(size=len(labels))[orders, None, None]
        designs = [
            Design(f"d{place}", labels, TASKS, rows, mean_rows) for place, rows in enumerate(runs)
        ]
        pairs = design_pairs(designs)
        tiers = minimum_effect_tiers(
            pairs.values, pairs.errors, pairs.df, 0.0, has_one_variance=True
        )
        wrong += tiers.beats.any()
    assert stats.beta.ppf(0.025, wrong + 1, boards - wrong + 1) < 0.05
    assert wrong / boards < 0.075
