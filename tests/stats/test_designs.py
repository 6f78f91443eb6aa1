"""The mean of a design over its checkpoints, and the difference of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import crossed_table, crossed_variance, read_layout
from crlbench.stats.design_draws import checkpoint_weights, draw_design
from crlbench.stats.designs import (
    Design,
    design_difference,
    design_mean,
    design_replicates,
)
from crlbench.stats.intervals import Stratum, bootstrap, plain_mean
from crlbench.stats.resampling import mean_rows
from crlbench.stats.task_sample import interval_over_tasks

COUNT = 500
SIX = tuple(f"i{i}o{o}" for i in range(3) for o in range(2))
THREE = ("i0o0", "i1o1", "i2o2")


def make(
    name: str, labels: Sequence[str], tasks: int = 4, seeds: int = 3, key: int = 0, **more
) -> Design:
    generator = np.random.default_rng([key, len(labels), tasks, seeds])
    count = len(labels)
    table = 0.5 + 0.1 * generator.normal(size=(count, 1, 1))
    table = table + 0.2 * generator.normal(size=(1, tasks, 1))
    table = table + 0.02 * generator.normal(size=(count, tasks, seeds))
    names = tuple(f"t{k}" for k in range(tasks))
    return Design(name, tuple(labels), names, table, location=mean_rows, **more)


def ends(found) -> tuple[float, float]:
    return found.low, found.high


def test_three_checkpoints_have_students_interval_of_their_means() -> None:
    design = make("a", THREE)
    means = design.seeds.mean(axis=(1, 2))
    found = design_mean(design, count=COUNT)
    wanted = stats.t.interval(0.95, 2, loc=means.mean(), scale=stats.sem(means))
    assert ends(found.interval) == pytest.approx(wanted)
    assert (found.value, found.error, found.df) == pytest.approx(
        (design.seeds.mean(), stats.sem(means), 2)
    )
    assert (found.about, found.checkpoints, found.of_designs) == ("the design", 3, True)


def test_the_wider_interval_adds_the_tasks() -> None:
    """Satterthwaite's degrees of freedom, by hand; six tasks have the usual level."""
    design = make("a", THREE, tasks=6, key=3)
    means, tasks = design.seeds.mean(axis=(1, 2)), design.seeds.mean(axis=(0, 2))
    own, between = stats.sem(means) ** 2, stats.sem(tasks) ** 2
    df = (own + between) ** 2 / (own**2 / 2 + between**2 / 5)
    half = stats.t.ppf(0.975, df) * np.sqrt(own + between)
    g = stats.skew(tasks) * (between / (own + between)) ** 1.5
    wanted = (
        means.mean() - half * np.exp(max(0.0, -g)),
        means.mean() + half * np.exp(max(0.0, g)),
    )
    assert ends(design_mean(design, count=COUNT).wider) == pytest.approx(wanted)


def test_a_difference_of_independent_checkpoints_is_welchs() -> None:
    base, design = make("a", THREE), make("b", SIX[:1] + ("i1o1", "i2o2", "i3o3"), key=1)
    a, b = (one.seeds.mean(axis=(1, 2)) for one in (base, design))
    welch = stats.ttest_ind(b, a, equal_var=False)
    found = design_difference(base, design)
    assert ends(found.interval) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert found.df == pytest.approx(welch.df)
    assert (found.about, found.checkpoints) == ("two designs", 3)
    back = design_difference(design, base)
    assert ends(back.interval) == pytest.approx((-found.interval.high, -found.interval.low))


def test_crossed_checkpoints_pool_their_mean_squares() -> None:
    designs = [make(name, SIX, key=key) for key, name in enumerate("abc")]
    tables = np.stack(
        [crossed_table(one.seeds.mean(axis=(1, 2)), read_layout(SIX)) for one in designs]
    )
    found = design_mean(designs[0], designs[1:], count=COUNT)
    pooled = crossed_variance(tables)
    assert found.error == pytest.approx(float(np.sqrt(pooled.variance)))
    assert found.df == pytest.approx(float(pooled.df))
    pair = crossed_variance(tables[:2])
    between = design_difference(*designs[:2])
    assert between.error == pytest.approx(float(np.sqrt(2 * pair.variance)))
    assert between.df == pytest.approx(float(pair.df))
    board = design_difference(*designs[:2], others=designs[2:])
    assert board.error == pytest.approx(float(np.sqrt(2 * pooled.variance)))
    assert board.df == pytest.approx(float(pooled.df)) and board.value == between.value
    half = stats.t.ppf(0.975, between.df) * between.error
    assert ends(between.interval) == pytest.approx((between.value - half, between.value + half))


