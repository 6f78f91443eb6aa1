"""Variance components by REML: statsmodels, the analysis of variance, and simulated boards."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from crlbench.errors import ValidationError
from crlbench.stats.reml import Dense, Strata, decompose, minimise, strata_of
from crlbench.stats.variance_components import (
    RESIDUAL,
    board_factors,
    components_of_designs,
    fixed_columns,
    indicators,
    loose_limits,
    profile,
    profile_bar,
    restricted_likelihood,
    variance_components,
)

STARTS, ORDERS = (0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1)


def nested(groups: int = 6, inner: int = 4, runs: int = 3, key: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(key)
    g, c, _ = (axis.ravel() for axis in np.indices((groups, inner, runs)))
    y = 0.5 + 0.3 * generator.normal(size=groups)[g]
    y = y + 0.2 * generator.normal(size=(groups, inner))[g, c]
    y = y + 0.1 * generator.normal(size=len(g))
    return pd.DataFrame({"y": y, "g": g, "c": c})


def of(frame: pd.DataFrame, terms: tuple[str, ...], fixed: tuple[str, ...] = ()):
    factors = {name: frame[name].to_numpy() for name in frame.columns if name != "y"}
    return variance_components(frame["y"].to_numpy(), factors, terms, fixed)


def statsmodels(frame: pd.DataFrame, formula: str = "y ~ 1"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixedLM.from_formula(
            formula, groups="g", re_formula="1", vc_formula={"c": "0 + C(c)"}, data=frame
        )
        return model.fit(reml=True, method=["lbfgs", "bfgs"], gtol=1e-10)


@pytest.mark.parametrize("drop", [0, 13])
def test_a_nested_design_is_statsmodels(drop: int) -> None:
    """Balanced, and with 13 of 72 runs missing."""
    frame = nested()
    if drop:
        frame = frame.drop(np.random.default_rng(1).choice(len(frame), drop, replace=False))
    found, theirs = of(frame, ("g", "g:c")), statsmodels(frame)
    assert found.balanced == (drop == 0)
    assert found["g"].variance == pytest.approx(float(theirs.cov_re.iloc[0, 0]), rel=2e-3)
    assert found["g:c"].variance == pytest.approx(float(theirs.vcomp[0]), rel=2e-3)
    assert found[RESIDUAL].variance == pytest.approx(theirs.scale, rel=2e-3)
    # statsmodels' likelihood leaves out log|XᵀX|; X is a column of ones.
    deviance = -2 * theirs.llf - math.log(len(frame))
    assert found.deviance == pytest.approx(deviance, abs=1e-3)
    assert found.deviance <= deviance + 1e-6


def test_a_fixed_effect_is_statsmodels() -> None:
    frame = nested(key=2)
    frame["t"] = np.arange(len(frame)) % 3
    frame["y"] += 0.4 * frame["t"]
    found, theirs = of(frame, ("g", "g:c"), ("t",)), statsmodels(frame, "y ~ C(t)")
    assert found["g:c"].variance == pytest.approx(float(theirs.vcomp[0]), rel=2e-3)
    assert found[RESIDUAL].variance == pytest.approx(theirs.scale, rel=2e-3)


def test_a_balanced_nested_design_is_the_analysis_of_variance() -> None:
    frame = nested(key=3)
    cube = frame["y"].to_numpy().reshape(6, 4, 3)
    inside = cube.var(axis=2, ddof=1).mean()
    cells = cube.mean(axis=2)
    between = 3 * cells.var(axis=1, ddof=1).mean()
    groups = 12 * cells.mean(axis=1).var(ddof=1)
    found = of(frame, ("g", "g:c"))
    assert found[RESIDUAL].variance == pytest.approx(inside)
    assert found["g:c"].variance == pytest.approx((between - inside) / 3)
    assert found["g"].variance == pytest.approx((groups - between) / 12)
    assert [one.levels for one in found.components] == [6, 24, 72]


def test_a_balanced_crossed_design_is_the_analysis_of_variance() -> None:
    generator = np.random.default_rng(4)
    rows, columns, runs = 5, 7, 2
    cube = (
        0.3 * generator.normal(size=(rows, 1, 1))
        + 0.2 * generator.normal(size=(1, columns, 1))
        + 0.15 * generator.normal(size=(rows, columns, 1))
        + 0.05 * generator.normal(size=(rows, columns, runs))
    )
    a, b, _ = (axis.ravel() for axis in np.indices(cube.shape))
    found = of(pd.DataFrame({"y": cube.ravel(), "a": a, "b": b}), ("a", "b", "a:b"))
    cells = cube.mean(axis=2)
    by_a, by_b = cells.mean(axis=1), cells.mean(axis=0)
    left = cells - by_a[:, None] - by_b + cells.mean()
    error = cube.var(axis=2, ddof=1).mean()
    both = runs * (left**2).sum() / ((rows - 1) * (columns - 1))
    wanted = {
        "a": (columns * runs * by_a.var(ddof=1) - both) / (columns * runs),
        "b": (rows * runs * by_b.var(ddof=1) - both) / (rows * runs),
        "a:b": (both - error) / runs,
        RESIDUAL: error,
    }
    assert min(wanted.values()) > 0
    for name, variance in wanted.items():
        assert found[name].variance == pytest.approx(variance)
        assert found[name].spread == pytest.approx(math.sqrt(variance))


def test_a_variance_ends_at_0_and_the_rest_is_pooled() -> None:
    """Groups more alike than their members: the residual takes their degrees of freedom."""
    generator = np.random.default_rng(5)
    cube = generator.normal(size=(4, 5))
    cube -= 0.95 * cube.mean(axis=1, keepdims=True)
    g = np.arange(4).repeat(5)
    found = of(pd.DataFrame({"y": cube.ravel(), "g": g}), ("g",))
    assert found["g"].variance == 0.0 and found["g"].interval.low == 0.0
    assert found[RESIDUAL].variance == pytest.approx(cube.var(ddof=1))
    assert found["g"].interval.high > 0


def board(key: int, shape: tuple[int, ...] = (4, 6, 4, 2)) -> np.ndarray:
    generator = np.random.default_rng(key)
    designs, _, tasks, _ = shape
    return (
        0.06 * generator.normal(size=(designs, 1, 1, 1))
        + 0.1 * generator.normal(size=(designs, 6, 1, 1))
        + 0.22 * generator.normal(size=(1, 1, tasks, 1))
        + 0.18 * generator.normal(size=(designs, 1, tasks, 1))
        + 0.1 * generator.normal(size=(designs, 6, tasks, 1))
        + 0.014 * generator.normal(size=shape)
    )


def dense_of(y: np.ndarray, factors: dict, terms: list[str]) -> Dense:
    fixed = fixed_columns(len(y), factors, ())
    return Dense(y, fixed, [indicators(factors, term) for term in terms])


def test_strata_and_dense_products_are_one_likelihood() -> None:
    """The deviance, its gradient and the information, at the estimates and elsewhere."""
    y = board(6)
    factors = board_factors(y.shape, STARTS, ORDERS)
    terms = ["design", "design:checkpoint", "task", "design:task", "design:checkpoint:task"]
    dense = dense_of(y.ravel(), factors, terms)
    fixed = fixed_columns(y.size, factors, ())
    strata = restricted_likelihood(
        y.ravel(), fixed, [indicators(factors, term) for term in terms], terms
    )
    assert isinstance(strata, Strata) and len(strata.df) == 6
    assert strata.df.sum() == y.size - 1
    assert strata.scale == pytest.approx(dense.scale)
    best = minimise(strata)
    generator = np.random.default_rng(0)
    below = np.array([-0.001, 0.004, 0.05, 0.03, 0.01, 0.0002])
    for point in (best.variances, below, *generator.uniform(0.001, 0.05, (3, 6))):
        for ours, theirs in zip(strata.at(point), dense.at(point), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert minimise(dense).variances == pytest.approx(best.variances, rel=1e-4, abs=1e-7)
    # Too far below 0 there is no covariance matrix, and no likelihood.
    for likelihood in (strata, dense):
        assert likelihood.at(np.array([0.1, 0.1, 0.1, 0.1, -0.1, 0.01])).deviance == math.inf
    for component in range(6):
        least = loose_limits(strata, component)
        ours, theirs = (minimise(one, least=least) for one in (strata, dense))
        assert ours.deviance == pytest.approx(theirs.deviance, abs=1e-6)
        assert ours.deviance <= best.deviance + 1e-9


def test_the_deviance_is_that_of_the_definition() -> None:
    """log|V| + log|XᵀV⁻¹X| - log|XᵀX| + yᵀPy + (N - p) log 2π with whole matrices."""
    frame = nested(3, 3, 2, key=7).drop([4, 11])
    y = frame["y"].to_numpy()
    factors = {name: frame[name].to_numpy() for name in ("g", "c")}
    z = [indicators(factors, term) for term in ("g", "g:c")]
    x = np.column_stack([np.ones(len(y)), np.arange(len(y))])
    point = np.array([0.05, 0.02, 0.01])
    v = point[0] * z[0] @ z[0].T + point[1] * z[1] @ z[1].T + point[2] * np.eye(len(y))
    inverse = np.linalg.inv(v)
    information = x.T @ inverse @ x
    p = inverse - inverse @ x @ np.linalg.inv(information) @ x.T @ inverse
    wanted = (
        np.linalg.slogdet(v)[1]
        + np.linalg.slogdet(information)[1]
        - np.linalg.slogdet(x.T @ x)[1]
        + y @ p @ y
        + (len(y) - 2) * math.log(2 * math.pi)
    )
    likelihood = Dense(y, x, z)
    assert likelihood.at(point).deviance == pytest.approx(wanted)
    step = 1e-6
    for j in range(3):
        up, down = (point + sign * step * np.eye(3)[j] for sign in (1, -1))
        slope = (likelihood.at(up).deviance - likelihood.at(down).deviance) / (2 * step)
        assert likelihood.at(point).gradient[j] == pytest.approx(slope, rel=1e-5)
    parts = [*(part @ part.T for part in z), np.eye(len(y))]
    traces = [[np.trace(p @ a @ p @ b) for b in parts] for a in parts]
    assert likelihood.at(point).information == pytest.approx(np.array(traces))


def test_an_unbalanced_crossed_design_has_its_largest_likelihood() -> None:
    """No commuting terms, so no strata; nowhere near is the deviance lower."""
    y = board(8, (3, 6, 4, 2))
    keep = np.random.default_rng(2).random(y.size) < 0.8
    factors = {
        name: column[keep] for name, column in board_factors(y.shape, STARTS, ORDERS).items()
    }
    terms = ("design", "design:checkpoint", "task", "design:task")
    found = variance_components(y.ravel()[keep], factors, terms)
    assert not found.balanced
    dense = dense_of(y.ravel()[keep], factors, list(terms))
    best = np.array([one.variance for one in found.components])
    generator = np.random.default_rng(3)
    for _ in range(50):
        near = best * np.exp(0.1 * generator.normal(size=len(best)))
        assert dense.at(near).deviance >= found.deviance - 1e-7
    assert dense.at(best).deviance == pytest.approx(found.deviance)


@pytest.mark.parametrize("balanced", [True, False])
def test_the_ends_of_a_profile_interval_are_where_the_test_rejects(balanced: bool) -> None:
    frame = nested(key=9) if balanced else nested(key=9).drop([0, 5, 31])
    factors = {name: frame[name].to_numpy() for name in ("g", "c")}
    terms = ("g", "g:c")
    random = [indicators(factors, term) for term in terms]
    fixed = fixed_columns(len(frame), factors, ())
    likelihood = restricted_likelihood(frame["y"].to_numpy(), fixed, random, terms)
    best = minimise(likelihood)
    assert profile_bar() == pytest.approx(stats.chi2.ppf(0.95, 1))
    for component in range(3):
        interval = profile(likelihood, best, component)
        assert interval.low <= best.variances[component] <= interval.high
        least = loose_limits(likelihood, component)
        base = minimise(likelihood, least=least)
        for end in (interval.low, interval.high):
            start = base.variances.copy()
            start[component] = end
            there = minimise(likelihood, start, hold=component, least=least)
            rise = there.deviance - base.deviance
            if end > 0:
                assert rise == pytest.approx(profile_bar(), abs=1e-3)
            else:
                assert rise <= profile_bar()


def test_the_profile_of_independent_numbers_is_that_of_chi_square() -> None:
    """Groups far apart: the residual's deviance is df (log v + s / v), up by 3.84 at the ends."""
    generator = np.random.default_rng(10)
    cube = 50 * generator.normal(size=(5, 1)) + 0.1 * generator.normal(size=(5, 9))
    found = of(pd.DataFrame({"y": cube.ravel(), "g": np.arange(5).repeat(9)}), ("g",))
    df, square = 40, cube.var(axis=1, ddof=1).mean()
    for end in (found[RESIDUAL].interval.low, found[RESIDUAL].interval.high):
        ratio = square / end
        assert df * (ratio - 1 - math.log(ratio)) == pytest.approx(profile_bar(), rel=1e-3)


