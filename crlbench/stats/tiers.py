"""Ranks that admit what is not known: rank intervals, tiers and the leader's shrunken estimate.

Protocol CRL-1, A.6 point 5. Input are the headline estimates and the all-pairs test of
:mod:`crlbench.stats.swaps`; nothing here looks at a seed.

* The *rank interval* of a model among M is [1 + how many are significantly better,
  M - how many are significantly worse] (Mogstad, Romano, Shaikh and Wilhelm 2024, "Inference
  for ranks"). It holds for all models at once as far as the family-wise error is controlled.
* *Tier* 1 is everyone who is not significantly worse than the leader, its anchor; the next
  tier is found in the same way among the rest. Membership speaks about the anchor only: two
  members of one tier may differ significantly from each other.
* Inside a tier the data support no order. Standings are by name there, and tables by estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.base.added import added_field
from crlbench.errors import ValidationError
from crlbench.stats.swaps import Randomisation

ALPHA = 0.05
"""Nominal family-wise error of a board. Simulated boards of equal models err about as often,
and less often where equal headlines come from other tasks (docs/statistics.md)."""

SHRINKING_NEEDS = 4
"""With fewer models, shrinking towards their mean need not improve (Efron and Morris 1973)."""


@dataclass(frozen=True)
class Standing:
    """One model on a board."""

    model: str
    estimate: float
    tier: int
    ranks: tuple[int, int]
    """Best and worst rank that the data do not exclude."""
    better: tuple[str, ...]
    """Models that are significantly better than this one."""
    worse: tuple[str, ...]
    """Models that are significantly worse than this one."""
    uncompared: tuple[str, ...]
    """Models with which it shares no task; they narrow no rank and leave no tier."""


@dataclass(frozen=True)
class Leader:
    """The anchor of tier 1. It was chosen for being first, so its estimate is too high."""

    model: str
    estimate: float
    shrunken: float | None
    """What is left after the winner's curse, see :func:`shrink`; None where it is unknown."""
    kept: float | None
    """Share of its lead over the pool's mean that is kept, from 0 to 1."""
    reason: str | None
    """Why there is no shrunken estimate."""


@dataclass(frozen=True)
class Ranking:
    """What may be said about the order of the models of a board."""

    standings: tuple[Standing, ...]
    """By tier, then by name; empty where nothing may be said."""
    anchors: tuple[str, ...]
    """The model that each tier is compared with, from tier 1 on."""
    leader: Leader | None
    unrated: tuple[str, ...]
    """Models without a headline estimate; they have no rank."""
    alpha: float
    reason: str | None
    """Why there is no ranking; None where there is one."""
    members: tuple[tuple[str, str], ...] = added_field(())
    """Member and name of its standing, where one standing is that of several."""

    def standing(self, model: str) -> Standing | None:
        """Where one model stands, by its own name or as a member; None without a rank."""
        name = dict(self.members).get(model, model)
        return next((one for one in self.standings if one.model == name), None)

    def first_member(self, name: str) -> str:
        """The first member of a standing; the name itself where it is that of one alone."""
        return next((member for member, of in self.members if of == name), name)

    def by_estimate(self) -> list[Standing]:
        """By tier, and inside a tier from the highest estimate down, as tables show them."""
        return sorted(self.standings, key=lambda one: (one.tier, -one.estimate, one.model))

    def beside_leader(self) -> tuple[list[Standing], list[Standing]]:
        """Of tier 1 without its anchor: who is not shown to be worse than it, and who is.

        A minimum-effect tier holds the second kind where a line above it would part rows that are
        equivalent, or where a row below it is not shown to be worse.
        """
        first = [one for one in self.by_estimate() if one.tier == 1]
        anchor = next((one for one in first if one.model == self.anchors[0]), None)
        if anchor is None:
            return [], []
        rest = [one for one in first if one is not anchor]
        close = [one for one in rest if one.model not in anchor.worse]
        return close, [one for one in rest if one.model in anchor.worse]

    def tier(self, model: str) -> int | None:
        """The tier of one model; None without a rank."""
        standing = self.standing(model)
        return None if standing is None else standing.tier


