"""The label-swap test: against enumeration by hand, its invariances.

How often it errs is simulated in test_simulation.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    plain_mean,
    task_balanced_iqm,
    trimmed_mean,
    variance_parts,
)
from crlbench.stats.pair_statistics import Items, Summed
from crlbench.stats.step_down import Row, StepDown, measured
from crlbench.stats.swaps import (
    SWAP_SEED,
    Randomisation,
    _Pairs,
    draw_swaps,
    randomise,
)
from tests.support.clock import cpu_seconds

TASKS = ("addition", "counting", "key-value", "list-ops", "sorting", "maze")


def board(generator: np.random.Generator, models: int, sizes, rho: float = 0.3, effects=0.0):
    """Seeds of a task share the fraction rho of their variance over all models."""
    effects = np.broadcast_to(effects, (models,))
    return [
        0.1
        * (
            np.sqrt(rho) * generator.normal(size=n)
            + np.sqrt(1 - rho) * generator.normal(size=(models, n))
        )
        + effects[:, None]
        + generator.normal()
        for n in sizes
    ]


def run(values, **options) -> Randomisation:
    return randomise(values, TASKS[: len(values)], **options)


def swapped(values, i: int, j: int, coins) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two models' results with labels exchanged where the coin says so; plain Python."""
    first, second, at = [], [], 0
    for rows in values:
        a, b = list(rows[i]), list(rows[j])
        for seed in range(len(a)):
            if coins[at]:
                a[seed], b[seed] = b[seed], a[seed]
            at += 1
        first.append(a)
        second.append(b)
    return first, second


def by_hand(values) -> dict[tuple[int, int], np.ndarray]:
    """(2^blocks,) t of every pair under every swap, the data first."""
    blocks = sum(rows.shape[1] for rows in values)
    found = {}
    for i, j in itertools.combinations(range(len(values[0])), 2):
        t = np.array(
            [
                studentised(*swapped(values, i, j, coins))
                for coins in itertools.product((0, 1), repeat=blocks)
            ]
        )
        found[i, j] = t / np.sqrt(np.mean(t**2))
    return found


def studentised(first, second) -> float:
    """The difference of headlines over its standard error from paired seeds inside tasks."""
    tasks = [np.subtract(a, b) for a, b in zip(first, second, strict=True)]
    variance = sum(d.var(ddof=1) / len(d) for d in tasks) / len(tasks) ** 2
    from_zero = sum(np.mean(d**2) / (len(d) - 1) for d in tasks) / len(tasks) ** 2
    difference = task_balanced_iqm(first) - task_balanced_iqm(second)
    return difference / np.sqrt(max(variance, 0.01 * from_zero))


@pytest.mark.parametrize("sizes", [(5,), (4, 4), (3, 2, 5)])
def test_two_models_by_enumeration(sizes):
    values = board(np.random.default_rng(sum(sizes)), 2, sizes, effects=[0.0, 0.1])
    hand = by_hand(values)[0, 1]
    found = run(values)
    assert found.exact and found.replicates == 2 ** sum(sizes)
    headlines = [task_balanced_iqm([rows[m] for rows in values]) for m in (0, 1)]
    assert found.difference[0, 1] == pytest.approx(headlines[0] - headlines[1])
    assert found.t[0, 1] == pytest.approx(hand[0])
    p = np.mean(np.abs(hand) >= abs(hand[0]) - 1e-12)
    assert found.raw[0, 1] == found.adjusted[0, 1] == p
    assert found.smallest == 2 / 2 ** sum(sizes) <= p