def test_a_board_of_designs_has_its_terms() -> None:
    y = board(11, (5, 6, 4, 3))
    found = components_of_designs(y, STARTS, ORDERS)
    assert [one.name for one in found.components] == [
        "design",
        "order",
        "design:initialisation",
        "design:order",
        "design:checkpoint",
        "task",
        "design:task",
        "design:checkpoint:task",
        RESIDUAL,
    ]
    assert found.balanced and found[RESIDUAL].spread == pytest.approx(0.014, rel=0.15)
    assert [one.levels for one in found.components][:5] == [5, 2, 15, 10, 30]
    low, high = (found["task"].spread_interval.low, found["task"].spread_interval.high)
    assert low**2 == pytest.approx(found["task"].interval.low) and low < 0.22 < high
    apart = components_of_designs(y[:, :3], (0, 1, 2), (0, 1, 2))
    names = {one.name for one in apart.components}
    assert "order" in names and "design:order" not in names
    on_one = components_of_designs(y[:, ::2], (0, 1, 2), (0, 0, 0))
    assert "order" not in {one.name for one in on_one.components}
    again = components_of_designs(y, STARTS, ORDERS)
    assert again == found


def test_what_an_order_does_to_all_designs_is_a_term_of_its_own() -> None:
    """It moves no other component, and is the mean square of the orders in closed form."""
    generator = np.random.default_rng(14)
    starts, orders = 0.1 * generator.normal(size=(6, 3)), 0.1 * generator.normal(size=(6, 2))
    own = starts[:, STARTS] + orders[:, ORDERS]
    y = board(14, (6, 6, 4, 2)) + own[..., None, None]
    steps = np.array([0.0, 1.0] * 3)[:, None, None]
    ours, theirs = (components_of_designs(y + step * steps, STARTS, ORDERS) for step in (1.0, 0.5))
    moved = y + 0.5 * steps
    by_order = moved.reshape(6, 3, 2, 4, 2).mean(axis=(1, 3, 4))
    whole = by_order.mean(axis=0)
    rest = by_order - by_order.mean(axis=1, keepdims=True) - whole + whole.mean()
    left = (rest**2).sum() / 5
    wanted = whole.var(ddof=1) - left / 6
    assert theirs["design:order"].variance > 0
    assert theirs["order"].variance == pytest.approx(wanted, rel=1e-4)
    assert theirs["order"].spread == pytest.approx(0.5 / math.sqrt(2), rel=0.3)
    for one in theirs.components:
        if one.name not in ("order", "design:order"):
            assert one.variance == pytest.approx(ours[one.name].variance, rel=1e-3, abs=1e-6)


