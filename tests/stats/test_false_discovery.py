"""The false-discovery line of Benjamini and Yekutieli."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from crlbench.errors import ValidationError
from crlbench.stats.false_discovery import adjust, difference_p, discoveries, equivalence_p


@pytest.mark.parametrize("count", [1, 2, 28, 110, 1260])
def test_q_values_are_statsmodels(count: int) -> None:
    generator = np.random.default_rng(count)
    p = generator.random(count) ** 3
    p[: count // 4] = p[0]
    rejected, q, _, _ = multipletests(p, 0.05, method="fdr_by")
    found = adjust(p)
    assert found == pytest.approx(q, rel=1e-12)
    assert ((found <= 0.05) == rejected).all()


def test_three_by_hand() -> None:
    """m c(m) = 3 (1 + 1/2 + 1/3) = 5.5."""
    assert adjust([0.02, 0.001, 0.5]) == pytest.approx([0.02 * 5.5 / 2, 0.001 * 5.5, 0.5 * 5.5 / 3])
    assert adjust([0.9, 0.95]).tolist() == [1.0, 1.0]
    assert adjust([]).shape == (0,)


def test_what_was_not_tested_is_not_counted() -> None:
    found = adjust([0.01, math.nan, 0.03])
    assert found[[0, 2]] == pytest.approx(adjust([0.01, 0.03]))
    assert np.isnan(found[1])
    with pytest.raises(ValidationError, match="between 0 and 1"):
        adjust([0.5, 1.2])


def test_p_values_are_scipys() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(0.02, 0.03, (6, 9))
    value, error = rows.mean(axis=1), stats.sem(rows, axis=1)
    wanted = stats.ttest_1samp(rows, 0.0, axis=1).pvalue
    assert difference_p(value, error, 8) == pytest.approx(wanted)
    above = stats.ttest_1samp(rows, -0.05, axis=1, alternative="greater").pvalue
    below = stats.ttest_1samp(rows, 0.05, axis=1, alternative="less").pvalue
    assert equivalence_p(value, error, 8, 0.05) == pytest.approx(np.maximum(above, below))


def test_no_error_leaves_no_doubt() -> None:
    value, error = np.array([0.0, 0.2, -0.2, 0.05]), np.zeros(4)
    assert difference_p(value, error, 5).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert equivalence_p(value, error, 5, 0.05).tolist() == [0.0, 1.0, 1.0, 0.5]


def test_a_pair_that_was_not_compared_has_no_verdict() -> None:
    line = discoveries(np.array([0.2, 0.02]), np.full(2, math.nan), 16, 0.05)
    assert (line.differ, line.differ_stay, line.equivalent, line.equivalent_stay) == (0, 0, 0, 0)
    assert np.isnan(line.q_differ).all() and np.isnan(line.q_equivalent).all()


def test_without_a_page_verdicts_are_those_of_the_tests() -> None:
    """Equivalence is asked first, as in a verdict; both hypotheses of every pair are counted."""
    value = np.array([0.2, 0.02, 0.0, 0.04, math.nan])
    error = np.array([0.01, 0.008, 0.005, 0.03, 0.01])
    line = discoveries(value, error, 20, 0.05)
    q = adjust(
        np.concatenate([difference_p(value, error, 20), equivalence_p(value, error, 20, 0.05)])
    )
    assert line.q_differ == pytest.approx(q[:5], nan_ok=True)
    assert line.q_equivalent == pytest.approx(q[5:], nan_ok=True)
    # The second pair differs by its own test too, and is equivalent all the same.
    assert difference_p(value, error, 20)[1] < 0.05
    assert line.says_different.tolist() == [True, False, False, False, False]
    assert line.says_equivalent.tolist() == [False, True, True, False, False]
    assert line.stays.tolist() == [True, True, True, False, False]
    assert (line.differ, line.differ_stay) == (1, 1)
    assert (line.equivalent, line.equivalent_stay) == (2, 2)
    strict = discoveries(value, error, 20, 0.05, rate=1e-9)
    assert (strict.differ_stay, strict.equivalent_stay) == (1, 0)


def test_verdicts_near_the_rate_stay_or_fall_by_their_own_hypothesis() -> None:
    """Ten pairs: a difference with p of .012 has q of .29 and falls; one with 1e-5 stays. A pair
    that is equivalent stays by the p-value of equivalence, however little it differs."""
    t = stats.t.ppf(1 - np.array([0.006, 5e-6]), 30)
    value = np.concatenate([t * 0.01, [0.0], np.linspace(0.05, 0.06, 7)])
    error = np.array([0.01, 0.01, 0.001, *[0.04] * 7])
    line = discoveries(value, error, 30, 0.0201)
    assert line.says_different.tolist() == [True, True] + [False] * 8
    assert line.says_equivalent.tolist() == [False, False, True] + [False] * 7
    assert line.stays.tolist() == [False, True, True] + [False] * 7
    assert (line.differ, line.differ_stay, line.equivalent, line.equivalent_stay) == (2, 1, 1, 1)
    m, harmonic = 20, sum(1 / j for j in range(1, 21))
    assert line.q_differ[1] == pytest.approx(1e-5 * m * harmonic / 2)
    # The hypothesis that was not rejected does not keep a verdict.
    assert line.q_equivalent[0] > 0.9 and line.q_differ[2] == 1.0


def test_a_page_says_its_own_verdicts() -> None:
    value = np.array([0.2, 0.2, 0.001, 0.001, 0.2])
    error = np.array([0.01, 0.01, 0.005, 0.005, math.nan])
    verdicts = ["better", "undecided", "equivalent", "undecided", "worse"]
    line = discoveries(value, error, 20, 0.05, verdicts=verdicts)
    assert line.says_different.tolist() == [True, False, False, False, True]
    assert line.says_equivalent.tolist() == [False, False, True, False, False]
    # What is undecided does not stay, and neither does a verdict without a p-value.
    assert line.stays.tolist() == [True, False, True, False, False]
    assert (line.differ, line.differ_stay, line.equivalent, line.equivalent_stay) == (2, 1, 1, 1)
    tests = discoveries(value, error, 20, 0.05)
    assert line.q_differ == pytest.approx(tests.q_differ, nan_ok=True)
    with pytest.raises(ValidationError, match="1 verdicts for 5 pairs"):
        discoveries(value, error, 20, 0.05, verdicts=["better"])


def test_all_axes_of_a_page_are_one_family() -> None:
    """A difference that stays on its own axis falls when 500 further tests stand beside it."""
    value, error = np.array([0.042]), np.array([0.01])
    alone = discoveries(value, error, 30, 0.01)
    assert alone.stays.tolist() == [True]
    more = np.concatenate([value, np.full(250, 0.005)])
    errors = np.concatenate([error, np.full(250, 0.02)])
    margins = np.concatenate([[0.01], np.full(250, 0.02)])
    page = discoveries(more, errors, 30, margins)
    assert page.says_different[0] and not page.stays[0]
    equal = [equivalence_p(value, error, 30, 0.01), equivalence_p(more[1:], errors[1:], 30, 0.02)]
    p = np.concatenate([difference_p(more, errors, 30), *equal])
    assert page.q_equivalent == pytest.approx(adjust(p)[251:])


def test_the_false_share_of_dependent_verdicts_stays_below_the_rate() -> None:
    """28 pairs of 8 entries, half of them equal; 1,000 boards, every true difference large."""
    generator, boards = np.random.default_rng(3), 1000
    true = np.array([0, 0, 0, 0, 0.4, 0.8, 1.2, 1.6])
    first, second = np.triu_indices(8, 1)
    same = true[first] == true[second]
    shares, alone = [], []
    for _ in range(boards):
        rows = true[:, None] + generator.normal(size=(8, 12)) * 0.5
        d = rows[first] - rows[second]
        p = difference_p(d.mean(axis=1), stats.sem(d, axis=1), 11)
        for kept, found in ((adjust(p) <= 0.05, shares), (p <= 0.05, alone)):
            found.append((kept & same).sum() / max(1, kept.sum()))
    assert np.mean(shares) <= 0.05 * 6 / 28 + 0.008
    assert np.mean(alone) > np.mean(shares)
