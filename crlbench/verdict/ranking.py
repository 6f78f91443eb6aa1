"""Who ranks where on an axis: the label-swap test of each axis, and how firm its tiers are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crlbench.base.added import added_field
from crlbench.base.parallel import spread
from crlbench.stats.generalization import WEIGHTS, weightings
from crlbench.stats.intervals import (
    MIN_SEEDS,
    REPLICATES,
    plain_mean,
    trimmed_mean,
)
from crlbench.stats.pair_statistics import FLOOR
from crlbench.stats.stability_shares import headline, shares, swapped_differences
from crlbench.stats.stress import COLUMNS, rows_headline, swapped_stress_differences
from crlbench.stats.swaps import SWAP_SEED, Randomisation, Tested, randomise
from crlbench.stats.tiers import ALPHA, Ranking, Standing, pool_errors, rank, tiers_of_many
from crlbench.verdict.axes import Axis
from crlbench.verdict.design_ranking import AxisDesigns

WEIGHTINGS = 64
"""Re-weightings that are looked at together: with 200 models they take 100 MB."""
MANY = 40
"""Models from which on several processes look at re-weightings."""


@dataclass(frozen=True)
class AxisRanking:
    """The entries of one recipe on one axis."""

    axis: Axis
    recipe: str
    ranking: Ranking
    """Names are those of entries; ``ranking.reason`` says why there is none."""
    left_out: tuple[str, ...]
    """Entries of the recipe that do not rank."""
    survival: dict[str, float] | None
    """Generalization only: per entry the share of 2,000 random re-weightings of the four λ under
    which it stays in its tier; None on the other axes and where there is no ranking."""
    designs: AxisDesigns | None = added_field(None)
    """The rows of a board of protocol CRL-2, whose names the ranking has."""

    def standing_of(self, entry: str) -> Standing | None:
        """The standing of an entry; of a checkpoint that of its design, if it counts there."""
        rows = () if self.designs is None else self.designs.rows
        if any(one.entry == entry and not one.counts for row in rows for one in row.checkpoints):
            return None
        return self.ranking.standing(entry)


@dataclass(frozen=True)
class Contestant:
    """What the ranking of an axis needs of one entry."""

    name: str
    value: float
    seeds: Mapping[str, np.ndarray]
    """Per task that counts (n,) numbers, for stability (n, 5) columns or (n, 10) with a stress arm;
    the prefix of seeds."""
    drawn: np.ndarray
    """(R,) replicates of the headline."""
    spread: np.ndarray
    """(3, R) its parts, see :func:`crlbench.stats.resampling.spread`."""
    parts: Mapping[str, np.ndarray] | None = None
    """Generalization: per task (n, 5) the four λ and corrected Fgt."""
    weights: tuple[float, ...] = WEIGHTS
    """Generalization: of the four λ, by the board's protocol."""


class Tests(Protocol):
    """Keeps the test of an axis for the ranking of these entries and more."""

    def before(self, names: Sequence[str]) -> tuple[Tested, np.ndarray] | None:
        """An earlier test of some of these entries, and where they are among them, in ascending
        order; None where there is none."""

    def keep(self, names: Sequence[str], tested: Tested) -> None:
        """Take the test of these entries."""