def rank(
    models: Sequence[str],
    estimates: Sequence[float],
    test: Randomisation,
    alpha: float = ALPHA,
    errors: Sequence[float] | None = None,
) -> Ranking:
    """Rank intervals and tiers of M models.

    Args:
        models: their names, each once, in the order of the rows of ``test``.
        estimates: (M,) headlines; NaN for a model that has none and is not ranked. Such a model
            had better not be in the test either, where its pairs raise the bar for the rest.
        errors: (M,) standard errors for :func:`shrink`; without them nothing is shrunken.

    Raises:
        ValidationError: a name twice, lengths that differ, an infinite estimate.
    """
    values = np.asarray(estimates, dtype=np.float64)
    _check(models, values, test)
    rated = np.flatnonzero(np.isfinite(values))
    unrated = tuple(sorted(models[i] for i in range(len(models)) if i not in set(rated)))
    reason = _silence(len(rated), test, alpha)
    if reason is not None:
        return Ranking((), (), None, unrated, alpha, reason)
    # Alphabetical from here on: what is tied does not depend on the order of the input.
    rated = np.array(sorted(rated, key=lambda i: models[i]))
    names = [models[i] for i in rated]
    values = values[rated]
    adjusted, difference = (part[np.ix_(rated, rated)] for part in (test.adjusted, test.difference))
    beats = significantly_better(adjusted, difference, alpha)
    tier, anchors = tiers(values, beats)
    ranks = rank_intervals(beats)

    def those(mask: np.ndarray) -> tuple[str, ...]:
        return tuple(name for name, chosen in zip(names, mask, strict=True) if chosen)

    standings = [
        Standing(
            model=name,
            estimate=float(values[i]),
            tier=int(tier[i]),
            ranks=(int(ranks[i, 0]), int(ranks[i, 1])),
            better=those(beats[:, i]),
            worse=those(beats[i]),
            uncompared=those(np.isnan(adjusted[i])),
        )
        for i, name in enumerate(names)
    ]
    return Ranking(
        standings=tuple(sorted(standings, key=lambda s: (s.tier, s.model))),
        anchors=tuple(names[i] for i in anchors),
        leader=_leader(names, values, anchors[0], errors, rated),
        unrated=unrated,
        alpha=alpha,
        reason=None,
    )


def significantly_better(adjusted: np.ndarray, difference: np.ndarray, alpha: float) -> np.ndarray:
    """(M, M) True where the row's model is significantly better than the column's.

    The direction is that of the difference on the common tasks, which two headlines over
    different tasks need not have. A pair that was not compared (NaN) differs in no direction.
    """
    return (adjusted <= alpha) & (difference > 0)


def rank_intervals(beats: np.ndarray) -> np.ndarray:
    """(M, 2) best and worst rank from the (M, M) matrix of who beats whom."""
    return np.stack([1 + beats.sum(axis=0), len(beats) - beats.sum(axis=1)], axis=1)


