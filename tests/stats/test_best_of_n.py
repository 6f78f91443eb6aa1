"""Best-of-n against every subset and every sequence of draws; votes and reward figures by hand."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.best_of_n import (
    SUBSETS,
    auc,
    best_of_n,
    chosen_shares,
    kl_bound,
    kl_of_best,
    majority,
    within_variance,
    wrong_at_top,
)

PROXY = [0.1, 0.7, 0.7, 0.3, 0.9, 0.3]
GOLD = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
TEXTS = ["a", "b", "c", "d", "e", "d"]


def best(subset: tuple[int, ...]) -> list[int]:
    most = max(PROXY[i] for i in subset)
    return [i for i in subset if PROXY[i] == most]


@pytest.mark.parametrize("n", range(1, 7))
def test_the_closed_form_is_the_mean_over_all_subsets(n: int) -> None:
    subsets = list(combinations(range(6), n))
    by_hand = [0.0] * 6
    for subset in subsets:
        for i in best(subset):
            by_hand[i] += 1 / len(best(subset)) / len(subsets)
    shares = chosen_shares(np.array([PROXY]), n)[0]
    assert shares == pytest.approx(by_hand)
    assert shares.sum() == pytest.approx(1)
    value = best_of_n(np.array([PROXY]), np.array([GOLD]), n)[0]
    assert value == pytest.approx(sum(g * s for g, s in zip(GOLD, by_hand, strict=True)))


@pytest.mark.parametrize("n", range(1, 5))
def test_the_kl_is_that_of_every_sequence_of_n_draws(n: int) -> None:
    chance: dict[str, float] = {}
    for sequence in product(range(6), repeat=n):
        won = best(sequence)
        for i in won:
            chance[TEXTS[i]] = chance.get(TEXTS[i], 0.0) + 1 / len(won) / 6**n
    p = {text: TEXTS.count(text) / 6 for text in TEXTS}
    by_hand = sum(q * math.log(q / p[text]) for text, q in chance.items())
    assert kl_of_best(np.array([PROXY]), [TEXTS], n)[0] == pytest.approx(by_hand)
    assert by_hand <= kl_bound(n)


def test_without_ties_the_kl_reaches_the_bound_and_with_ties_it_stays_below() -> None:
    many = np.arange(4096)[None] / 4096
    texts = [[str(i) for i in range(4096)]]
    for n in (2, 8, 32):
        assert kl_of_best(many, texts, n)[0] == pytest.approx(kl_bound(n), abs=0.01)
    tied = np.repeat([[0.0, 1.0]], 32, axis=1)
    assert kl_of_best(tied, [["a"] * 32 + ["b"] * 32], 64)[0] == pytest.approx(math.log(2))
    assert kl_bound(64) > 3


def test_equal_texts_of_an_item_have_one_proxy() -> None:
    with pytest.raises(ValidationError, match=r"item 0: .* 0\.1 and 0\.2"):
        kl_of_best(np.array([[0.1, 0.2]]), [["a", "a"]], 2)


def test_votes_of_all_draws_and_of_one_by_hand() -> None:
    answers = [["7", "7", "8", "8", "9", "7", "9", "5"], ["1", "1", "2", "2", "3", "3", "4", "4"]]
    value = np.array([[0.0] * 8, [1.0, 1, 0, 0, 0, 0, 0, 0]])
    value[0, [2, 3]] = 1.0
    assert majority(answers, value, 8) == pytest.approx([0.0, 0.25])  # 7 wins; four answers tie
    assert majority(answers, value, 1) == pytest.approx(value.mean(1))
    weights = np.array([[0.1, 0.1, 0.9, 0.8, 0.1, 0.1, 0.1, 0.1], [0.2, 0.1] + [0.1] * 6])
    assert majority(answers, value, 8, weights) == pytest.approx([1.0, 1.0])


def test_votes_of_some_draws_are_near_the_mean_over_all_subsets() -> None:
    """Seven of ten draws are right and the wrong ones differ; 64 subsets of 120, over 50 items."""
    answers = [["r"] * 7 + ["x", "y", "z"]] * 50
    value = np.array([[1.0] * 7 + [0.0] * 3] * 50)
    by_hand = []
    for subset in combinations(range(10), 3):
        right = sum(i < 7 for i in subset)
        # One right vote ties with two different wrong ones.
        by_hand.append({3: 1.0, 2: 1.0, 1: 1 / 3, 0: 0.0}[right])
    exact = sum(by_hand) / len(by_hand)
    spread = np.std(by_hand) / math.sqrt(50 * SUBSETS)
    assert majority(answers, value, 3).mean() == pytest.approx(exact, abs=4 * spread)


def test_votes_have_the_same_bits_again_and_weights_of_one_change_nothing() -> None:
    generator = np.random.default_rng(0)
    answers = [[str(a) for a in row] for row in generator.integers(0, 4, (20, 16))]
    value = (generator.random((20, 16)) < 0.4).astype(float)
    votes = majority(answers, value, 4)
    assert np.array_equal(votes, majority(answers, value, 4, np.ones((20, 16))))
    assert not np.array_equal(votes, majority(answers, value, 4, key="others"))


@pytest.mark.parametrize("n", [0, 7])
def test_n_is_at_most_the_draws(n: int) -> None:
    with pytest.raises(ValidationError, match=f"best of {n} of 6"):
        best_of_n(np.array([PROXY]), np.array([GOLD]), n)
    with pytest.raises(ValidationError, match=f"votes of {n} of 6"):
        majority([TEXTS], np.array([GOLD]), n)


def test_figures_of_a_reward_model_by_hand() -> None:
    proxy = np.array([[0.9, 0.5, 0.1, 0.5], [0.2, 0.2, 0.2, 0.2]])
    gold = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    # Of the four pairs of the first item two are lost to .9 and two won from .1.
    assert auc(proxy, gold) == pytest.approx(0.5)
    assert auc(proxy[1:], gold[1:]) is None
    assert auc(np.array([[0.4, 0.4]]), np.array([[0.0, 1.0]])) == pytest.approx(0.5)
    assert within_variance(proxy) == pytest.approx(0.08 / 2)
    assert wrong_at_top(proxy, gold) == pytest.approx(1.0)
    # A quarter is two places: .9, and one of the two right ones at .5.
    assert wrong_at_top(proxy, gold, 1 / 4) == pytest.approx(0.5)
