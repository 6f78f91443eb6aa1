"""Tiers and rank intervals on boards made by hand, the winner's curse, and what is not said."""

from __future__ import annotations

import os

import numpy as np
import pytest

from crlbench.errors import ValidationError
from crlbench.stats.intervals import (
    Stratum,
    resample,
    task_balanced_iqm,
    trimmed_mean,
)
from crlbench.stats.swaps import Randomisation, randomise
from crlbench.stats.tiers import ALPHA, pool_errors, rank, shrink, tiers, tiers_of_many
from crlbench.verdict.ranking import _moments

FULL = bool(os.environ.get("CRLBENCH_FULL"))
BOARDS = 2000 if FULL else 100
"""Simulated boards of each simulation."""
COUNT = 2000 if FULL else 400


def outcome(models: str, wins: str = "", unknown: str = "", smallest: float = 1e-4):
    """A test of one-letter models: ``wins`` and ``unknown`` are pairs such as "ac bc"."""
    size = len(models)
    difference, adjusted = np.zeros((size, size)), np.full((size, size), 0.5)
    np.fill_diagonal(adjusted, 1.0)
    for winner, loser in wins.split():
        i, j = models.index(winner), models.index(loser)
        adjusted[i, j] = adjusted[j, i] = ALPHA
        difference[i, j], difference[j, i] = 1.0, -1.0
    for one, other in unknown.split():
        i, j = models.index(one), models.index(other)
        adjusted[[i, j], [j, i]] = difference[[i, j], [j, i]] = np.nan
    none = np.zeros((size, size))
    return Randomisation(difference, none, adjusted, adjusted, none, 9999, False, smallest)


def tiers_of(models: str, estimates, wins: str = "", unknown: str = "") -> str:
    """Members of each tier, such as "ab c"."""
    found = rank(list(models), estimates, outcome(models, wins, unknown))
    count = max(s.tier for s in found.standings)
    assert found.reason is None and len(found.anchors) == count
    return " ".join(
        "".join(s.model for s in found.standings if s.tier == tier) for tier in range(1, count + 1)
    )


@pytest.mark.parametrize(
    ("models", "estimates", "wins", "expected"),
    [
        ("abc", [3, 2, 1], "", "abc"),
        ("abc", [3, 2, 1], "ac bc", "ab c"),
        ("abc", [3, 2, 1], "ab ac bc", "a b c"),
        ("cba", [3, 2, 1], "", "abc"),
        ("cba", [3, 2, 1], "cb ca", "c ab"),
        # a and b alike, b and c alike, a better than c: c is judged by a alone.
        ("abc", [3, 2, 1], "ac", "ab c"),
        # d is beaten by b, a member of tier 1, but not by its anchor.
        ("abcd", [4, 3, 2, 1], "bd", "abcd"),
        # The second tier has an anchor of its own.
        ("abcde", [5, 4, 3, 2, 1], "ab ac ad ae ce be", "a bcd e"),
    ],
)
def test_tiers(models: str, estimates, wins: str, expected: str):
    assert tiers_of(models, estimates, wins) == expected


def test_who_is_beaten_leads_no_tier():
    """Headlines over different tasks may disagree with the comparison on the common ones."""
    assert tiers_of("abc", [3, 2, 1], "ba") == "bc a"
    found = rank(list("abc"), [3, 2, 1], outcome("abc", "ba"))
    assert found.anchors == ("b", "a") and found.leader.model == "b"


def test_a_circle_is_led_by_the_highest_estimate():
    assert tiers_of("abc", [1, 2, 3], "ab bc ca") == "bc a"
    assert tiers_of("abc", [3, 2, 1], "ab bc ca") == "ac b"


def test_rank_intervals_and_names():
    found = rank(list("dcba"), [4, 3, 2, 1], outcome("dcba", "db da ca"))
    by_name = {s.model: s for s in found.standings}
    assert [s.model for s in found.standings] == ["c", "d", "a", "b"]
    assert {name: s.ranks for name, s in by_name.items()} == {
        "d": (1, 2),
        "c": (1, 3),
        "b": (2, 4),
        "a": (3, 4),
    }
    assert by_name["a"].better == ("c", "d") and by_name["a"].worse == ()
    assert by_name["d"].worse == ("a", "b")
    assert by_name["d"].estimate == 4.0 and found.leader.model == "d"