def test_three_models_by_enumeration():
    values = board(np.random.default_rng(5), 3, (4, 5), effects=[0.0, 0.1, 0.15])
    t = by_hand(values)
    pairs = sorted(t, key=lambda pair: -abs(t[pair][0]))
    expected, floor = {}, 0.0
    for at, pair in enumerate(pairs):
        largest = np.max([np.abs(t[other]) for other in pairs[at:]], axis=0)
        floor = max(floor, float(np.mean(largest >= abs(t[pair][0]) - 1e-12)))
        expected[pair] = floor
    found = run(values)
    assert {pair: found.adjusted[pair] for pair in pairs} == pytest.approx(expected)
    assert len(set(expected.values())) == 3


@pytest.mark.parametrize("location", [trimmed_mean, plain_mean])
@pytest.mark.parametrize("sizes", [(6,), (4, 3)])
def test_one_pair_is_exact_whichever_swap_is_the_data(sizes, location):
    """If two models learn alike, every swap is as likely to be the data: p is uniform."""
    values = board(np.random.default_rng(15), 2, sizes, effects=[0.0, 0.3])
    every = list(itertools.product((0, 1), repeat=sum(sizes)))
    p = []
    for coins in every:
        parts = zip(*swapped(values, 0, 1, coins), strict=True)
        found = run([np.array(pair) for pair in parts], location=location)
        assert found.exact
        p.append(found.raw[0, 1])
    levels = np.unique(p)
    assert [np.mean(np.array(p) <= level) for level in levels] == pytest.approx(levels)
    assert len(levels) > len(every) / 8


def uneven(generator: np.random.Generator, better: float) -> list[np.ndarray]:
    """Ten seeds of two models; each is far ahead on two of four tasks, the first by more."""
    values = board(generator, 2, (10,) * 4)
    for rows, ahead in zip(values, (0.3, -0.3, 0.3, -0.3), strict=True):
        rows[0] += ahead + better
    return values


def test_headlines_are_told_apart_where_tasks_disagree():
    generator = np.random.default_rng(16)
    p = [run(uneven(generator, 0.15), replicates=500).raw[0, 1] for _ in range(60)]
    assert np.mean(np.array(p) <= 0.05) >= 0.9


@pytest.mark.slow
def test_equal_headlines_stay_equal_where_tasks_disagree():
    generator = np.random.default_rng(17)
    for location in (trimmed_mean, plain_mean):
        p = [
            run(uneven(generator, 0.0), location=location, replicates=300).raw[0, 1]
            for _ in range(400)
        ]
        assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("n", [2, 5, 8, 14])
@pytest.mark.parametrize("location", [trimmed_mean, plain_mean])
def test_the_quick_way_equals_the_plain_one(n: int, location):
    """Counting instead of sorting, and looking patterns up, change no number."""
    values = board(np.random.default_rng(n), 4, (n, n), effects=[0, 0, 0.1, 0.2])
    values[0][1] = values[0][0]
    quick = run(values, location=location, replicates=300)
    plain = run(values, location=lambda v: location(v), replicates=300)
    for name in ("difference", "t"):
        np.testing.assert_allclose(getattr(quick, name), getattr(plain, name), atol=1e-12)
    np.testing.assert_array_equal(quick.raw, plain.raw)
    np.testing.assert_array_equal(quick.adjusted, plain.adjusted)
    assert quick.exact == (n == 2)


def test_a_statistic_of_several_numbers_per_seed():
    generator = np.random.default_rng(3)
    values = [np.stack(board(generator, 3, (6, 6), effects=[0, 0, 1]), axis=-1) for _ in range(2)]

    def product(v: np.ndarray) -> np.ndarray:
        return v[..., 0].mean(axis=-1) * v[..., 1].max(axis=-1)

    found = run(values, location=product, replicates=500)
    expected = [product(rows[0]) - product(rows[2]) for rows in values]
    assert found.difference[0, 2] == pytest.approx(np.mean(expected))
    with np.errstate(all="ignore"), pytest.raises(ValidationError, match="not finite"):
        run(values, location=lambda v: product(v) / 0.0, replicates=10)


