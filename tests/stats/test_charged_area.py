"""Λ over charges against closed forms and a fine numerical integral."""

from __future__ import annotations

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.charged_area import charge_to_threshold, charged_area, charged_weights
from crlbench.stats.measures import area, captured


def test_a_chain_that_learns_nothing_scores_zero() -> None:
    found = charged_area([3.0, 5.0, 9.0], np.full(3, 0.4), 0.4, 10.0)
    assert found.area == pytest.approx(0.4) and found.lam == pytest.approx(0)


def test_solved_at_once_after_an_entry_fee() -> None:
    """A fee of a fifth of the budget, then u = 1: E = H / 5 + 4 / 5, Λ = 4 / 5 whatever H below."""
    for head in (0.0, 0.3, 0.8):
        found = charged_area([2.0, 4.0], np.ones(2), head, 10.0)
        assert found.area == pytest.approx(0.2 * head + 0.8)
        assert found.lam == pytest.approx(0.8)
    steep = charged_area([2.0], np.ones(1), 0.9, 10.0)
    assert steep.lam == pytest.approx(0.08 / 0.2), "little headroom counts as .2"


def test_a_line_from_the_start_is_half_of_what_it_reaches() -> None:
    found = charged_area([0.0, 10.0], np.array([0.2, 1.0]), 0.2, 10.0)
    assert found.area == pytest.approx(0.6) and found.lam == pytest.approx(0.5)


def test_a_chain_that_ends_early_holds_its_last_value() -> None:
    early = charged_area([1.0, 3.0], np.array([0.2, 0.6]), 0.2, 10.0)
    # .2 until 1, a line to .6 over 2, then .6 over 7.
    assert early.area == pytest.approx((0.2 * 1 + 0.4 * 2 + 0.6 * 7) / 10)


def test_what_lies_beyond_the_budget_counts_by_the_line_to_it() -> None:
    found = charged_area([0.0, 20.0, 40.0], np.array([0.0, 1.0, 0.0]), 0.0, 10.0)
    assert found.area == pytest.approx(0.25)  # u = x / 20 until 10
    assert charged_area([30.0, 50.0], np.ones(2), 0.25, 10.0).area == pytest.approx(0.25)


def test_a_single_stage_on_the_grid_is_the_area_over_completions() -> None:
    """Where charges are completions and the first evaluation is the start, Λ is the old one."""
    x, u = np.linspace(0.0, 640.0, 11), np.linspace(0.3, 0.9, 11) ** 2
    found = charged_area(x.tolist(), u, float(u[0]), 640.0)
    assert found.area == pytest.approx(area(x, u, 640.0))
    assert found.lam == pytest.approx(captured(area(x, u, 640.0) - u[0], u[0]))


@pytest.mark.parametrize("seed", range(20))
def test_any_curve_against_a_fine_sum(seed: int) -> None:
    generator = np.random.default_rng(seed)
    spent = np.sort(generator.uniform(0.0, 12.0, 6)).tolist()
    u, start, budget = generator.uniform(0, 1, 6).tolist(), 0.35, 10.0
    if seed % 4 == 0:
        spent[3] = spent[2]  # two evaluations at one charge: a jump
    fine = (np.arange(200_000) + 0.5) * budget / 200_000
    by_hand = np.where(fine < spent[0], start, np.interp(fine, spent, u)).mean()
    if spent[2] == spent[3]:
        left = fine < spent[2]
        parts = [
            np.where(fine < spent[0], start, np.interp(fine, spent[:3], u[:3]))[left],
            np.interp(fine, spent[3:], u[3:])[~left],
        ]
        by_hand = np.concatenate(parts).mean()
    assert charged_area(spent, np.array(u), start, budget).area == pytest.approx(by_hand, abs=1e-4)


def test_weights_sum_to_one_and_items_share_them() -> None:
    spent = [1.0, 2.0, 5.0, 30.0]
    weights = charged_weights(spent, 10.0)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    items = np.random.default_rng(0).uniform(0, 1, (7, 4))
    head = np.linspace(0, 0.7, 7)
    found = charged_area(spent, items, head, 10.0)
    assert found.lam.shape == (7,)
    for i in range(7):
        assert charged_area(spent, items[i], head[i], 10.0).lam == pytest.approx(found.lam[i])


@pytest.mark.parametrize(
    ("spent", "budget", "word"),
    [([1.0], 0.0, "budget"), ([], 1.0, "budget"), ([2.0, 1.0], 3.0, "falling"),
     ([-1.0], 3.0, "falling"), ([float("nan")], 3.0, "finite")],
)  # fmt: skip
def test_charges_that_mean_nothing_are_refused(
    spent: list[float], budget: float, word: str
) -> None:
    with pytest.raises(ValidationError, match=word):
        charged_weights(spent, budget)


def test_arrival_needs_two_evaluations_running_or_the_last() -> None:
    assert charge_to_threshold([1, 2, 3, 4], [0.2, 0.6, 0.4, 0.7], 0.5) == 4
    assert charge_to_threshold([1, 2, 3, 4], [0.2, 0.6, 0.6, 0.4], 0.5) == 2
    assert charge_to_threshold([1, 2], [0.2, 0.4], 0.5) is None