def test_the_level_decides():
    test = outcome("ab", "ab")
    assert rank(list("ab"), [2, 1], test).standings[1].tier == 2
    assert rank(list("ab"), [2, 1], test, alpha=ALPHA / 2).standings[1].tier == 1


def test_order_of_the_input_does_not_matter():
    order = [2, 0, 3, 1]
    models, estimates = "abcd", np.array([2.0, 2.0, 1.0, 0.0])
    test = outcome(models, "ac ad bd")
    mixed = outcome("".join(models[i] for i in order), "ac ad bd")
    straight = rank(list(models), estimates, test, errors=np.full(4, 0.1))
    assert straight == rank(
        [models[i] for i in order], estimates[order], mixed, errors=np.full(4, 0.1)
    )
    assert straight.anchors[0] == "a"


def test_pairs_without_a_common_task_narrow_nothing():
    found = rank(list("abc"), [3, 2, 1], outcome("abc", "ab", unknown="ac"))
    by_name = {s.model: s for s in found.standings}
    assert by_name["a"].uncompared == ("c",) and by_name["c"].uncompared == ("a",)
    assert by_name["c"].ranks == (1, 3) and by_name["c"].tier == 1


def test_unrated_models_have_no_rank():
    found = rank(list("abc"), [np.nan, 2, 1], outcome("abc", "ab ac bc"))
    assert found.unrated == ("a",)
    assert [(s.model, s.tier, s.ranks) for s in found.standings] == [
        ("b", 1, (1, 1)),
        ("c", 2, (2, 2)),
    ]


@pytest.mark.parametrize(
    ("models", "estimates", "test", "reason"),
    [
        ("", [], randomise([], ()), "no model has"),
        ("a", [1.0], randomise([np.ones((1, 5))], ("t",)), "one model has"),
        ("ab", [1.0, np.nan], outcome("ab", "ab"), "one model has"),
        ("ab", [2.0, 1.0], randomise([np.ones((2, 1))], ("t",)), "fewer than 2 seeds"),
        ("ab", [2.0, 1.0], randomise([np.eye(2, 4)], ("t",)), "no p-value can be below 0.125"),
    ],
)
def test_what_cannot_be_said_is_not_said(models: str, estimates, test, reason: str):
    found = rank(list(models), estimates, test)
    assert found.reason.startswith(reason)
    assert found.standings == found.anchors == () and found.leader is None


@pytest.mark.parametrize(
    ("models", "estimates", "message"),
    [
        ("aab", [1, 2, 3], "more than once: a"),
        ("ab", [1, 2, 3], "do not belong together"),
        ("abc", [1, np.inf, 3], "model b: its estimate"),
    ],
)
def test_bad_input_is_refused(models: str, estimates, message: str):
    with pytest.raises(ValidationError, match=message):
        rank(list(models), estimates, outcome("abc"))


def test_shrinking_follows_its_formula():
    x, c = np.array([1.0, 2, 3, 6]), np.array([0.1, 0.2, 0.3, 0.4])
    between = (x.var(ddof=1) * 3 - (c**2).sum()) / 3
    np.testing.assert_allclose(shrink(x, c), between / (between + c**2 * 4 / 3))
    found = rank(list("abcd"), x, outcome("abcd"), errors=c).leader
    assert found.model == "d" and found.reason is None
    assert found.shrunken == pytest.approx(3 + found.kept * 3)
    np.testing.assert_array_equal(shrink(x, 5 + c), 0.0)
    np.testing.assert_array_equal(shrink(x, 0 * c), 1.0)
    np.testing.assert_array_equal(shrink(np.ones(4), 0 * c), 1.0)


@pytest.mark.parametrize(
    ("models", "errors", "reason"),
    [
        ("abcd", None, "standard errors"),
        ("abcd", [0.1, 0.1, 0.1, np.nan], "standard errors"),
        ("abc", [0.1] * 3, "fewer than 4 models"),
    ],
)
def test_no_shrunken_estimate_without_what_it_needs(models: str, errors, reason: str):
    leader = rank(list(models), range(len(models)), outcome(models), errors=errors).leader
    assert leader.shrunken is leader.kept is None and reason in leader.reason


def test_what_all_models_share_is_no_error_of_their_order():
    generator = np.random.default_rng(1)
    common, own = generator.normal(size=4000), generator.normal(0, 0.1, (5, 4000))
    assert pool_errors(own + common, 5) == pytest.approx(pool_errors(own, 5))
    assert pool_errors(own, 5) == pytest.approx(0.1 * np.sqrt(0.8 * 5 / 4), rel=0.05)
    with pytest.raises(ValidationError, match="at least 2 seeds"):
        pool_errors(own, 1)