def test_numbers_that_do_not_vary_are_refused() -> None:
    g = np.arange(12) // 3
    with pytest.raises(ValidationError, match="the 12 numbers do not vary: each is 0.3; there is"):
        variance_components([0.3] * 12, {"g": g}, ("g",))
    h = np.arange(12) % 3
    with pytest.raises(ValidationError, match="the 12 numbers do not vary beside h"):
        variance_components(0.1 * h, {"g": g, "h": h}, ("g",), ("h",))
    # Every group has one number, again and again: no residual.
    for keep in (slice(None), slice(None, -1)):
        values = np.random.default_rng(0).normal(size=4)[g]
        with pytest.raises(ValidationError, match="beside g the 1[12] numbers do not vary"):
            variance_components(values[keep], {"g": g[keep]}, ("g",))


def test_the_order_of_numbers_does_not_matter() -> None:
    frame = nested(key=12)
    mixed = frame.sample(frac=1.0, random_state=1)
    ours, theirs = (of(one, ("g", "g:c")) for one in (frame, mixed))
    for one, other in zip(ours.components, theirs.components, strict=True):
        assert one.variance == pytest.approx(other.variance, rel=1e-6)


def test_terms_without_common_eigenvectors_have_no_strata() -> None:
    frame = nested(3, 3, 2).drop([1])
    factors = {name: frame[name].to_numpy() for name in ("g", "c")}
    random = [indicators(factors, term) for term in ("g", "c")]
    fixed = fixed_columns(len(frame), factors, ())
    assert decompose(fixed, random) is None
    assert strata_of(frame["y"].to_numpy(), fixed, random) is None


