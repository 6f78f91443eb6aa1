"""What was known before: the division of items, the two parts of L, Λ on the new items alone."""

from __future__ import annotations

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.intervals import trimmed_mean
from crlbench.stats.measures import ItemTable
from crlbench.stats.novelty import (
    LEAST_NEW,
    divide,
    is_right,
    known_share,
    learned_parts,
    novelty,
)

SEEDS, ITEMS = 5, 200


def random_table(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    head = generator.integers(0, 5, ITEMS) / 4
    learned = generator.uniform(0, 1, (SEEDS, ITEMS)) - head
    known = generator.random(ITEMS) < 0.5
    return learned, np.broadcast_to(head, learned.shape), known


def test_half_of_the_way_from_floor_to_ceiling_is_right() -> None:
    assert is_right(np.array([-0.1, 0.0, 0.49, 0.5, 1.0])).tolist() == [False] * 3 + [True] * 2


@pytest.mark.parametrize("seed", range(5))
def test_the_two_parts_add_up_and_are_plain_sums_over_items(seed: int) -> None:
    learned, _, known = random_table(seed)
    parts = learned_parts(learned, known)
    assert np.abs(parts.sum(axis=0) - learned.mean(axis=1)).max() < 1e-15
    for i in range(SEEDS):
        by_hand = [0.0, 0.0]
        for j in range(ITEMS):
            by_hand[0 if known[j] else 1] += learned[i, j] / ITEMS
        assert parts[:, i] == pytest.approx(by_hand, abs=1e-12)


def test_lam_new_is_the_same_estimator_on_the_new_items_alone() -> None:
    learned, head, known = random_table(7)
    division = divide(known.astype(float))
    table = ItemTable(learned[:, division.new], head[:, division.new], None, 1.0)
    new = division.new.sum()
    lam = table.lam(np.full((1, new), 1 / new))[0]
    for i in range(SEEDS):
        head_w = sum(head[i, j] for j in range(ITEMS) if not known[j]) / new
        area_w = sum((learned + head)[i, j] for j in range(ITEMS) if not known[j]) / new
        assert lam[i] == pytest.approx((area_w - head_w) / max(1 - head_w, 0.2), abs=1e-12)
    whole = novelty(division, learned, lam, None)
    assert whole.lam_new == pytest.approx(float(trimmed_mean(lam)))
    assert whole.learned == pytest.approx(float(learned.mean()))
    assert not whole.saturated and whole.strict_items is None and not whole.flagged


def test_what_a_failure_adds_to_the_new_items_is_taken_from_the_known_ones() -> None:
    learned, _, known = random_table(5)
    fallen = np.array([0.0, -0.02, 0.0, 0.01, 0.0])
    plain, parts = learned_parts(learned, known), learned_parts(learned, known, fallen)
    assert parts[1] - plain[1] == pytest.approx(fallen, abs=1e-15)
    assert parts.sum(axis=0) == pytest.approx(learned.mean(axis=1), abs=1e-15)
    assert np.array_equal(parts[:, fallen == 0], plain[:, fallen == 0])


def test_too_few_new_items_are_saturated() -> None:
    learned, _, _ = random_table(1)
    greedy = np.ones(ITEMS)
    greedy[: LEAST_NEW - 1] = 0
    assert novelty(divide(greedy), learned, None, None).saturated
    greedy[LEAST_NEW - 1] = 0
    assert not novelty(divide(greedy), learned, None, None).saturated


def test_a_second_choice_is_right_in_two_of_32_draws() -> None:
    greedy = np.array([1.0, 0.0, 0.0, 0.0])
    draws = np.zeros((32, 4))
    draws[:2, 0] = draws[:1, 1] = draws[:2, 2] = 1
    division = divide(greedy, draws)
    assert division.known.tolist() == [True, False, False, False]
    assert division.second.tolist() == [False, False, True, False]
    assert division.strict.tolist() == [False, True, False, True]
    assert division.second_share == 0.25


def test_other_numbers_of_draws_are_refused() -> None:
    with pytest.raises(ValidationError, match="32 draws"):
        divide(np.ones(4), np.ones((4, 4)))


def test_a_gap_to_the_strict_set_is_flagged() -> None:
    learned, _, known = random_table(2)
    division = divide(known.astype(float), np.zeros((32, ITEMS)))
    lam = np.full(SEEDS, 0.5)
    assert novelty(division, learned, lam, lam - 0.11).flagged
    assert not novelty(division, learned, lam, lam - 0.09).flagged


def test_shares_of_several_tasks_weigh_by_what_was_learned() -> None:
    learned, _, known = random_table(3)
    one = novelty(divide(known.astype(float)), np.abs(learned), None, None)
    two = novelty(divide(np.ones(ITEMS)), 3 * np.abs(learned), None, None)
    expected = (one.known + two.known) / (one.learned + two.learned)
    assert known_share([one, two]) == pytest.approx(expected)
    assert known_share([novelty(divide(np.ones(ITEMS)), -np.abs(learned), None, None)]) is None
    assert known_share([]) is None
