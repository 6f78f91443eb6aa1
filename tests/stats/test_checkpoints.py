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
    crossed_table,
    crossed_variance,
    independent_variance,
    mean_squares,
    read_layout,
)

SIX = [f"i{i}o{o}" for i in range(3) for o in range(2)]


@pytest.mark.parametrize(
    ("labels", "plan", "about"),
    [
        (["i0o0"], "one", "one checkpoint (i0o0)"),
        (["i0o0", "i1o1", "i2o2"], "independent", "the design"),
        (["i0o1", "i1o1", "i2o1"], "one order", "the design on corpus order 1"),
        (["i4o0", "i4o1"], "one initialisation", "the design from initialisation 4"),
        (SIX, "crossed", "the design"),
        (SIX[:5], "irregular", "the design"),
        (["i0o0", "i1o0", "i2o1"], "irregular", "the design"),
    ],
)
def test_labels_say_how_checkpoints_hang_together(labels: list[str], plan: str, about: str) -> None:
    layout = read_layout(labels)
    assert (layout.plan, layout.about) == (plan, about)
    assert (layout.refusal is not None) == (plan == "irregular")


def test_labels_that_name_nothing_are_refused() -> None:
    for labels in (["i0"], ["o0i0"], ["i0o0 "], ["i-1o0"]):
        with pytest.raises(ValidationError, match="as in i0o1"):
            read_layout(labels)
    for labels in ([], ["i0o0", "i0o0"], ["i0o0", "i00o0"]):
        with pytest.raises(ValidationError, match="at least one, and each once"):
            read_layout(labels)


def test_a_table_has_every_label_in_its_place() -> None:
    shuffled = [SIX[k] for k in (3, 0, 5, 1, 4, 2)]
    values = np.array([SIX.index(label) for label in shuffled], dtype=float)
    assert crossed_table(values, read_layout(shuffled)).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_mean_squares_are_statsmodels() -> None:
    y = np.random.default_rng(0).normal(size=(4, 3))
    rows, columns = np.indices(y.shape)
    frame = pd.DataFrame({"y": y.ravel(), "i": rows.ravel(), "o": columns.ravel()})
    table = anova_lm(ols("y ~ C(i) + C(o)", frame).fit())
    wanted = table["mean_sq"][["C(i)", "C(o)", "Residual"]].to_numpy()
    assert mean_squares(y) == pytest.approx(wanted)
    stacked = np.stack([y, 2 * y])
    assert mean_squares(stacked)[1] == pytest.approx(4 * wanted)


def test_independent_checkpoints_have_the_error_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(size=(7, 3))
    found = independent_variance(values)
    assert np.sqrt(found.variance) == pytest.approx(stats.sem(values, axis=1))
    assert found.df.tolist() == [2.0] * 7


def test_crossed_variance_by_hand() -> None:
    """Two designs of 3 x 2. The orders alone differ: MI = ME = 0, and MJ = 3 · 2 d² pooled."""
    tables = np.zeros((2, 3, 2))
    tables[0, :, 1], tables[1, :, 1] = 0.2, 0.4
    pooled = np.mean([3 * 2 * 0.1**2, 3 * 2 * 0.2**2])
    found = crossed_variance(tables)
    assert float(found.variance) == pytest.approx(pooled / 6)
    assert float(found.df) == pytest.approx(2.0)
    # The left-over alone: MI + MJ - ME is below 0, and all ten degrees of freedom count.
    tables = np.zeros((2, 3, 2))
    tables[:, :2] = [[0.1, -0.1], [-0.1, 0.1]]
    found = crossed_variance(tables)
    assert float(found.variance) == pytest.approx(2 * 0.04 / 10 / 6)
    assert float(found.df) == 10.0
    assert float(crossed_variance(np.ones((2, 3, 2))).variance) == 0.0
    with pytest.raises(ValidationError, match="two designs"):
        crossed_variance(np.zeros((1, 3, 2)))


SPLITS = {"free": (0, 0, 1), "initialisation": (1, 0, 0), "order": (0, 1, 0), "even": (1, 1, 1)}


@pytest.mark.parametrize(("split", "designs"), list(itertools.product(SPLITS, (2, 8))))
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
    found = crossed_variance(tables)
    half = stats.t.ppf(0.975, found.df) * np.sqrt(found.variance)
    assert 0.924 <= (np.abs(tables[:, 0].mean(axis=(1, 2))) <= half).mean() <= 0.983
    if split == "free":
        start, order, left = mean_squares(tables[:, 0]).T
        variance = np.maximum(0, start + order - left)
        df = variance**2 / (start**2 / 2 + order**2 + left**2 / 2)
        half = stats.t.ppf(0.975, np.maximum(1, df)) * np.sqrt(variance / 6)
        assert (np.abs(tables[:, 0].mean(axis=(1, 2))) <= half).mean() < 0.8