def rank_axis(
    axis: Axis,
    recipe: str,
    contestants: Sequence[Contestant],
    unrated: Sequence[str],
    left_out: Sequence[str],
    reason: str | None,
    alpha: float = ALPHA,
    replicates: int = REPLICATES,
    tests: Tests | None = None,
) -> AxisRanking:
    """Rank the entries that have a score.

    Args:
        unrated: entries that would rank and have no score on this axis.
        left_out: entries that do not rank.
        reason: why nothing on this board ranks; None where something may.
        tests: of the same axis and replicates; None: the test is made anew, and not kept.
    """
    missing, others = tuple(sorted(unrated)), tuple(sorted(left_out))
    if reason is not None:
        return AxisRanking(axis, recipe, _silent(missing, alpha, reason), others, None)
    if others and len(contestants) < 2:
        few = f"{len(contestants)} of {len(contestants) + len(missing) + len(others)} entries"
        silent = _silent(missing, alpha, f"{few} can rank, and a rank needs two")
        return AxisRanking(axis, recipe, silent, others, None)
    names = sorted({task for c in contestants for task in c.seeds})
    strata = [_stratum([c.seeds.get(task) for c in contestants]) for task in names]
    moves = np.stack([c.spread for c in contestants]) if contestants else None
    who = [c.name for c in contestants]
    before = None if tests is None else tests.before(who)
    test = axis_test(axis, strata, names, alpha, replicates, spread=moves, before=before)
    if tests is not None and test.tested is not None:
        tests.keep(who, test.tested)
    ranking = rank(
        who,
        [c.value for c in contestants],
        test,
        alpha,
        _errors(contestants),
    )
    survival = None
    if axis == "generalization" and ranking.reason is None:
        survival = _survival(contestants, ranking, test, names)
    return AxisRanking(
        axis, recipe, dataclasses.replace(ranking, unrated=missing), others, survival
    )


def axis_test(
    axis: Axis,
    strata: Sequence[np.ndarray],
    names: Sequence[str],
    alpha: float = ALPHA,
    replicates: int = REPLICATES,
    seed: int = SWAP_SEED,
    spread: np.ndarray | None = None,
    before: tuple[Tested, np.ndarray] | None = None,
) -> Randomisation:
    """The label-swap test with the statistic of an axis.

    Args:
        strata: per task (M, n) Λ or Gen, or for stability (M, n, 5) F, H, G, DD and whether it
            failed, (M, n, 10) with the same of a stress run; NaN from some seed on, or throughout,
            where a model has no more.
        spread: (M, 3, replicates) of each model. Stability is not resampled over items.
        before: an earlier test of some of the models, and where they are among these.
    """
    given = {"replicates": replicates, "seed": seed, "alpha": alpha, "before": before}
    if axis == "stability":
        if strata and strata[0].shape[-1] == 2 * COLUMNS:
            location, differences = rows_headline, swapped_stress_differences
        else:
            location, differences = _stab, swapped_differences
        return randomise(strata, names, location, differences=differences, **given)
    location = trimmed_mean if axis == "efficiency" else plain_mean
    return randomise(strata, names, location, spread=spread, **given)


def _stab(seeds: np.ndarray) -> np.ndarray:
    """(S, n, 5) to (S,) Stab of a task."""
    return headline(shares(*np.moveaxis(seeds, -1, 0)))


def _silent(unrated: tuple[str, ...], alpha: float, reason: str) -> Ranking:
    return Ranking((), (), None, unrated, alpha, reason)


def _stratum(seeds: Sequence[np.ndarray | None]) -> np.ndarray:
    """(M, n, ...) of one task, NaN where a model has fewer seeds or none."""
    task_rows = [rows for rows in seeds if rows is not None]
    n = max(len(rows) for rows in task_rows)
    table = np.full((len(seeds), n, *task_rows[0].shape[1:]), np.nan)
    for row, values in zip(table, seeds, strict=True):
        if values is not None:
            row[: len(values)] = values
    return table


def _errors(contestants: Sequence[Contestant]) -> np.ndarray | None:
    least = min((len(rows) for c in contestants for rows in c.seeds.values()), default=0)
    if least < 2:
        return None
    return pool_errors(np.stack([c.drawn for c in contestants]), least)