def test_matrices_are_mirrored_and_the_adjustment_never_helps():
    found = run(board(np.random.default_rng(1), 7, (5,) * 4, effects=np.arange(7) * 0.03))
    np.testing.assert_array_equal(found.difference, -found.difference.T)
    np.testing.assert_array_equal(found.t, -found.t.T)
    np.testing.assert_array_equal(found.adjusted, found.adjusted.T)
    assert (found.adjusted >= found.raw).all() and (found.adjusted > found.raw).any()
    assert (np.diag(found.adjusted) == 1).all()
    i, j = np.triu_indices(7, 1)
    order = np.argsort(-np.abs(found.t[i, j]))
    assert (np.diff(found.adjusted[i, j][order]) >= 0).all()
    assert not found.exact and found.smallest == 1 / found.replicates


def test_items_move_every_pair_as_they_move_its_difference():
    """Against one pair at a time; the last two models are one under two names."""
    generator = np.random.default_rng(14)
    models, count = 5, 400
    spread = generator.normal(1.0, [[0.5], [0.3], [0.4]], (models, 3, count))
    spread[-1] = spread[-2]
    first, second = np.triu_indices(models, 1)
    items = Items.of(spread, (first, second), count + 1)
    for pair, (a, b) in enumerate(zip(first, second, strict=True)):
        differences, tasks = generator.normal(size=count + 1), pair % 3 + 1
        wanted, variance = differences.copy(), 0.0
        drawn, by_seed, by_item = spread[a] - spread[b]
        moved, fixed = by_item - by_item.mean(), variance_parts(drawn, by_seed, by_item)[2]
        if moved.any():
            wanted[1:] += tasks * np.sqrt(min(1.0, fixed / moved.var())) * moved
            variance = tasks**2 * fixed
        whole = Summed(differences, 1.5, np.full(count + 1, 0.5), 0.0, tasks)
        items.move(pair, whole)
        np.testing.assert_allclose(whole.differences, wanted, atol=1e-12)
        assert whole.fixed == pytest.approx(variance, abs=1e-12)
        whole.studentise(0.0)
        t = wanted / np.sqrt(1.0 + variance)
        np.testing.assert_allclose(whole.differences, t / np.sqrt(np.mean(t**2)), atol=1e-12)


def test_pairs_are_stepped_down_as_their_whole_table_is():
    """Against the definition, pair by pair; some have no statistics, and two are equal."""
    table = np.random.default_rng(5).normal(size=(30, 400))
    table[:, 0] *= np.linspace(0.2, 4, 30)
    table[7] = table[21]
    unknown = {3, 4, 29}

    def fill(pairs: np.ndarray, out: np.ndarray) -> list[Row]:
        for place, pair in enumerate(pairs):
            out[place] = 0.0 if pair in unknown else table[pair]
        return [Row(0, np.nan) if pair in unknown else Row(2, 0.1 * pair) for pair in pairs]

    found, size = measured(fill, 30, 400, 0.05), np.abs(table)
    known = sorted(set(range(30)) - unknown, key=lambda pair: size[pair, 0])
    for place, pair in enumerate(known):
        steps = [
            (size[known[: k + 1]].max(axis=0) >= size[known[k], 0] - 1e-9).mean()
            for k in range(place, len(known))
        ]
        assert found.adjusted[pair] == max(steps)
        assert found.raw[pair] == (size[pair] >= size[pair, 0] - 1e-9).mean()
    assert 0 < (found.adjusted < 0.05).sum() < len(known)
    for pair in unknown:
        assert np.isnan([found.t[pair], found.raw[pair], found.adjusted[pair]]).all()
    staying = size[[pair for pair in known if found.adjusted[pair] > 0.05]].max(axis=0)
    assert found.critical == np.sort(staying)[400 - 1 - 20]
    assert found.t[0] == table[0, 0] and found.difference[5] == 0.5


def test_a_board_without_pairs_has_no_critical_value():
    found = measured(lambda pairs, out: [Row(0, np.nan)] * len(pairs), 3, 10, 0.05)
    assert np.isnan(found.adjusted).all() and np.isnan(found.critical)