def test_what_the_data_cannot_tell_apart_is_refused() -> None:
    y = np.random.default_rng(0).normal(size=12)
    g, unit = np.arange(12) // 3, np.arange(12)
    for factors, terms in (
        ({"g": g, "h": g}, ("g", "h")),
        ({"u": unit}, ("u",)),
        ({"one": np.zeros(12, dtype=int)}, ("one",)),
    ):
        with pytest.raises(ValidationError, match="cannot tell"):
            variance_components(y, factors, terms)
    with pytest.raises(ValidationError, match="no factor x; there are g"):
        variance_components(y, {"g": g}, ("x",))
    with pytest.raises(ValidationError, match="3 levels for 12 numbers"):
        variance_components(y, {"g": g[:3]}, ("g",))
    with pytest.raises(ValidationError, match="three finite numbers"):
        variance_components([0.1, math.nan, 0.3], {"g": [0, 1, 1]}, ("g",))
    with pytest.raises(ValidationError, match="each once"):
        variance_components(y, {"g": g}, ("g", "g"))


def test_profile_intervals_cover() -> None:
    """400 nested boards: 8 groups of 3, two runs each. The bounds have three standard errors."""
    generator = np.random.default_rng(13)
    truth, hits = np.array([0.04, 0.02, 0.0025]), np.zeros(3)
    g, c, _ = (axis.ravel() for axis in np.indices((8, 3, 2)))
    factors, terms = {"g": g, "c": c}, ("g", "g:c")
    random = [indicators(factors, term) for term in terms]
    fixed = fixed_columns(len(g), factors, ())
    for _ in range(400):
        y = 0.2 * generator.normal(size=8)[g]
        y = y + math.sqrt(0.02) * generator.normal(size=(8, 3))[g, c]
        y = y + 0.05 * generator.normal(size=len(g))
        likelihood = restricted_likelihood(y, fixed, random, terms)
        best = minimise(likelihood)
        for component in range(3):
            least = loose_limits(likelihood, component)
            base = minimise(likelihood, best.variances, least=least)
            start = base.variances.copy()
            start[component] = truth[component]
            there = minimise(likelihood, start, hold=component, least=least)
            hits[component] += there.deviance - base.deviance <= profile_bar()
    assert ((hits / 400 >= 0.91) & (hits / 400 <= 0.985)).all(), hits / 400


