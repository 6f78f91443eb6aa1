"""Who ranks where on an axis: the label-swap test of each axis, and how firm its tiers are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.report.axes import Axis
from crlbench.report.generalization import WEIGHTS, weightings
from crlbench.report.intervals import MIN_SEEDS, REPLICATES, plain_mean, trimmed_mean
from crlbench.report.randomisation import FLOOR, SWAP_SEED, Randomisation, randomise
from crlbench.report.stability_shares import headline, shares, swapped_differences
from crlbench.report.tiers import ALPHA, Ranking, pool_errors, rank, tiers_of_many


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


@dataclass(frozen=True)
class Contestant:
    """What the ranking of an axis needs of one entry."""

    name: str
    value: float
    seeds: Mapping[str, np.ndarray]
    """Per task that counts (n,) numbers, or (n, 5) columns for stability; the prefix of seeds."""
    drawn: np.ndarray
    """(R,) replicates of the headline."""
    spread: np.ndarray
    """(3, R) its parts, see :func:`crlbench.report.replicates.spread`."""
    parts: Mapping[str, np.ndarray] | None = None
    """Generalization: per task (n, 5) the four λ and corrected Fgt."""


def rank_axis(
    axis: Axis,
    recipe: str,
    contestants: Sequence[Contestant],
    unrated: Sequence[str],
    left_out: Sequence[str],
    reason: str | None,
    alpha: float = ALPHA,
    replicates: int = REPLICATES,
) -> AxisRanking:
    """Rank the entries that have a score.

    Args:
        unrated: entries that would rank and have no score on this axis.
        left_out: entries that do not rank.
        reason: why nothing on this board ranks; None where something may.
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
    test = axis_test(axis, strata, names, alpha, replicates, spread=moves)
    ranking = rank(
        [c.name for c in contestants],
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
) -> Randomisation:
    """The label-swap test with the statistic of an axis.

    Args:
        strata: per task (M, n) Λ or Gen, or for stability (M, n, 5) F, H, G, DD and whether it
            failed; NaN from some seed on, or throughout, where a model has no more.
        spread: (M, 3, replicates) of each model. Stability is not resampled over items.
    """
    if axis == "stability":
        return randomise(
            strata, names, _stab, replicates, seed, differences=swapped_differences, alpha=alpha
        )
    location = trimmed_mean if axis == "efficiency" else plain_mean
    return randomise(strata, names, location, replicates, seed, alpha=alpha, spread=spread)


def _stab(seeds: np.ndarray) -> np.ndarray:
    """(S, n, 5) to (S,) Stab of a task."""
    return headline(shares(*np.moveaxis(seeds, -1, 0)))


def _silent(unrated: tuple[str, ...], alpha: float, reason: str) -> Ranking:
    return Ranking((), (), None, unrated, alpha, reason)


def _stratum(seeds: Sequence[np.ndarray | None]) -> np.ndarray:
    """(M, n, ...) of one task, NaN where a model has fewer seeds or none."""
    known = [rows for rows in seeds if rows is not None]
    n = max(len(rows) for rows in known)
    table = np.full((len(seeds), n, *known[0].shape[1:]), np.nan)
    for row, found in zip(table, seeds, strict=True):
        if found is not None:
            row[: len(found)] = found
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
    parts = [c.parts for c in contestants]
    models = len(contestants)
    first, second = np.triu_indices(models, 1)
    pairs = [_moments(parts[i], parts[j], names) for i, j in zip(first, second, strict=True)]
    mean, inside, from_zero = (np.stack(part) for part in zip(*pairs, strict=True))
    drawn = np.concatenate([[WEIGHTS], weightings()])
    weights = np.concatenate([drawn, -np.ones((len(drawn), 1))], axis=1)
    difference = mean @ weights.T
    inside, from_zero = (
        np.einsum("wi,pij,wj->pw", weights, part, weights, optimize=True)
        for part in (inside, from_zero)
    )
    scale = np.sqrt(np.maximum(inside, FLOOR * from_zero))
    differs = np.abs(difference) > test.critical * _as_tested(scale, test, (first, second))
    beats = np.zeros((len(weights), models, models), dtype=bool)
    beats[:, first, second] = (differs & (difference > 0)).T
    beats[:, second, first] = (differs & (difference < 0)).T
    score = weights @ np.stack([_mean_parts(p) for p in parts]).T
    # Ties between estimates are broken by name, as the ranking does.
    order = np.array(sorted(range(models), key=lambda i: contestants[i].name))
    membership = tiers_of_many(score[:, order], beats[:, order[:, None], order])
    found = {standing.model: standing.tier for standing in ranking.standings}
    kept = {}
    for at, i in enumerate(order):
        name = contestants[i].name
        kept[name] = float((membership[1:, at] == found[name]).mean())
    return kept


def _as_tested(
    scale: np.ndarray, test: Randomisation, pairs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """(pairs, W) standard errors, in proportion so that the first column is the test's own."""
    difference, t = np.abs(test.difference[pairs]), np.abs(test.t[pairs])
    own = np.divide(difference, t, out=scale[:, 0].copy(), where=t > 0)
    ratio = np.divide(own, scale[:, 0], out=np.ones(len(own)), where=scale[:, 0] > 0)
    return scale * ratio[:, None]


def _moments(
    a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(5,) mean difference of a pair, (5, 5) its covariance, and that with 0 for tasks' means."""
    both = {task: min(len(a[task]), len(b[task])) for task in names if task in a and task in b}
    common = {task: n for task, n in both.items() if n >= MIN_SEEDS}
    mean, inside, from_zero = np.zeros(5), np.zeros((5, 5)), np.zeros((5, 5))
    for task, n in common.items():
        d = (a[task][:n] - b[task][:n]) / len(common)
        own, square = d.mean(axis=0), d.T @ d / n
        mean += own
        inside += (square - np.outer(own, own)) / (n - 1)
        from_zero += square / (n - 1)
    return mean, inside, from_zero


def _mean_parts(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.mean([rows.mean(axis=0) for rows in parts.values()], axis=0)
