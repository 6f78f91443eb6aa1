"""How the checkpoints of a design vary."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import (
    board_squares,
    design_table,
    independent_variance,
    most_regular,
    read_layout,
)

SIX = [f"i{i}o{o}" for i in range(3) for o in range(2)]


@pytest.mark.parametrize(
    ("labels", "plan", "about", "is_of_design"),
    [
        (["i0o0"], "one", "one checkpoint (i0o0)", False),
        (["i0o0", "i1o1", "i2o2"], "independent", "the design", True),
        (["i0o1", "i1o1", "i2o1"], "one order", "the design on corpus order 1", False),
        (["i4o0", "i4o1"], "one initialisation", "the design from initialisation 4", False),
        (SIX, "crossed", "the design", True),
        (SIX[:5], "irregular", "the design", False),
        (["i0o0", "i1o0", "i2o1"], "irregular", "the design", False),
    ],
)
def test_labels_say_how_checkpoints_hang_together(
    labels: list[str], plan: str, about: str, is_of_design: bool
) -> None:
    layout = read_layout(labels)
    assert (layout.plan, layout.about, layout.is_of_design) == (plan, about, is_of_design)
    assert (layout.refusal is not None) == (plan == "irregular")


def test_pooled_designs_share_plan_number_and_orders() -> None:
    six = read_layout(SIX).crossing
    assert six == ("crossed", 3, (0, 1))
    # Initialisations have nothing in common between designs; corpus orders do.
    assert read_layout([label.replace("i2", "i7") for label in SIX]).crossing == six
    assert read_layout([label.replace("o1", "o2") for label in SIX]).crossing != six
    assert read_layout(SIX[:4]).crossing != six


def test_labels_that_name_nothing_are_refused() -> None:
    for labels in (["i0"], ["o0i0"], ["i0o0 "], ["i-1o0"]):
        with pytest.raises(ValidationError, match="as in i0o1"):
            read_layout(labels)
    for labels in ([], ["i0o0", "i0o0"], ["i0o0", "i00o0"]):
        with pytest.raises(ValidationError, match="at least one, and each once"):
            read_layout(labels)


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (("i0o0", "i1o1", "i2o2"), (0, 1, 2)),
        (("i0o0", "i1o1", "i2o2", "i2o0"), (0, 1, 2)),
        (("i2o0", "i0o0", "i1o1", "i2o2"), (1, 2, 3)),
        (("i0o0", "i0o1", "i1o0", "i1o1", "i2o2"), (0, 1, 2, 3)),
        (("i0o0", "i1o0", "i2o0", "i3o0", "i1o1"), (0, 4)),
        (("i0o0", "i1o0", "i0o1"), (1, 2)),
        (("i0o0",), (0,)),
    ],
)
def test_of_checkpoints_that_do_not_hang_together_most_that_do_are_kept(
    labels: tuple[str, ...], kept: tuple[int, ...]
) -> None:
    assert most_regular(labels) == kept


def test_a_table_has_every_label_in_its_place() -> None:
    shuffled = [SIX[k] for k in (3, 0, 5, 1, 4, 2)]
    values = np.array([SIX.index(label) for label in shuffled], dtype=float)
    assert design_table(values, read_layout(shuffled)).tolist() == [[0, 1], [2, 3], [4, 5]]
    numbers = np.arange(3.0)
    for labels, table in (
        (["i2o1", "i0o2", "i1o0"], [[2, 0, 1]]),
        (["i2o1", "i0o1", "i1o1"], [[1], [2], [0]]),
        (["i2o1", "i2o4", "i2o0"], [[2, 0, 1]]),
    ):
        assert design_table(numbers, read_layout(labels)).tolist() == table
    with pytest.raises(ValidationError, match="neither independent"):
        design_table(np.arange(5.0), read_layout(SIX[:5]))


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("shape", [(2, 3, 2), (4, 3, 2), (3, 4, 3), (5, 1, 3), (5, 3, 1)])
def test_mean_squares_are_statsmodels(shape: tuple[int, int, int]) -> None:
    """Designs and orders crossed, initialisations inside designs; of one, parts are missing."""
    y = np.random.default_rng(list(shape)).normal(size=shape)
    d, i, o = np.indices(shape)
    frame = pd.DataFrame({"y": y.ravel(), "d": d.ravel(), "i": i.ravel(), "o": o.ravel()})
    designs, starts, orders = shape
    terms = ["C(d)"]
    terms += ["C(o)", "C(d):C(o)"] if orders > 1 else []
    terms += ["C(d):C(i)"] if starts > 1 else []
    table = anova_lm(ols(f"y ~ {' + '.join(terms)}", frame).fit())["sum_sq"]
    found = board_squares(y)
    assert found.df.tolist() == [
        designs * (starts - 1),
        (designs - 1) * (orders - 1),
        designs * (starts - 1) * (orders - 1),
    ]
    squares = found.parts * found.df
    if orders > 1:
        assert float(found.order) * (orders - 1) == pytest.approx(table["C(o)"])
        assert squares[1] == pytest.approx(table["C(d):C(o)"])
    if starts > 1:
        assert squares[0] == pytest.approx(table["C(d):C(i)"])
    if min(starts, orders) > 1:
        assert squares[2] == pytest.approx(table["Residual"])
    assert found.own.sum() == pytest.approx(squares.sum())
    stacked = board_squares(np.stack([y, 2 * y]))
    assert stacked.parts[1] == pytest.approx(4 * found.parts)


def test_independent_checkpoints_have_the_error_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(size=(7, 3))
    found = independent_variance(values)
    assert np.sqrt(found.variance) == pytest.approx(stats.sem(values, axis=1))
    assert found.df.tolist() == [2.0] * 7


def test_two_designs_with_a_checkpoint_an_order_have_the_paired_t() -> None:
    y = np.random.default_rng(2).normal(size=(2, 1, 4))
    y[:, 0, 1] += 50.0
    found = board_squares(y).of_mean
    assert np.sqrt(2 * found.variance) == pytest.approx(stats.sem(y[0, 0] - y[1, 0]))
    assert float(found.df) == 3.0


def test_what_an_order_does_to_all_designs_is_apart() -> None:
    """It moves the mean square of the orders and nothing else."""
    y = np.random.default_rng(3).normal(size=(5, 3, 2))
    moved = y + np.array([0.0, 10.0])
    ours, theirs = board_squares(y), board_squares(moved)
    assert theirs.parts == pytest.approx(ours.parts) and theirs.own == pytest.approx(ours.own)
    assert float(theirs.of_mean.variance) == pytest.approx(float(ours.of_mean.variance))
    assert float(theirs.order) > 100 * float(ours.order)
    # Two orders 10 apart: the mean over orders has a standard error of 5.
    zero = board_squares(np.zeros((5, 3, 2)) + np.array([0.0, 10.0]))
    assert float(zero.of_orders.variance) == pytest.approx(25.0)
    assert float(zero.of_orders.df) == 1.0


def test_pooled_variance_by_hand() -> None:
    """Four designs of 3 x 2. In one, orders differ by .4: beside what all have, .1, by .3."""
    tables = np.zeros((4, 3, 2))
    tables[0, :, 1] = 0.4
    found = board_squares(tables)
    rest = 3 * 2 * (0.15**2 + 3 * 0.05**2)
    assert float(found.of_mean.variance) == pytest.approx(rest / 3 / 6)
    assert float(found.of_mean.df) == pytest.approx(3.0)
    assert found.ratios.tolist() == pytest.approx([3.0, *[1 / 3] * 3])
    # The left-over alone: MI + MJ - ME is below 0, and all degrees of freedom count.
    tables = np.zeros((2, 3, 2))
    tables[0, :2] = [[0.1, -0.1], [-0.1, 0.1]]
    tables[1, :2] = [[-0.1, 0.1], [0.1, -0.1]]
    found = board_squares(tables)
    assert float(found.of_mean.variance) == pytest.approx(2 * 0.04 / 9 / 6)
    assert float(found.of_mean.df) == 9.0
    alike = board_squares(np.ones((2, 3, 2)))
    assert float(alike.of_mean.variance) == 0.0 and alike.ratios.tolist() == [1.0, 1.0]
    for shape in ((1, 3, 2), (3, 1, 1)):
        with pytest.raises(ValidationError, match="two designs with two checkpoints each"):
            board_squares(np.zeros(shape))


def test_the_test_of_spreads_is_an_f_test() -> None:
    """Checkpoints on one order, where no order is taken off: F with R - 1 degrees of freedom."""
    y = np.random.default_rng(4).normal(size=(5, 4, 1)) * np.array([4.0, 1, 1, 1, 1])[:, None, None]
    found = board_squares(y)
    assert float(found.own_df) == pytest.approx(3.0)
    own = y[..., 0].var(axis=1, ddof=1)
    for place in range(5):
        others = np.delete(own, place).mean()
        p = stats.f.sf(own[place] / others, 3, 12)
        assert found.spread_p[place] == pytest.approx(p)
    assert found.ratios == pytest.approx(own / own.mean())


SPLITS = {"free": (0, 0, 1), "initialisation": (1, 0, 0), "order": (0, 1, 0), "even": (1, 1, 1)}


@pytest.mark.parametrize(("split", "designs"), list(itertools.product(SPLITS, (4, 8))))
def test_the_mean_of_crossed_checkpoints_is_covered(split: str, designs: int) -> None:
    """6,000 boards, wherever the variance comes from; the bounds of the target with two standard
    errors. Satterthwaite's approximation for one design alone covers far less when checkpoints are
    independent."""
    by_start, by_order, by_both = SPLITS[split]
    generator = np.random.default_rng([9, designs])
    size = (6000, designs)
    tables = (
        by_start * generator.normal(size=(*size, 3, 1))
        + by_order * generator.normal(size=(*size, 1, 2))
        + by_both * generator.normal(size=(*size, 3, 2))
    )
    # What an order does to all designs is not asked for here.
    shared = 5.0 * generator.normal(size=(6000, 1, 1, 2))
    found = board_squares(tables + shared).of_mean
    half = stats.t.ppf(0.975, found.df) * np.sqrt(found.variance)
    assert 0.924 <= (np.abs(tables[:, 0].mean(axis=(1, 2))) <= half).mean() <= 0.983
    if split == "free":
        single = tables[:, 0]
        by_row, by_column = single.mean(axis=2, keepdims=True), single.mean(axis=1, keepdims=True)
        mean = single.mean(axis=(1, 2), keepdims=True)
        start = 2 * ((by_row - mean) ** 2).sum(axis=(1, 2)) / 2
        order = 3 * ((by_column - mean) ** 2).sum(axis=(1, 2))
        left = ((single - by_row - by_column + mean) ** 2).sum(axis=(1, 2)) / 2
        variance = np.maximum(0, start + order - left)
        df = variance**2 / (start**2 / 2 + order**2 + left**2 / 2)
        half = stats.t.ppf(0.975, np.maximum(1, df)) * np.sqrt(variance / 6)
        assert (np.abs(mean.ravel()) <= half).mean() < 0.8