def tiers(estimates: np.ndarray, beats: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """(M,) tier of each model, from 1 on, and the anchors of the tiers.

    The anchor is the highest estimate among those left whom nobody left beats. Where everyone
    is beaten by someone, which models rated on different tasks can bring about, it is the
    highest estimate; the first of equal ones.
    """
    places = np.zeros(len(estimates), dtype=int)
    anchors: list[int] = []
    while not places.all():
        rest = np.flatnonzero(places == 0)
        unbeaten = rest[~beats[np.ix_(rest, rest)].any(axis=0)]
        candidates = unbeaten if len(unbeaten) else rest
        anchor = candidates[np.argmax(estimates[candidates])]
        anchors.append(int(anchor))
        places[rest[~beats[anchor, rest]]] = len(anchors)
    return places, tuple(anchors)


def tiers_of_many(estimates: np.ndarray, beats: np.ndarray) -> np.ndarray:
    """(W, M) what :func:`tiers` gives for W boards of the same models.

    Args:
        estimates: (W, M).
        beats: (W, M, M).
    """
    places = np.zeros(estimates.shape, dtype=int)
    rows, tier = np.arange(len(estimates)), 0
    # Who beats somebody is counted by products: exact, and many times faster than by comparing.
    counted = beats.astype(np.float32)
    while not places.all():
        tier += 1
        rest = places == 0
        beaten = (rest[:, None].astype(np.float32) @ counted)[:, 0] > 0
        unbeaten = rest & ~beaten
        candidates = np.where(unbeaten.any(axis=1)[:, None], unbeaten, rest)
        anchor = np.argmax(np.where(candidates, estimates, -np.inf), axis=1)
        places[rest & ~beats[rows, anchor]] = tier
    return places


def shrink(estimates: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """(M,) shares that empirical Bayes keeps of each model's distance from the pool's mean.

    With x the estimates, c_m the standard error of x_m - mean(x), and models drawn from a
    normal distribution with variance T around the pool's mean::

        T   = max(0, sum (x_m - mean(x))² / (M - 1) - sum c_m² / (M - 1))
        s_m = c_m² M / (M - 1)
        shrunken_m = mean(x) + T / (T + s_m) (x_m - mean(x))

    The second term of T is what the first would be if all models were equal, whatever their
    errors have in common; s_m is the part of a model's error variance that it does not share.
    """
    models = len(estimates)
    around = float(np.sum((estimates - estimates.mean()) ** 2))
    variances = np.asarray(errors, dtype=np.float64) ** 2
    between = max(0.0, (around - float(variances.sum())) / (models - 1))
    noise = variances * models / (models - 1)
    total = between + noise
    # Without noise there is nothing to correct, even where all models are equal.
    return np.divide(between, total, out=np.ones(models), where=noise > 0)


def pool_errors(replicates: np.ndarray, seeds: int) -> np.ndarray:
    """(M,) standard errors of each headline minus the pool's mean headline.

    Args:
        replicates: (M, R) bootstrap replicates of the headlines from shared resamples, so that
            what all models have in common drops out.
        seeds: per task, the fewest; the bootstrap variance of n is (n - 1) / n of the unbiased.

    Raises:
        ValidationError: a single seed, which says nothing about how seeds differ.
    """
    if seeds < 2:
        raise ValidationError("standard errors of the headlines need at least 2 seeds per task")
    deviations = replicates - replicates.mean(axis=0)
    return deviations.std(axis=1) * math.sqrt(seeds / (seeds - 1))


def _leader(
    names: Sequence[str],
    values: np.ndarray,
    anchor: int,
    errors: Sequence[float] | None,
    rated: np.ndarray,
) -> Leader:
    estimate = float(values[anchor])
    reason = None
    rated_errors = None if errors is None else np.asarray(errors, dtype=np.float64)[rated]
    if rated_errors is None or not np.isfinite(rated_errors).all():
        reason = "the standard errors of the estimates are not known"
    elif len(values) < SHRINKING_NEEDS:
        reason = f"fewer than {SHRINKING_NEEDS} models say too little about how models differ"
    if reason is not None:
        return Leader(names[anchor], estimate, None, None, reason)
    shrunken = float(shrink(values, rated_errors)[anchor])
    mean = float(values.mean())
    return Leader(names[anchor], estimate, mean + shrunken * (estimate - mean), shrunken, None)


def _silence(rated: int, test: Randomisation, alpha: float) -> str | None:
    """Why nothing may be said about an order; None where something may."""
    if rated < 2:
        who = "one model has" if rated else "no model has"
        return f"{who} a headline estimate: a rank needs two"
    if test.reason is not None:
        return test.reason
    if test.smallest > alpha:
        return (
            f"no p-value can be below {test.smallest:.3g} with so few tasks and seeds, so that "
            f"at {alpha:g} no difference could be found"
        )
    return None


def _check(models: Sequence[str], values: np.ndarray, test: Randomisation) -> None:
    if not len(models) == len(values) == len(test.adjusted):
        raise ValidationError(
            f"{len(models)} models, {len(values)} estimates and a test of "
            f"{len(test.adjusted)} models do not belong together"
        )
    if len(set(models)) != len(models):
        twice = sorted({name for name in models if list(models).count(name) > 1})
        raise ValidationError(f"models named more than once: {', '.join(twice)}")
    if np.isinf(values).any():
        model = models[int(np.argmax(np.isinf(values)))]
        raise ValidationError(f"model {model}: its estimate is infinite")