def _survival(
    contestants: Sequence[Contestant], ranking: Ranking, test: Randomisation, names: Sequence[str]
) -> dict[str, float]:
    """Per entry the share of re-weightings under which it stays in its tier.

    The bar that |t| must reach stays where the test with the weights of the protocol put it. The
    standard error of a mean is known without swapping, from how the blocks' differences vary
    inside tasks; what items and the root mean square under swaps do to it is taken in proportion.
    """
    parts, models = [c.parts for c in contestants], len(contestants)
    first, second = pairs = np.triu_indices(models, 1)
    mean, inside, from_zero = _moments(parts, names)
    protocol_weights = contestants[0].weights
    all_weights = np.concatenate([[protocol_weights], weightings(weights=protocol_weights)])
    weights = np.concatenate([all_weights, -np.ones((len(all_weights), 1))], axis=1)
    means = np.stack([_mean_parts(p) for p in parts])

    def scales(of: np.ndarray) -> np.ndarray:
        """(pairs, W) standard errors."""
        square, least = (
            np.einsum("wi,pij,wj->pw", of, part, of, optimize=True) for part in (inside, from_zero)
        )
        return np.sqrt(np.maximum(square, FLOOR * least))

    factor = _as_tested(scales(weights[:1])[:, 0], test, pairs)
    # Ties between estimates are broken by name, as the ranking does.
    order = np.array(sorted(range(models), key=lambda i: contestants[i].name))

    def memberships(start: int) -> np.ndarray:
        """(W, M) tiers, in the order of names."""
        some = weights[start : start + WEIGHTINGS]
        difference = mean @ some.T
        differs = np.abs(difference) > test.critical * scales(some) * factor[:, None]
        beats = np.zeros((len(some), models, models), dtype=bool)
        beats[:, first, second] = (differs & (difference > 0)).T
        beats[:, second, first] = (differs & (difference < 0)).T
        return tiers_of_many((some @ means.T)[:, order], beats[:, order[:, None], order])

    starts = range(1, len(weights), WEIGHTINGS)
    many = models >= MANY
    shares = [*spread(memberships, starts)] if many else [memberships(at) for at in starts]
    membership = np.concatenate(shares)
    tier = {standing.model: standing.tier for standing in ranking.standings}
    names_in_order = [contestants[i].name for i in order]
    return {
        name: float((membership[:, at] == tier[name]).mean())
        for at, name in enumerate(names_in_order)
    }


def _as_tested(
    scale: np.ndarray, test: Randomisation, pairs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """(pairs,) by what standard errors are multiplied, so that the first ones are the test's own.

    Args:
        scale: (pairs,) with the weights of the protocol.
    """
    difference, t = np.abs(test.difference[pairs]), np.abs(test.t[pairs])
    deviations = np.divide(difference, t, out=scale.copy(), where=t > 0)
    return np.divide(deviations, scale, out=np.ones(len(deviations)), where=scale > 0)


def _moments(
    parts: Sequence[Mapping[str, np.ndarray]], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every pair the (5,) mean difference, its (5, 5) covariance, and that with 0 for means."""
    models, names = len(parts), [name for name in names if any(name in p for p in parts)]
    counts = np.array([[len(p[task]) if task in p else 0 for task in names] for p in parts])
    tables = [_stratum([p.get(task) for p in parts]) for task in names]
    moments = []
    for i in range(models - 1):
        both = np.minimum(counts[i], counts[i + 1 :])
        common = np.maximum(1, (both >= MIN_SEEDS).sum(axis=1))
        mean = np.zeros((len(both), 5))
        inside, from_zero = (np.zeros((len(both), 5, 5)) for _ in range(2))
        for task, table in enumerate(tables):
            for n in np.unique(both[:, task][both[:, task] >= MIN_SEEDS]):
                at = np.flatnonzero(both[:, task] == n)
                d = (table[i, :n] - table[i + 1 + at, :n]) / common[at, None, None]
                first_moment, square = d.mean(axis=1), d.transpose(0, 2, 1) @ d / n
                mean[at] += first_moment
                inside[at] += (square - first_moment[:, :, None] * first_moment[:, None]) / (n - 1)
                from_zero[at] += square / (n - 1)
        moments.append((mean, inside, from_zero))
    return tuple(np.concatenate(each) for each in zip(*moments, strict=True))


def _mean_parts(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.mean([rows.mean(axis=0) for rows in parts.values()], axis=0)
