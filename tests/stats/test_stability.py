"""Stability: every part by hand, the gate, and what a page may believe."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.errors import ValidationError
from crlbench.stats.intervals import Interval
from crlbench.stats.measures import unit
from crlbench.stats.nulls import curve_null
from crlbench.stats.stability import (
    PARTS,
    RunStability,
    TaskStability,
    dispersion_within,
    expected_drawdown,
    failure_posterior,
    final,
    gini_mean_difference,
    headline,
    interquartile_range,
    max_drawdown,
    model_stability,
    peak_gain,
    rate,
    run_stability,
    shares,
    smoothed,
    task_stability,
    worst_seeds,
    worst_steps,
)
from crlbench.verdict.load import Runs
from crlbench.verdict.run_curve import full_curve
from crlbench.verdict.run_measures import measure
from crlbench.verdict.runs import Run
from tests.support.clock import cpu_seconds

ABOVE = Interval(0.2, 0.6)
NUMBERS = st.lists(st.floats(-1, 2), min_size=2, max_size=12)


def run(end: float, drawdown: float = 0.0, peak: float | None = None, failed: bool = False):
    """A run that starts at H = 0.1."""
    return RunStability(
        final=end,
        head=0.1,
        peak=end - 0.1 if peak is None else peak,
        drawdown_raw=drawdown + 0.04,
        drawdown_expected=0.04,
        drawdown=drawdown,
        dispersion_raw=0.03,
        dispersion_expected=0.02,
        dispersion=0.01,
        short_term=-0.02,
        failed=failed,
    )


FIVE = [run(0.5), run(0.6), run(0.7, 0.06), run(0.8, 0.07), run(0.9, 0.4, failed=True)]
FIVE_SHARES = (1 - 0.2 / 0.6, 1 - 0.7 / 5, 0.45 / 0.6, 1 - 1.5 / 6)


def test_smoothing_final_and_peak_by_hand():
    u = np.array([0.0, 3, 6, 3])
    np.testing.assert_allclose(smoothed(u), [1.5, 3, 4, 4.5])
    assert final(u) == 4
    assert peak_gain(u, 1.0) == 3.5
    assert smoothed(np.array([2.0])).tolist() == [2.0]
    np.testing.assert_allclose(smoothed(np.array([1.0, 2])), [1.5, 1.5])


def test_drawdown_is_the_deepest_fall_below_the_best_so_far():
    assert max_drawdown(np.array([0.0, 0.3, 0.6, 0.3, 0.0])) == pytest.approx(0.4 - 0.15)
    assert max_drawdown(np.linspace(0, 1, 9)) == 0.0
    # The fall from 0.8 counts, not the one from the later and higher 1.0.
    u = np.repeat([0.8, 0.2, 1.0, 0.7], 3)
    assert max_drawdown(u) == pytest.approx(0.6)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=15))
def test_drawdown_against_its_definition(values):
    s = smoothed(np.array(values))
    wanted = max(s[a] - s[b] for a in range(len(s)) for b in range(a, len(s)))
    assert max_drawdown(np.array(values)) == pytest.approx(wanted)


def test_dispersion_against_its_definition():
    curves = np.random.default_rng(3).normal(size=(4, 3, 12))
    steps = np.lib.stride_tricks.sliding_window_view(np.diff(curves), 5, axis=-1)
    low, high = np.quantile(steps, [0.25, 0.75], axis=-1)
    np.testing.assert_allclose(dispersion_within(curves), (high - low).mean(axis=-1), atol=1e-14)
    np.testing.assert_allclose(dispersion_within(curves[0, 0]), (high - low)[0, 0].mean())


def test_a_median_gain_of_rounding_is_none():
    """Resamples are counted and not sorted, which sums to nearly 0 where seeds gained nothing."""
    seeds = np.array([0.1 + 0.2] * 3 + [0.7, 0.9]), np.full(5, 0.3), np.ones(5)
    assert shares(*seeds, np.zeros(5), np.zeros(5))[PARTS.index("risk")] == 0


def test_dispersion_within_a_run_ignores_the_trend():
    assert dispersion_within(np.cumsum([0.0, 1, 2, 3, 4, 5])) == pytest.approx(2.0)
    assert dispersion_within(0.1 * np.arange(12.0)) == pytest.approx(0.0)
    u = np.random.default_rng(1).random(21)
    steps = [u[j + 1] - u[j] for j in range(20)]
    windows = [np.percentile(steps[a : a + 5], [25, 75]) for a in range(16)]
    assert dispersion_within(u) == pytest.approx(np.mean([high - low for low, high in windows]))
    assert dispersion_within(np.array([1.0])) == 0.0
    assert dispersion_within(np.array([0.0, 1, 1])) == pytest.approx(0.5)


@given(NUMBERS)
def test_interquartile_range_is_numpys(values):
    low, high = np.percentile(values, [25, 75])
    assert interquartile_range(np.array(values)) == pytest.approx(high - low, abs=1e-12)


@given(NUMBERS)
def test_gini_mean_difference_over_the_pairs(values):
    wanted = np.mean([abs(a - b) for a, b in combinations(values, 2)])
    assert gini_mean_difference(np.array(values)) == pytest.approx(wanted, abs=1e-12)


def test_worst_shares_are_rounded_up():
    values = np.array([5.0, 1, 4, 2, 3])
    assert worst_seeds(values) == 1.5
    assert worst_seeds(np.arange(10.0)) == 1.0
    assert worst_seeds(np.arange(20.0)) == 2.5
    assert worst_seeds(np.array([7.0])) == 7.0
    assert np.isnan(gini_mean_difference(np.array([7.0])))
    assert worst_steps(np.cumsum([0.0, 1, -3, 2])) == -3
    assert worst_steps(np.cumsum(np.r_[0.0, np.arange(20)])) == 0.5


def test_failure_posterior():
    assert failure_posterior(0, 10) == pytest.approx(0.5 / 11)
    assert failure_posterior(5, 5) == pytest.approx(5.5 / 6)


def test_the_four_shares_by_hand():
    found = task_stability(FIVE, ABOVE)
    assert tuple(found.shares.values()) == pytest.approx(FIVE_SHARES)
    assert found.value == pytest.approx(np.prod(FIVE_SHARES) ** 0.25)
    assert (found.gmd, found.cvar, found.cvar_gain) == pytest.approx((0.2, 0.55, 0.45))
    assert (found.gain, found.median_gain, found.peak) == pytest.approx((0.6, 0.6, 0.6))
    assert (found.failures, found.failure_rate) == (1, pytest.approx(0.25))
    assert found.failure_interval.low < 0.2 < found.failure_interval.high
    assert found.iqr is None and task_stability(FIVE * 2, ABOVE).iqr == pytest.approx(0.2)


def columns(runs):
    names = ("final", "head", "peak", "drawdown", "failed")
    return [np.array([getattr(r, name) for r in runs]) for name in names]


def test_replicates_are_computed_at_once():
    index = np.random.default_rng(2).integers(0, 5, (50, 5))
    many = headline(shares(*(column[index] for column in columns(FIVE))))
    for row, value in zip(index, many, strict=True):
        assert headline(shares(*columns([FIVE[i] for i in row]))) == pytest.approx(value)


def test_one_catastrophe_cannot_be_averaged_away():
    dropped = [run(0.8, drawdown=0.9) for _ in range(5)]
    assert task_stability(dropped, ABOVE).value == 0.0
    half_lost = [run(0.1), run(0.1), run(0.9), run(0.9), run(0.9)]
    assert task_stability(half_lost, ABOVE).shares["risk"] == 0.0


def test_small_and_negative_gains_stay_finite():
    found = shares(*columns([run(0.1), run(0.05), run(0.0)]))
    assert np.isfinite(found).all() and found[2] == 0.0
    # Losses are divided by at least 0.1.
    assert shares(*columns([run(0.11, 0.05)] * 3))[1] == pytest.approx(0.5)
    assert shares(*columns([run(0.11, 5.0)] * 3))[1] == 0.0


@given(
    st.lists(st.floats(0.2, 1.1), min_size=2, max_size=10),
    st.floats(0, 0.5),
    st.integers(0, 2),
)
def test_shares_lie_between_0_and_1_and_order_does_not_matter(ends, drawdown, failures):
    runs = [run(e, drawdown, failed=i < failures) for i, e in enumerate(ends)]
    found = shares(*columns(runs))
    assert np.all((found >= 0) & (found <= 1))
    np.testing.assert_allclose(shares(*columns(runs[::-1])), found)


@pytest.mark.parametrize(
    ("gain", "interval", "n", "expected"),
    [
        (0.3, Interval(0.1, 0.5), 5, "rated"),
        (0.05, Interval(0.01, 0.09), 5, "rated"),
        (0.04, Interval(0.03, 0.05), 5, "did not learn"),
        (0.3, Interval(-0.01, 0.5), 5, "did not learn"),
        (-0.2, Interval(-0.3, -0.1), 5, "did not learn"),
        (0.3, None, 3, "too few seeds"),
        (0.0, None, 1, "did not learn"),
    ],
)
def test_the_gate(gain, interval, n, expected):
    assert rate(gain, interval, n) == expected


def test_a_model_that_never_moves_is_not_rated():
    still = task_stability([run(0.1)] * 5, Interval(-0.01, 0.01))
    assert (still.rating, still.value) == ("did not learn", None)
    assert still.shares["dispersion"] == 1.0


def test_one_seed_and_no_seed():
    one = task_stability([run(0.8)], None)
    assert (one.rating, one.value, one.gmd, one.shares) == ("too few seeds", None, None, None)
    with pytest.raises(ValidationError, match="no runs"):
        task_stability([], None)


def rated(end: float) -> TaskStability:
    return task_stability([run(end)] * 5, ABOVE)


def test_a_model_needs_half_of_the_tasks():
    still = task_stability([run(0.1)] * 5, Interval(-0.01, 0.01))
    half = {"a": rated(0.6), "b": task_stability(FIVE, ABOVE), "c": still}
    found = model_stability(half, ["d", "c", "b", "a"])
    assert found.rated == ("a", "b") and found.reason is None
    assert found.value == pytest.approx((half["a"].value + half["b"].value) / 2)
    few = model_stability(half, ["a", "b", "c", "d", "e"])
    assert few.value is None and few.reason == "rated on 2 of 5 tasks, half are needed"
    short = {"a": task_stability(FIVE[:3], None), "b": task_stability(FIVE[:3], None)}
    found = model_stability(short, ["a", "b"])
    assert found.reason == "rated on 0 of 2 tasks, half are needed; 2 have too few seeds"
    assert model_stability({}, []).value is None


def test_what_lacks_its_stress_arm_says_how_to_get_it_or_why_there_is_none():
    without = {"a": dataclasses.replace(rated(0.6), value=None)}
    assert model_stability(without, ["a"]).reason == (
        "no three runs of the stress arm on a (--arm stress)"
    )
    assert model_stability(without, ["a"], "steps have no rate").reason == (
        "no three runs of the stress arm on a (there can be none: steps have no rate)"
    )


def stored(run: Run) -> RunStability:
    """The stability of a stored run."""
    record = run.record
    bounds = record.task.floor, record.task.ceiling
    curve = full_curve(run)
    return run_stability(
        unit(np.array(curve.score), *bounds),
        measure(run, {}).H,
        unit(run.curve_items()[: curve.measured], *bounds),
        record.task.name,
        record.seed.index,
        record.status.state == "failed",
    )


def test_stored_runs_against_a_path_of_its_own(five_runs: Runs):
    whole = next(r for r in five_runs if r.record.status.state == "completed")
    found = stored(whole)
    with np.load(whole.folder / "items.npz") as archive:
        points = sorted(int(n.split("/")[1]) for n in archive.files if n.startswith("curve/"))
        s = [float(archive[f"curve/{x}"].mean()) for x in points]
        head = (float(archive["start/id"].mean()) - 0.03) / 0.97
    u = [(value - 0.03) / 0.97 for value in s]
    smooth = [sum(u[max(0, j - 1) : j + 2]) / len(u[max(0, j - 1) : j + 2]) for j in range(21)]
    drop = max(max(smooth[: j + 1]) - smooth[j] for j in range(21))
    assert found.drawdown_raw == pytest.approx(drop, abs=1e-12)
    assert found.final == pytest.approx(sum(u[-3:]) / 3, abs=1e-12)
    assert found.peak == pytest.approx(max(smooth) - head, abs=1e-12)
    steps = sorted(b - a for a, b in zip(u, u[1:], strict=False))
    assert found.short_term == pytest.approx((steps[0] + steps[1]) / 2, abs=1e-12)
    assert found.drawdown == max(0.0, found.drawdown_raw - found.drawdown_expected)
    assert 0 < found.drawdown_expected < 0.2
    assert found.dispersion == found.dispersion_raw - found.dispersion_expected


def test_a_failed_run_stays_in_and_its_zeros_are_no_noise(five_runs: Runs):
    broken = next(r for r in five_runs if r.record.status.state == "failed")
    found, curve = stored(broken), full_curve(broken)
    assert found.failed and found.final == 0.0
    items = unit(broken.curve_items()[: curve.measured], 0.03, 1.0)
    null = curve_null(items, "counting", 3)
    assert found.drawdown_expected == expected_drawdown(null)
    top = smoothed(unit(np.array(curve.score), 0.03, 1.0)).max()
    assert found.drawdown_raw == pytest.approx(top)
    assert found.drawdown > 0.5 * top


def test_another_model_moves_nobody(five_runs: Runs):
    before = [stored(run) for run in five_runs]
    after = [stored(run) for run in reversed(five_runs.runs)]
    assert before == after[::-1]


def test_what_cannot_be_measured_is_refused():
    items = np.ones((3, 8))
    with pytest.raises(ValidationError, match="at least 2"):
        run_stability(np.ones(1), 0.0, items[:1], "addition", 0)
    with pytest.raises(ValidationError, match="no more measured"):
        run_stability(np.ones(2), 0.0, items, "addition", 0)
    with pytest.raises(ValidationError, match="task 'addition', seed index 4: .* finite"):
        run_stability(np.array([0.0, np.nan, 1.0]), 0.0, items, "addition", 4)


@pytest.mark.slow
def test_a_board_of_thirty_models_takes_seconds():
    """30 models x 6 tasks x 10 seeds, and 10,000 replicates of each task's headline."""
    generator = np.random.default_rng(3)
    items = (generator.random((21, 256)) < np.linspace(0.2, 0.8, 21)[:, None]).astype(float)
    index = generator.integers(0, 10, (10_000, 10))
    started = cpu_seconds()
    for _ in range(30 * 6):
        runs = [run_stability(items.mean(1), 0.2, items, "t", i) for i in range(10)]
        headline(shares(*(column[index] for column in columns(runs))))
    assert cpu_seconds() - started < 10