def leads(spread: float, boards: int) -> tuple[float, float]:
    """Mean error of the leader's estimate, as it stands and shrunken; 20 models, 4 x 5 seeds."""
    generator = np.random.default_rng(int(100 * spread))
    raw, less = [], []
    for _ in range(boards):
        truth = generator.normal(0, spread, 20)
        values = [truth[:, None] + generator.normal(0, 0.1, (20, 5)) for _ in range(4)]
        estimates = sum(trimmed_mean(rows) for rows in values) / 4
        errors = pool_errors(headlines(values, 200), 5)
        leader = int(np.argmax(estimates))
        kept = shrink(estimates, errors)[leader]
        mean = estimates.mean()
        raw.append(estimates[leader] - truth[leader])
        less.append(mean + kept * (estimates[leader] - mean) - truth[leader])
    return float(np.mean(raw)), float(np.mean(less))


def headlines(values, count: int) -> np.ndarray:
    """(M, R) headlines of every model from shared resamples."""
    return np.stack(
        [
            sum(
                trimmed_mean(resample(Stratum(f"t{k}", rows[m]), count))
                for k, rows in enumerate(values)
            )
            / len(values)
            for m in range(len(values[0]))
        ]
    )


@pytest.mark.parametrize(
    "spread", [0.03, *(pytest.param(spread, marks=pytest.mark.slow) for spread in (0.0, 0.2))]
)
def test_shrinking_takes_most_of_the_winners_curse_away(spread: float):
    raw, less = leads(spread, boards=400 if FULL else 40)
    assert raw > 0.02 or spread > 0.1
    assert abs(less) < max(0.35 * raw, 0.01)


def test_true_ranks_lie_in_their_intervals():
    """All of them at once, on at least about 95 % of boards."""
    generator = np.random.default_rng(5)
    names, truth = list("abcdefgh"), np.repeat([0.0, 0.08, 0.16, 0.24], 2)
    missed = 0
    for _ in range(BOARDS):
        values = [
            truth[:, None]
            + 0.1
            * (
                np.sqrt(0.3) * generator.normal(size=5)
                + np.sqrt(0.7) * generator.normal(size=(8, 5))
            )
            for _ in range(4)
        ]
        estimates = [task_balanced_iqm([rows[m] for rows in values]) for m in range(8)]
        found = rank(names, estimates, randomise(values, "wxyz", replicates=COUNT))
        for standing in found.standings:
            own = truth[names.index(standing.model)]
            best, worst = 1 + (truth > own).sum(), 8 - (truth < own).sum()
            if not (standing.ranks[0] <= best and worst <= standing.ranks[1]):
                missed += 1
                break
    rate = 0.065
    assert missed / BOARDS <= rate + 1.645 * np.sqrt(rate * (1 - rate) / BOARDS)


def test_many_boards_at_once_are_the_boards_one_by_one():
    generator = np.random.default_rng(6)
    estimates = generator.integers(0, 4, (50, 6)).astype(float)
    beats = generator.random((50, 6, 6)) < 0.3
    beats &= ~beats.transpose(0, 2, 1)
    expected = [tiers(one, who)[0] for one, who in zip(estimates, beats, strict=True)]
    np.testing.assert_array_equal(tiers_of_many(estimates, beats), expected)


def test_standard_errors_of_reweighted_headlines():
    """As of the reweighted seeds themselves; a task with one seed is left out, as in the test."""
    generator = np.random.default_rng(8)
    a = {task: generator.random((n, 5)) for task, n in (("x", 5), ("y", 4), ("z", 3))}
    b = {task: generator.random((n, 5)) for task, n in (("x", 5), ("y", 4), ("z", 1))}
    mean, inside, from_zero = (found[0] for found in _moments([a, b], "wxyz"))
    for weights in generator.normal(size=(5, 5)):
        tasks = [(a[task] - b[task]) @ weights for task in "xy"]
        assert mean @ weights == pytest.approx(np.mean([d.mean() for d in tasks]))
        own = sum(d.var(ddof=1) / len(d) for d in tasks) / 4
        assert weights @ inside @ weights == pytest.approx(own)
        square = sum(np.mean(d**2) / (len(d) - 1) for d in tasks) / 4
        assert weights @ from_zero @ weights == pytest.approx(square)
