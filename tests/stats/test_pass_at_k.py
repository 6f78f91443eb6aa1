"""pass@k against every subset of draws, and correlations against ranks by hand."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.correlations import correlations, mean_ranks, spearman
from crlbench.stats.pass_at_k import KS, pass_at_k, pass_scores


@pytest.mark.parametrize("right", range(7))
@pytest.mark.parametrize("k", range(1, 7))
def test_the_closed_form_is_the_mean_over_all_subsets(right: int, k: int) -> None:
    draws = [True] * right + [False] * (6 - right)
    subsets = [any(subset) for subset in combinations(draws, k)]
    assert float(pass_at_k(np.array(right), 6, k)) == pytest.approx(sum(subsets) / len(subsets))


@pytest.mark.parametrize(("draws", "ks"), [(32, (1, 4, 8, 32)), (64, (1, 4, 8, 32, 64))])
def test_as_with_binomial_coefficients(draws: int, ks: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    right = generator.random((draws, 50)) < generator.random(50)
    scores = pass_scores(right)
    assert tuple(scores) == ks and set(ks) <= {*KS}
    for k in ks:
        by_hand = [1 - comb(draws - int(c), k) / comb(draws, k) for c in right.sum(axis=0)]
        assert scores[k] == pytest.approx(sum(by_hand) / 50, abs=1e-12)
    assert scores[1] == pytest.approx(right.mean())
    assert list(scores.values()) == sorted(scores.values())


def test_fewer_draws_give_fewer_k() -> None:
    assert tuple(pass_scores(np.ones((8, 3), dtype=bool))) == (1, 4, 8)
    with pytest.raises(ValidationError, match="pass@33"):
        pass_at_k(np.array(1), 32, 33)


def test_ranks_of_ties_are_shared() -> None:
    assert mean_ranks([5.0, 1.0, 5.0, 2.0]).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_spearman_without_ties_is_the_formula_of_squared_rank_differences() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.random(11), generator.random(11)
    places = [[sorted(x).index(v) for v in x] for x in (a.tolist(), b.tolist())]
    squares = sum((p - q) ** 2 for p, q in zip(*places, strict=True))
    assert spearman(a, b) == pytest.approx(1 - 6 * squares / (11 * (11**2 - 1)))
    assert spearman(a, -a) == pytest.approx(-1.0)
    assert spearman(a, np.ones(11)) is None


def test_axes_that_order_alike_are_named() -> None:
    one = [0.1, 0.2, 0.3, 0.4, 0.5]
    pairs = correlations({"a": one, "b": [x**2 for x in one], "c": [0.3, 0.1, None, 0.5, 0.2]})
    assert [(p.first, p.second, p.n, p.one) for p in pairs] == [
        ("a", "b", 5, True), ("a", "c", 4, False), ("b", "c", 4, False)
    ]


def test_three_entries_have_no_correlation() -> None:
    (pair,) = correlations({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
    assert pair.rho is None and not pair.one