def step_down(t: np.ndarray) -> np.ndarray:
    """Adjusted p-values of pairs from the smallest |t| to the largest."""
    down = StepDown(t.shape[1])
    for row in np.abs(t):
        down.add(row)
    return down.adjusted()


def test_step_down_spares_what_is_left():
    """The second pair is judged without the first, and never called surer than it."""
    t = np.array([[0.5, 1, 1, 1, 1, 1], [-2.0, 1, 1, 1, 1, 1], [4.0, 1, 1, -3, 3, 1]])
    assert step_down(t) == pytest.approx([1.0, 1 / 6, 1 / 6])
    found = measured(lambda pairs, out: _filled(t, pairs, out), 3, 6, 0.05)
    assert found.raw == pytest.approx([1.0, 1 / 6, 1 / 6])
    t[2] = [4.0, 4, -4, 1, 1, 1]
    assert step_down(t) == pytest.approx([1.0, 3 / 6, 3 / 6])
    t[0, 4] = -5
    assert step_down(t) == pytest.approx([1.0, 4 / 6, 4 / 6])


def _filled(t: np.ndarray, pairs: np.ndarray, out: np.ndarray) -> list[Row]:
    out[:] = t[pairs]
    return [Row(1, 0.0)] * len(pairs)


@pytest.mark.parametrize("most", [0, 5 * 8 * 400, 2**26])
def test_pairs_that_do_not_wait_in_memory_are_computed_again(monkeypatch, most):
    table = np.random.default_rng(15).normal(size=(30, 400))
    whole = measured(lambda *given: _filled(table, *given), 30, 400, 0.05)
    calls: list[int] = []
    monkeypatch.setattr("crlbench.stats.step_down.MOST_KEPT", most)

    def fill(pairs: np.ndarray, out: np.ndarray) -> list[Row]:
        calls.extend(pairs)
        return _filled(table, pairs, out)

    found = measured(fill, 30, 400, 0.05)
    assert len(calls) == 60 - min(30, most // (8 * 400))
    np.testing.assert_array_equal(found.adjusted, whole.adjusted)
    assert found.critical == whole.critical


def _same_test(found: Randomisation, whole: Randomisation) -> None:
    for name in ("difference", "t", "raw", "adjusted", "tasks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert found.critical == whole.critical and found.smallest == whole.smallest
    for name in ("starts", "columns", "values"):
        steps = (getattr(one.tested.measured.stairs, name) for one in (found, whole))
        np.testing.assert_array_equal(*steps)


@pytest.mark.parametrize("new", [[0], [4], [9], [2, 3, 7]])
@pytest.mark.parametrize("location", [trimmed_mean, plain_mean])
def test_a_test_of_more_models_takes_over_the_pairs_of_the_one_before(monkeypatch, new, location):
    """Bit for bit, and only pairs of a new model are computed."""
    generator = np.random.default_rng(16)
    values = board(generator, 10, (5,) * 4, effects=np.arange(10) * 0.05)
    values[0][6] = np.nan
    values[1][2, 3:] = np.nan
    values[2][5] = values[2][8]
    spread = generator.normal(0.5, 0.02, (10, 3, 500))
    old = np.delete(np.arange(10), new)
    given = {"location": location, "replicates": 500}
    names = [f"t{k}" for k in range(4)]
    before = randomise([rows[old] for rows in values], names, spread=spread[old], **given)
    whole = randomise(values, names, spread=spread, **given)
    computed: list[int] = []
    call = _Pairs.__call__

    def watched(self: _Pairs, pairs: np.ndarray, out: np.ndarray) -> list[Row]:
        computed.extend(pairs)
        return call(self, pairs, out)

    monkeypatch.setattr(_Pairs, "__call__", watched)
    found = randomise(values, names, spread=spread, before=(before.tested, old), **given)
    _same_test(found, whole)
    first, second = np.triu_indices(10, 1)
    with_new = np.flatnonzero(np.isin(first, new) | np.isin(second, new))
    assert sorted(computed) == with_new.tolist()


def test_a_test_that_draws_other_swaps_takes_over_nothing():
    generator = np.random.default_rng(17)
    values = board(generator, 6, (6,) * 4, effects=np.arange(6) * 0.05)
    names, spread = [f"t{k}" for k in range(4)], generator.normal(0.5, 0.02, (6, 3, 500))
    shorter = [rows[:5, :5] for rows in values]
    before = randomise(shorter, names, replicates=500, spread=spread[:5])
    whole = randomise(values, names, replicates=500, spread=spread)
    given = (before.tested, np.arange(5))
    found = randomise(values, names, replicates=500, spread=spread, before=given)
    _same_test(found, whole)


def test_a_far_larger_value_makes_earlier_differences_nothing():
    """What counts as 0 depends on the largest value of all."""
    generator = np.random.default_rng(18)
    values = board(generator, 4, (5,) * 4)
    values = [np.concatenate([rows, rows[:1] * 0 + 1e13]) for rows in values]
    names = [f"t{k}" for k in range(4)]
    before = randomise([rows[:4] for rows in values], names, replicates=500)
    whole = randomise(values, names, replicates=500)
    found = randomise(values, names, replicates=500, before=(before.tested, np.arange(4)))
    _same_test(found, whole)
    assert before.t[0, 1] != 0.0 == found.t[0, 1]


def test_order_of_the_models_does_not_matter():
    values = board(np.random.default_rng(2), 6, (5,) * 4, effects=np.arange(6) * 0.04)
    values = [np.round(rows, 2) for rows in values]
    order = np.array([3, 0, 5, 1, 4, 2])
    straight, mixed = run(values), run([rows[order] for rows in values])
    for name in ("raw", "adjusted"):
        np.testing.assert_array_equal(
            getattr(mixed, name), getattr(straight, name)[np.ix_(order, order)]
        )


def test_reproducible_and_other_models_change_no_difference_and_no_raw_p():
    values = board(np.random.default_rng(4), 5, (5,) * 4)
    np.random.seed(1)
    first = run(values)
    np.random.seed(2)
    again = run(values)
    fewer = run([rows[:3] for rows in values])
    np.testing.assert_array_equal(first.adjusted, again.adjusted)
    np.testing.assert_allclose(first.difference[:3, :3], fewer.difference, atol=1e-15)
    np.testing.assert_array_equal(first.raw[:3, :3], fewer.raw)
    assert (first.raw != run(values, seed=SWAP_SEED + 1).raw).any()


def test_swaps_start_with_the_data_and_are_all_there_are_where_few():
    drawn, exact = draw_swaps(("a", "b"), (2, 1), 8)
    whole = np.concatenate(drawn, axis=1)
    assert exact and len(np.unique(whole, axis=0)) == 8 and not whole[0].any()
    drawn, exact = draw_swaps(("a", "b"), (2, 2), 8)
    assert not exact and drawn[0].shape == (9, 2) and not drawn[0][0].any()
    longer, _ = draw_swaps(("b", "a"), (2, 2), 8)
    np.testing.assert_array_equal(drawn[0], longer[1])
    coins, _ = draw_swaps(("a",), (20,), 10_000)
    np.testing.assert_allclose(coins[0].mean(axis=0), 0.5, atol=0.03)


def test_shift_and_scale_change_nothing():
    values = board(np.random.default_rng(6), 4, (5,) * 3, effects=np.arange(4) * 0.05)
    base, moved = run(values), run([1000 + 7 * rows for rows in values])
    np.testing.assert_allclose(moved.t, base.t, atol=1e-9)
    np.testing.assert_array_equal(moved.adjusted, base.adjusted)


def test_a_wild_model_does_not_hide_that_two_quiet_ones_differ():
    generator = np.random.default_rng(7)
    quiet = board(generator, 2, (5,) * 4, effects=[0.0, 0.3])
    wild = [100 * rows for rows in board(generator, 6, (5,) * 4)]
    found = run([np.concatenate(parts) for parts in zip(quiet, wild, strict=True)])
    assert found.adjusted[0, 1] < 0.01


def test_equal_models_are_equal():
    values = board(np.random.default_rng(8), 2, (5,) * 4, effects=[0.0, 1.0])
    found = run([rows[[0, 0, 1]] for rows in values])
    assert (found.t[0, 1], found.raw[0, 1], found.adjusted[0, 1]) == (0.0, 1.0, 1.0)
    assert found.adjusted[0, 2] < 0.01


def test_pairs_are_compared_on_what_both_have():
    values = board(np.random.default_rng(9), 3, (5,) * 4, effects=[0.0, 0.1, 0.2])
    values[0][2] = np.nan
    values[1][1, 3:] = np.nan
    found = run(values)
    assert found.tasks.tolist() == [[0, 4, 3], [4, 0, 3], [3, 3, 0]]
    whole = np.mean([trimmed_mean(rows[0]) - trimmed_mean(rows[2]) for rows in values[1:]])
    assert found.difference[0, 2] == pytest.approx(whole)
    cut = [rows[:, :3] if k == 1 else rows for k, rows in enumerate(values)]
    part = np.mean([trimmed_mean(rows[0]) - trimmed_mean(rows[1]) for rows in cut])
    assert found.difference[0, 1] == pytest.approx(part)
    values[0][0] = values[1][2] = values[2][2] = values[3][2] = np.nan
    apart = run(values)
    assert apart.tasks[0, 2] == 0 and apart.reason is None
    assert np.isnan([apart.difference[0, 2], apart.t[0, 2], apart.adjusted[0, 2]]).all()
    assert np.isfinite(apart.adjusted[0, 1])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "no model"),
        ([np.ones((1, 5))] * 4, "one model"),
        ([np.ones((3, 1))] * 4, "fewer than 2 seeds"),
        ([np.array([[1.0, 1], [np.nan, np.nan]])], "no two models"),
    ],
)
def test_what_cannot_be_tested_is_said(values, reason: str):
    found = run(values)
    assert found.reason.startswith(reason)
    off = ~np.eye(len(found.adjusted), dtype=bool)
    assert np.isnan(found.adjusted[off]).all() and np.isnan(found.difference[off]).all()


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        ([np.ones((2, 3))], ("a", "b"), "1 tasks have values, but 2 have names"),
        ([np.ones((2, 3))] * 2, ("a", "a"), "more than once: a"),
        ([np.ones((2, 3)), np.ones((3, 3))], ("a", "b"), "task b: shape"),
        ([np.array([[1, np.nan, 1], [1, 1, 1]])], ("a",), "task a, model 0"),
        ([np.array([[1, 1, 1], [1, 1, np.inf]])], ("a",), "task a, model 1"),
    ],
)
def test_bad_input_is_refused(values, names, message: str):
    with pytest.raises(ValidationError, match=message):
        randomise(values, names)


def test_real_differences_are_found():
    generator = np.random.default_rng(12)
    hits = [
        run(board(generator, 6, (10,) * 4, effects=[0, 0, 0, 0, 0, 0.15]), replicates=400)
        .adjusted[5, :5]
        .max()
        <= 0.05
        for _ in range(30)
    ]
    assert np.mean(hits) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seconds"), [(10, 2.5), (20, 10)])
def test_a_board_of_thirty_models_takes_seconds(n: int, seconds: float):
    values = board(np.random.default_rng(13), 30, (n,) * 6)
    started = cpu_seconds()
    run(values)
    assert cpu_seconds() - started < seconds
