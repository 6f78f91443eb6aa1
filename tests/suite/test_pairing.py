"""Which completions become pairs, by hand."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from crlbench.suite.pairing import PAIRINGS

SCORES = [0.0, 1.0, 0.5, 1.0]


def pairs(pairing: str, scores: list[float], seed: int = 1) -> list[tuple[int, int]]:
    return PAIRINGS[pairing](scores, random.Random(seed))


def test_the_best_stands_above_the_worst() -> None:
    assert pairs("best-worst", SCORES) == [(1, 0)]
    assert pairs("best-worst", [0.5, 0.0, 0.0]) == [(0, 1)]


def test_all_ordered_are_all_that_are_no_tie() -> None:
    assert pairs("all-ordered", SCORES) == [(1, 0), (1, 2), (2, 0), (3, 0), (3, 2)]


def test_a_random_pair_is_drawn_evenly() -> None:
    drawn = Counter(pairs("random-mixed", SCORES, seed)[0] for seed in range(2000))
    assert set(drawn) == {(1, 0), (1, 2), (2, 0), (3, 0), (3, 2)}
    # Binomial with p = 1/5: four standard deviations are 72.
    assert all(abs(times - 400) < 72 for times in drawn.values())


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_ties_are_no_pair(pairing: str) -> None:
    assert pairs(pairing, [1.0, 1.0, 1.0]) == pairs(pairing, [1.0]) == pairs(pairing, []) == []