def test_what_cannot_be_known_is_refused() -> None:
    alone = design_mean(make("a", SIX), count=COUNT)
    assert alone.interval is None and alone.wider is None and "two designs" in alone.reason
    assert alone.checkpoints == 6 and not alone.of_designs
    assert alone.value == pytest.approx(make("a", SIX).seeds.mean())
    # Another crossing is no help.
    other = design_mean(make("a", SIX), [make("b", SIX[:4], key=1)], count=COUNT)
    assert other.interval is None
    ragged = design_mean(make("a", SIX[:5]), count=COUNT)
    assert "neither independent" in ragged.reason
    single = design_difference(make("a", THREE), make("b", ("i0o0",)))
    assert single.interval is None and not single.of_designs
    assert single.reason == "b: one checkpoint, which says nothing about its design"
    few = design_mean(make("a", THREE, tasks=3), count=COUNT)
    assert few.interval is not None and few.wider is None and "at least 4" in few.wider_reason


def test_one_checkpoint_speaks_of_itself_alone() -> None:
    design = make("a", ("i2o1",), tasks=5, seeds=5)
    found = design_mean(design, count=COUNT)
    strata = [Stratum(task, row) for task, row in zip(design.tasks, design.seeds[0], strict=True)]
    inner = bootstrap(strata, plain_mean, COUNT)
    assert found.interval.low <= inner.low and found.interval.high >= inner.high
    variances = design.seeds[0].var(axis=1, ddof=1) / 5 / 25
    df = int(variances.sum() ** 2 / (variances**2 / 4).sum())
    half = stats.t.ppf(0.975, df) * np.sqrt(variances.sum())
    assert found.interval.high - found.value == pytest.approx(half, rel=0.15)
    wide = interval_over_tasks(design.seeds[0].mean(axis=1), count=COUNT).interval
    assert found.wider.low <= wide.low + 1e-9 and found.wider.high >= wide.high - 1e-9
    assert (found.about, found.of_designs) == ("one checkpoint (i2o1)", False)
    little = design_mean(make("a", ("i0o0",), seeds=2), count=COUNT)
    assert little.interval is None and "2 seeds" in little.reason


def test_one_corpus_order_is_said_so() -> None:
    found = design_mean(make("a", ("i0o1", "i1o1", "i2o1")), count=COUNT)
    assert found.about == "the design on corpus order 1" and found.df == 2
    between = design_difference(make("b", THREE), make("a", ("i0o1", "i1o1", "i2o1")))
    assert between.about == "the design on corpus order 1 minus the design"


def test_items_widen_the_interval_and_count_once() -> None:
    generator = np.random.default_rng(4)
    items = [0.5 + generator.normal(0, 0.05, COUNT) for _ in range(2)]
    plain, noisy = make("a", THREE), make("a", THREE, items=items[0])
    own = design_mean(plain, count=COUNT)
    found = design_mean(noisy, count=COUNT)
    assert found.error**2 == pytest.approx(own.error**2 + np.var(items[0]))
    other = make("b", THREE, key=1, items=items[1])
    alone = design_difference(plain, make("b", THREE, key=1))
    both = design_difference(noisy, other)
    assert both.error**2 == pytest.approx(alone.error**2 + np.var(items[1] - items[0]))
    # Two designs that answer alike under every draw of items lose nothing.
    same = design_difference(noisy, make("b", THREE, key=1, items=items[0]))
    assert same.error == pytest.approx(alone.error)
    with pytest.raises(ValidationError, match="500 replicates over items and 400 draws"):
        draw_design(noisy, 400)


def test_replicates_have_the_spread_of_the_error() -> None:
    a, b = make("a", SIX), make("b", SIX, key=1)
    mean, between = design_mean(a, [b]), design_difference(a, b)
    for estimate, sides in ((mean, (a,)), (between, (b, a))):
        drawn = design_replicates(estimate, *sides, count=COUNT)
        assert (drawn.std(), drawn.mean()) == pytest.approx((estimate.error, estimate.value))
    # Draws of two designs that share nothing but seeds are independent.
    raw = [draw_design(one, 4000) for one in (a, b)]
    assert abs(np.corrcoef(raw)[0, 1]) < 0.1
    with pytest.raises(ValidationError, match="no replicates without a standard error .a: the var"):
        design_replicates(design_mean(a), a)