def test_a_profile_does_not_stop_where_v_ceases_to_be_positive_definite() -> None:
    """Two designs of three checkpoints on four tasks, one number each: from the last point alone
    the search stopped above the least deviance, and the estimate seemed to lie outside."""
    numbers = [
        *(0.883, 0.904, 0.924, 0.908, 0.939, 0.922, 0.942, 0.941, 0.851, 0.943, 0.93, 0.929),
        *(0.9, 0.966, 0.901, 0.881, 0.946, 0.959, 0.952, 0.967, 0.931, 0.968, 0.97, 0.938),
    ]
    design, order, task = (axis.ravel() for axis in np.indices((2, 3, 4)))
    factors = {"design": design, "order": order, "checkpoint": order, "task": task}
    terms = ("design", "order", "design:checkpoint", "task", "design:task")
    residual = variance_components(numbers, factors, terms)[RESIDUAL]
    random = [indicators(factors, term) for term in terms]
    likelihood = restricted_likelihood(
        np.array(numbers), fixed_columns(24, factors, ()), random, terms
    )
    least = loose_limits(likelihood, len(terms))

    def deviance(variance: float, hold: int | None) -> float:
        starts = np.random.default_rng(0).exponential(variance, (40, len(terms) + 1))
        starts[:, -1] = variance
        return min(minimise(likelihood, s, hold=hold, least=least).deviance for s in starts)

    best = deviance(residual.variance, None)
    for end in (residual.interval.low, residual.interval.high):
        assert deviance(end, len(terms)) - best == pytest.approx(profile_bar(), abs=1e-3)


@pytest.mark.parametrize("task", [0.0, 0.2])
def test_checkpoints_that_are_copies_are_refused(task: float) -> None:
    # Their mean square is 0. A profile then had an interval that ended at its own estimate.
    draw = np.random.Generator(np.random.PCG64(5))
    one = draw.normal(0, task, (3, 1, 4, 1)) + draw.normal(0, 0.02, (3, 1, 4, 3))
    copies = np.broadcast_to(one, (3, 2, 4, 3))
    with pytest.raises(ValidationError, match="design:checkpoint.*copies of others"):
        components_of_designs(copies, (0, 1), (0, 1))
    apart = copies + draw.normal(0, 1e-4, (3, 2, 4, 1))
    assert len(components_of_designs(apart, (0, 1), (0, 1)).components) == 7
