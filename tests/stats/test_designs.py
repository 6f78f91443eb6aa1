"""The mean of a design over its checkpoints, and the difference of two."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import board_squares, design_table, read_layout
from crlbench.stats.design_draws import checkpoint_weights, draw_design
from crlbench.stats.design_pool import LEAST_CROSSED
from crlbench.stats.designs import (
    Design,
    design_difference,
    design_mean,
    design_replicates,
)
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
    g = stats.skew(tasks) * (between / (own + between)) ** 1.5 * np.sqrt(4 / 6)
    wanted = (
        means.mean() - half * np.exp(max(0.0, -g)),
        means.mean() + half * np.exp(max(0.0, g)),
    )
    assert ends(design_mean(design, count=COUNT).wider) == pytest.approx(wanted)


def test_a_difference_is_paired_by_corpus_order() -> None:
    """Orders are the same documents for both designs; initialisations are not. Student's t of the
    differences, whatever the numbers of the initialisations and the order of the checkpoints."""
    base, design = make("a", THREE), make("b", ("i5o2", "i0o1", "i3o0"), key=1)
    a, b = base.seeds.mean(axis=(1, 2)), design.seeds.mean(axis=(1, 2))[::-1]
    wanted = stats.t.interval(0.95, 2, loc=(b - a).mean(), scale=stats.sem(b - a))
    found = design_difference(base, design)
    assert ends(found.interval) == pytest.approx(wanted)
    assert (found.df, found.error) == pytest.approx((2, stats.sem(b - a)))
    assert (found.about, found.checkpoints, found.of_designs) == ("two designs", 3, True)
    back = design_difference(design, base)
    assert ends(back.interval) == pytest.approx((-found.interval.high, -found.interval.low))


def test_without_common_orders_a_difference_is_welchs() -> None:
    base, design = make("a", THREE), make("b", ("i0o3", "i1o4", "i2o5", "i3o6"), key=1)
    a, b = (one.seeds.mean(axis=(1, 2)) for one in (base, design))
    welch = stats.ttest_ind(b, a, equal_var=False)
    found = design_difference(base, design)
    assert ends(found.interval) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert found.df == pytest.approx(welch.df)


@pytest.mark.parametrize("labels", [THREE, SIX, ("i0o1", "i1o1", "i2o1")])
def test_an_order_that_moves_all_designs_moves_no_difference(labels: tuple[str, ...]) -> None:
    designs = [make(name, labels, key=key) for key, name in enumerate("abcde")]
    orders = np.array([int(label[-1]) for label in labels])
    moved = [
        Design(one.name, labels, one.tasks, one.seeds + 3.0 * orders[:, None, None], mean_rows)
        for one in designs
    ]
    for others in (slice(2, 2), slice(2, None)):
        ours = design_difference(*designs[:2], designs[others])
        theirs = design_difference(*moved[:2], moved[others])
        assert ours.reason == theirs.reason
        assert (ours.interval is None) == (labels == SIX and others.stop == 2)
        if ours.interval is not None:
            assert ends(theirs.interval) == pytest.approx(ends(ours.interval))
            assert ends(theirs.wider) == pytest.approx(ends(ours.wider))


def test_crossed_checkpoints_pool_their_mean_squares() -> None:
    """The mean: the union of what is the design's own, and of the orders alone with t of 1, which
    leaves out 1.4 times the tail of 5 %."""
    designs = [make(name, SIX, key=key) for key, name in enumerate("abcde")]
    tables = np.stack(
        [design_table(one.seeds.mean(axis=(1, 2)), read_layout(SIX)) for one in designs]
    )
    squares = board_squares(tables)
    for place, one in enumerate(designs):
        found = design_mean(one, [other for other in designs if other is not one], count=COUNT)
        own = squares.of_mean.variance * max(1.0, squares.ratios[place])
        shared = max(0.0, squares.order - squares.parts[1]) / 30
        half = max(
            stats.t.ppf(0.975, squares.of_mean.df) * np.sqrt(own),
            stats.t.ppf(0.965, 1) * np.sqrt(shared),
        )
        assert (found.warning is not None) == (squares.spread_p[place] < 0.05)
        if squares.spread_p[place] < 0.3:
            # It has its own degrees of freedom.
            assert found.error**2 == pytest.approx(own + shared) and found.df < 10
            continue
        assert ends(found.interval) == pytest.approx((found.value - half, found.value + half))
        assert found.error**2 == pytest.approx(own + shared)
    board = design_difference(*designs[:2], others=designs[2:])
    ratio = max(1.0, squares.ratios[:2].mean())
    assert board.error**2 == pytest.approx(2 * squares.of_mean.variance * ratio)
    assert board.df == pytest.approx(float(squares.of_mean.df))
    half = stats.t.ppf(0.975, board.df) * board.error
    assert ends(board.interval) == pytest.approx((board.value - half, board.value + half))
    assert board.value == pytest.approx(designs[1].value - designs[0].value)


@pytest.mark.parametrize("labels", [THREE, ("i0o1", "i1o1", "i2o1")])
def test_other_designs_are_pooled_where_they_are_given(labels: tuple[str, ...]) -> None:
    """By the mean square of the design x order table, or of checkpoints inside designs."""
    designs = [make(name, labels, key=key) for key, name in enumerate("abcd")]
    means = np.array([one.seeds.mean(axis=(1, 2)) for one in designs])
    rest = means - means.mean(axis=1, keepdims=True)
    if labels == THREE:
        rest = rest - rest.mean(axis=0)
    df = 3 * 2 if labels == THREE else 4 * 2
    own = (rest**2).sum(axis=1)
    # The two that vary least have no variance of their own.
    designs = [designs[place] for place in np.argsort(own)]
    found = design_difference(*designs[:2], designs[2:])
    assert found.df == pytest.approx(df)
    assert found.error**2 == pytest.approx(2 * own.sum() / df / 3)
    alone = design_difference(*designs[:2])
    assert alone.df < df and alone.error != pytest.approx(found.error)


def test_what_cannot_be_known_is_refused() -> None:
    alone = design_mean(make("a", SIX), count=COUNT)
    assert alone.interval is None and alone.wider is None
    assert alone.reason == (
        "a: 1 designs with 3 x 2 checkpoints; their variance is known from 4 designs with the same "
        "crossing on"
    )
    assert alone.checkpoints == 6 and not alone.of_designs
    assert alone.value == pytest.approx(make("a", SIX).seeds.mean())
    # Another crossing is no help, and neither are too few designs.
    few = [make(name, SIX, key=key) for key, name in enumerate("abc")]
    assert LEAST_CROSSED == 4
    for others in ([make("b", SIX[:4], key=1), *few[2:]], few[1:]):
        assert design_mean(few[0], others, count=COUNT).interval is None
        assert "from 4 designs" in design_difference(few[0], others[0], others[1:]).reason or (
            "not pooled" in design_difference(few[0], others[0], others[1:]).reason
        )
    ragged = design_mean(make("a", SIX[:5]), count=COUNT)
    assert "neither independent" in ragged.reason
    assert "neither independent" in design_difference(make("a", SIX[:5]), make("b", THREE)).reason
    single = design_difference(make("a", THREE), make("b", ("i0o0",)))
    assert single.interval is None and not single.of_designs
    assert single.reason == "b: one checkpoint, which says nothing about its design"
    short = design_mean(make("a", THREE, tasks=3), count=COUNT)
    assert short.interval is not None and short.wider is None and "at least 4" in short.wider_reason


def test_a_pool_counts_each_design_once_and_a_difference_is_on_the_same_tasks() -> None:
    designs = [make(name, SIX, key=key) for key, name in enumerate("abcd")]
    twice, longer = make("b", SIX, key=7), make("e", SIX, tasks=5)
    for others, message in (
        ([*designs[1:], twice], "designs b: named twice"),
        ([*designs[1:], designs[0]], "designs a: named twice"),
    ):
        with pytest.raises(ValidationError, match=message):
            design_mean(designs[0], others, count=COUNT)
        with pytest.raises(ValidationError, match=message):
            design_difference(designs[0], others[0], others[1:])
    with pytest.raises(ValidationError, match="named twice"):
        design_difference(designs[0], designs[0], designs[1:])
    with pytest.raises(ValidationError, match=r"designs a and e: their tasks are not .*t4"):
        design_difference(*designs[:2], [*designs[2:], longer])
    found = design_mean(designs[0], [*designs[1:], longer], count=COUNT)
    assert found.interval is not None and found.wider is not None


def test_pooled_intervals_end_at_the_level_that_is_simulated() -> None:
    designs = [make(name, SIX, key=key) for key, name in enumerate("abcd")]
    for found in (
        design_mean(designs[0], designs[1:], level=0.99),
        design_difference(*designs[:2], designs[2:], level=0.951),
    ):
        assert found.interval is None and found.wider is None
        assert "not simulated above 95%" in found.reason
    # Student's t of independent checkpoints is exact at any level.
    assert design_difference(make("a", THREE), make("b", THREE, key=1), level=0.99).interval


LEVELS = (0.5, 0.8, 0.9, 0.94, 0.95, 0.9501, 0.96, 0.97, 0.99, 0.999)


@pytest.mark.parametrize("labels", [("i0o0",), THREE, SIX])
@pytest.mark.parametrize("tasks", [4, 6])
def test_a_higher_level_holds_a_lower_one(labels: tuple[str, ...], tasks: int) -> None:
    designs = [make(name, labels, tasks, 5, key) for key, name in enumerate("abcd")]
    levels = LEVELS if labels != SIX else [level for level in LEVELS if level <= 0.95]
    means = [design_mean(designs[0], designs[1:], COUNT, level=level) for level in levels]
    gaps = [design_difference(*designs[:2], designs[2:], level=level) for level in levels]
    cases = (means, gaps) if len(labels) > 1 else (means,)
    for found in cases:
        found = [one for one in found if one.interval is not None]
        assert len(found) >= 5
        for inner, outer in itertools.pairwise(found):
            for kind in ("interval", "wider"):
                (a, b), (c, d) = (ends(getattr(one, kind)) for one in (inner, outer))
                assert c < a and b < d


def test_one_checkpoint_speaks_of_itself_alone() -> None:
    design = make("a", ("i2o1",), tasks=5, seeds=5)
    found = design_mean(design, count=COUNT)
    variances = design.seeds[0].var(axis=1, ddof=1) / 5 / 25
    df = variances.sum() ** 2 / (variances**2 / 4).sum()
    half = stats.t.ppf(0.975, df) * np.sqrt(variances.sum())
    assert found.interval.high - found.value == pytest.approx(half, rel=0.1)
    assert found.value - found.interval.low == pytest.approx(found.interval.high - found.value)
    assert found.wider.low <= found.interval.low and found.wider.high >= found.interval.high
    wide = interval_over_tasks(design.seeds[0].mean(axis=1), count=COUNT).interval
    assert found.wider.low <= wide.low + 1e-9 and found.wider.high >= wide.high - 1e-9
    assert (found.about, found.of_designs) == ("one checkpoint (i2o1)", False)
    little = design_mean(make("a", ("i0o0",), seeds=2), count=COUNT)
    assert little.interval is None and "2 seeds" in little.reason


def test_one_corpus_order_or_initialisation_is_said_so() -> None:
    """The interval is about the design on this order; no sentence on the design rests on it."""
    on_order, from_start = ("i0o1", "i1o1", "i2o1"), ("i2o0", "i2o1", "i2o2")
    for labels, about in (
        (on_order, "the design on corpus order 1"),
        (from_start, "the design from initialisation 2"),
    ):
        found = design_mean(make("a", labels), count=COUNT)
        assert found.about == about and found.df == 2
        assert found.interval is not None and not found.of_designs
        pair = design_difference(make("a", labels), make("b", labels, key=1))
        assert pair.about == "two designs" + about.removeprefix("the design")
        assert pair.interval is not None and not pair.of_designs
    between = design_difference(make("b", THREE), make("a", on_order))
    assert between.about == "the design on corpus order 1 minus the design"
    assert not between.of_designs


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
    a, b, *rest = (make(name, SIX, key=key) for key, name in enumerate("abcd"))
    mean, between = design_mean(a, [b, *rest]), design_difference(a, b, rest)
    for estimate, sides in ((mean, (a,)), (between, (b, a))):
        drawn = design_replicates(estimate, *sides, count=COUNT)
        assert (drawn.std(), drawn.mean()) == pytest.approx((estimate.error, estimate.value))
    # Draws of two designs on one order share nothing but seeds.
    on_order = ("i0o0", "i1o0", "i2o0")
    raw = [draw_design(make(name, on_order, key=key), 4000) for key, name in enumerate("ab")]
    assert abs(np.corrcoef(raw)[0, 1]) < 0.1
    with pytest.raises(ValidationError, match="no replicates without a standard error .a: 1 des"):
        design_replicates(design_mean(a), a)


def test_checkpoints_are_drawn_crossed() -> None:
    """The weight of a checkpoint is that of its initialisation times that of its order."""
    weights = checkpoint_weights("a", read_layout(SIX), 3000)
    assert weights.sum(axis=0) == pytest.approx(np.ones(3000))
    table = design_table(weights.T, read_layout(SIX))
    by_start, by_order = table.sum(axis=2), table.sum(axis=1)
    assert table == pytest.approx(by_start[:, :, None] * by_order[:, None, :], abs=1e-6)
    assert set(np.round(by_order.ravel() * 2)) == {0, 1, 2}
    assert set(np.round(by_start.ravel() * 3)) == {0, 1, 2, 3}
    assert weights.mean(axis=1) == pytest.approx(np.full(6, 1 / 6), abs=0.01)
    # Another design meets the same draws of orders, and has its own of initialisations.
    other = design_table(checkpoint_weights("b", read_layout(SIX), 3000).T, read_layout(SIX))
    assert other.sum(axis=1) == pytest.approx(by_order)
    assert (other.sum(axis=2) != by_start).any()
    ours, theirs = (checkpoint_weights(name, read_layout(THREE), 50) for name in "ab")
    assert (ours == theirs).all()
    with pytest.raises(ValidationError, match="design a: checkpoints .* neither independent"):
        checkpoint_weights("a", read_layout(SIX[:5]), 50)
    # One order alone is never drawn.
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
    with pytest.raises(ValidationError, match="tasks are not the same"):
        design_difference(make("a", THREE), make("b", THREE, tasks=5))


@pytest.mark.parametrize(("labels", "tasks"), [(THREE, 4), (SIX, 8)])
def test_means_and_differences_are_covered(labels: tuple[str, ...], tasks: int) -> None:
    """800 boards with the spreads of mini, on these tasks and over others."""
    generator = np.random.default_rng([11, tasks])
    names = tuple(f"t{k}" for k in range(tasks))
    hits = np.zeros(4)
    boards, count = 800, len(labels)
    for _ in range(boards):
        own = 0.22 * generator.normal(size=tasks) + 0.18 * generator.normal(size=(4, tasks))
        runs = own[:, None, :, None] + 0.1 * generator.normal(size=(4, count, 1, 1))
        runs = runs + 0.05 * generator.normal(size=(4, count, tasks, 1))
        runs = runs + 0.014 * generator.normal(size=(4, count, tasks, 3))
        designs = [
            Design(*part) for part in zip("abcd", [labels] * 4, [names] * 4, runs, strict=True)
        ]
        mean = design_mean(designs[0], designs[1:])
        between = design_difference(*designs[:2], designs[2:])
        here, gap = own[0].mean(), (own[1] - own[0]).mean()
        for place, (interval, truth) in enumerate(
            ((mean.interval, here), (mean.wider, 0), (between.interval, gap), (between.wider, 0))
        ):
            hits[place] += interval.low <= truth <= interval.high
    assert ((hits / boards >= 0.915) & (hits / boards <= 0.995)).all(), hits / boards