def test_checkpoints_are_drawn_crossed() -> None:
    """The weight of a checkpoint is that of its initialisation times that of its order."""
    weights = checkpoint_weights("a", read_layout(SIX), 3000)
    assert weights.sum(axis=0) == pytest.approx(np.ones(3000))
    table = crossed_table(weights.T, read_layout(SIX))
    by_start, by_order = table.sum(axis=2), table.sum(axis=1)
    assert table == pytest.approx(by_start[:, :, None] * by_order[:, None, :], abs=1e-6)
    assert set(np.round(by_order.ravel() * 2)) == {0, 1, 2}
    assert set(np.round(by_start.ravel() * 3)) == {0, 1, 2, 3}
    assert weights.mean(axis=1) == pytest.approx(np.full(6, 1 / 6), abs=0.01)
    # Another design has draws of its own; one order alone is never drawn.
    assert (checkpoint_weights("b", read_layout(SIX), 3000) != weights).any()
    assert checkpoint_weights("a", read_layout(["i0o0"]), 5).tolist() == [[1.0] * 5]
    one = checkpoint_weights("a", read_layout(["i0o1", "i1o1"]), 3000)
    assert set(np.unique(one)) == {0.0, 0.5, 1.0}


def test_the_bootstrap_has_the_variance_of_its_parts() -> None:
    """Of independent checkpoints and of seeds, each as if drawn alone and both at once."""
    design = make("a", THREE, seeds=4, key=5)
    drawn = draw_design(design, 20_000)
    means = design.seeds.mean(axis=(1, 2))
    assert drawn.mean() == pytest.approx(means.mean(), abs=0.002)
    assert drawn.var() == pytest.approx(means.var() / 3, rel=0.03)
    np.testing.assert_array_equal(drawn, draw_design(design, 20_000))
    # Checkpoints alike: what is left are the seeds, which all of them share by their index.
    shared = design.seeds[:1].repeat(3, axis=0)
    alike = Design("a", THREE, design.tasks, shared, location=mean_rows)
    assert draw_design(alike, 20_000).var() == pytest.approx(
        (shared[0].var(axis=1) / 4).sum() / 16, rel=0.03
    )


def test_runs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match="3 checkpoints and 4 tasks"):
        Design("a", THREE, ("t0", "t1", "t2", "t3"), np.zeros((3, 3, 2)))
    with pytest.raises(ValidationError, match="missing or infinite"):
        Design("a", ("i0o0",), ("t0",), np.full((1, 1, 3), np.nan))
    with pytest.raises(ValidationError, match="the same tasks"):
        design_difference(make("a", THREE), make("b", THREE, tasks=5))


@pytest.mark.parametrize(("labels", "tasks"), [(THREE, 4), (SIX, 8)])
def test_means_and_differences_are_covered(labels: tuple[str, ...], tasks: int) -> None:
    """800 boards with the spreads of mini, on these tasks and over others."""
    generator = np.random.default_rng([11, tasks])
    names = tuple(f"t{k}" for k in range(tasks))
    hits = np.zeros(4)
    boards, count = 800, len(labels)
    for _ in range(boards):
        own = 0.22 * generator.normal(size=tasks) + 0.18 * generator.normal(size=(2, tasks))
        runs = own[:, None, :, None] + 0.1 * generator.normal(size=(2, count, 1, 1))
        runs = runs + 0.05 * generator.normal(size=(2, count, tasks, 1))
        runs = runs + 0.014 * generator.normal(size=(2, count, tasks, 3))
        a, b = (Design(name, labels, names, rows) for name, rows in zip("ab", runs, strict=True))
        mean, between = design_mean(a, [b]), design_difference(a, b)
        here, gap = own[0].mean(), (own[1] - own[0]).mean()
        for place, (interval, truth) in enumerate(
            ((mean.interval, here), (mean.wider, 0), (between.interval, gap), (between.wider, 0))
        ):
            hits[place] += interval.low <= truth <= interval.high
    assert ((hits / boards >= 0.915) & (hits / boards <= 0.995)).all(), hits / boards
