"""What is counted on one board of single checkpoints, and of variance components (CRL-2)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from crlbench.stats.designs import Design, design_mean
from crlbench.stats.false_discovery import discoveries, equivalence_p
from crlbench.stats.intervals import (
    Interval,
    item_weights,
    student_interval,
    student_quantile,
    times_drawn,
)
from crlbench.stats.minimum_effect import minimum_effect_tiers, pair_degrees, pair_errors
from crlbench.stats.rank_over_tasks import rank_over_tasks
from crlbench.stats.reml import Decomposition, decompose, minimise
from crlbench.stats.resampling import spread, trimmed_rows, widen
from crlbench.stats.task_sample import interval_over_tasks
from crlbench.stats.tiers import rank_intervals
from crlbench.stats.variance_components import (
    RESIDUAL,
    board_factors,
    cell_strata,
    design_terms,
    fixed_columns,
    indicators,
    loose_limits,
    profile_bar,
)

from . import measures
from .setting import World
from .spreads import ITEMS, MEAN, Board, Scene, draw
from .world import simulate

Found = dict[str, float]
"""What one board says."""


def task_intervals(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Intervals over tasks, of the first entry and of the second minus the first."""
    board = draw(scene, generator).seeds[:, 0]
    first, second = (_location(rows) for rows in board[:2])
    within = [_replicates(scene, rows, seed, count) for rows in board[:2]]
    sizes = [scene.seeds] * scene.tasks
    truth = scene.designs[1] - scene.designs[0]
    found: Found = {}
    cases = (
        ("entry", first, within[0], MEAN + scene.designs[0], False),
        ("difference", second - first, within[1] - within[0], truth, True),
    )
    for name, values, drawn, true, paired in cases:
        wide = interval_over_tasks(values, drawn, sizes, paired, count=count, seed=seed).interval
        found |= covering(name, wide, true)
        found[f"{name}, Student's"] = holds(student_interval(values.tolist()), true)
        before = widen(drawn, values.tolist(), sizes, count, seed)
        found[f"{name}, CRL-1"] = holds(before, true)
    return found


def seed_intervals(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """One checkpoint each, on these tasks: the interval over seeds alone."""
    board = draw(scene, generator)
    truths = board.on_tasks[:2, 0].mean(axis=1)
    values, errors, df, items = entry_errors(scene, board, seed, count)
    half = errors[0, 1] * student_quantile(0.975, df[0, 1])
    runs = board.seeds[0]
    alone = Design("design-0", scene.labels, scene.task_names, runs, items=items[0])
    mean = design_mean(alone, (), count, seed).interval
    gap = values[1] - values[0]
    return covering("mean", mean, truths[0]) | covering(
        "difference", Interval(gap - half, gap + half), truths[1] - truths[0]
    )


def tier_errors(
    scene: Scene | World, generator: np.random.Generator, seed: int, count: int
) -> Found:
    """False separations and false breaks of tiers on these tasks, and right ones."""
    if isinstance(scene, World):
        values, errors, df, true, margin = _answered(scene, generator, seed, count)
    else:
        values, errors, df, true, margin = _numbers(scene, generator, seed, count)
    return count_tiers(values, errors, df, true, margin)


def count_tiers(
    values: np.ndarray,
    errors: np.ndarray,
    df: np.ndarray | float,
    true: np.ndarray,
    margin: float,
    has_one_variance: bool = False,
) -> Found:
    """False separations and false breaks of the tiers of M entries, and right ones."""
    found: Found = {}
    gaps = true[:, None] - true
    for name, least in (("margin", margin), ("no margin", 0.0)):
        tiers = minimum_effect_tiers(values, errors, df, least, has_one_variance=has_one_variance)
        wrong = tiers.beats & (gaps <= least + 1e-12)
        broken = tiers.tier[:, None] < tiers.tier
        anchored = broken[list(tiers.anchors)] & (gaps[list(tiers.anchors)] <= least + 1e-12)
        right = gaps > least + 1e-12
        found[f"{name}: false separation"] = float(wrong.any())
        found[f"{name}: false tier"] = float(anchored.any())
        found[f"{name}: tiers"] = float(tiers.tier.max())
        if right.any():
            found[f"{name}: found"] = float(tiers.beats[right].mean())
        alike = equivalence_p(values[:, None] - values, errors, df, margin) <= 0.05
        if least == margin:
            found["in two tiers and equivalent"] = float((broken & alike).any())
    return found


def _numbers(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> tuple:
    """Estimates, standard errors, degrees of freedom, truth and margin of a drawn board."""
    board = draw(scene, generator)
    values, errors, df, _ = entry_errors(scene, board, seed, count)
    # The truth of these checkpoints on these tasks is what tiers of single checkpoints speak of.
    true = np.array(scene.designs)
    values = values - board.on_tasks[:, 0].mean(axis=1) + MEAN + true
    return values, errors, df, true, scene.margin


def entry_errors(
    scene: Scene, board: Board, seed: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray | None]]:
    """Estimates of the first checkpoints, errors and degrees of freedom of the pairs, and (count,)
    replicates over items of each."""
    values = np.array([_location(rows[0]).mean() for rows in board.seeds])
    by_seed = np.stack([_replicates(scene, rows[0], seed, count) for rows in board.seeds])
    items = item_replicates(scene, board, values, count)
    by_item = np.stack([np.zeros(count) if row is None else row for row in items])
    moved = by_item - by_item.mean(axis=1, keepdims=True)
    errors = pair_errors(np.stack([by_seed + moved, by_seed, by_item], axis=1), scene.seeds)
    return values, errors, pair_degrees(board.seeds[:, 0], errors), items


def item_replicates(
    scene: Scene, board: Board, values: np.ndarray, count: int
) -> list[np.ndarray | None]:
    """Of each design (count,) means over tasks under each draw of items; None without their noise.

    All boards meet the same draws, as all boards of the package do.
    """
    if scene.spreads.items == 0:
        return [None] * len(values)
    alone = board.items - board.items.mean(axis=-1, keepdims=True)
    shares = np.stack([_item_shares(name, count) for name in scene.task_names])
    moved = np.einsum("dkn,krn->dr", alone, shares, optimize=True) / scene.tasks
    return list(values[:, None] + moved)


@lru_cache(maxsize=64)
def _item_shares(task: str, count: int) -> np.ndarray:
    """(count, N) what each item of a task weighs under each draw."""
    return item_weights(task, ITEMS, count)


def _answered(world: World, generator: np.random.Generator, seed: int, count: int) -> tuple:
    """The same of a board that is answered one item at a time."""
    by_task = [
        measures.replicates(world, answers, f"task-{k}", seed, count)
        for k, answers in enumerate(simulate(world, generator))
    ]
    by_entry = list(zip(*by_task, strict=True))
    values = np.array([np.mean([part.location for part in parts]) for parts in by_entry])
    errors = pair_errors(np.stack([spread(parts) for parts in by_entry]), world.seeds)
    true = np.array([entry.mean for entry in world.entries])
    return values, errors, world.tasks * (world.seeds - 1), true, 0.05


def rank_errors(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Whether rank intervals over tasks leave out a true rank, and what they find."""
    board = draw(scene, generator)
    table = np.stack([_location(rows[0]) for rows in board.seeds])
    better = rank_over_tasks(table).better
    assert better is not None
    return count_ranks(better, np.array(scene.designs))


def count_ranks(better: np.ndarray, true: np.ndarray) -> Found:
    """The same of M rows.

    Args:
        better: (M, M) whether the row is said to be better than the column.
    """
    above, below = (true > true[:, None]).sum(axis=1), (true < true[:, None]).sum(axis=1)
    best, worst = 1 + above, len(true) - below
    low, high = rank_intervals(better).T
    gaps = true[:, None] - true
    found = {
        "a true rank left out": float(((low > best) | (high < worst)).any()),
        "ranks in an interval": float((high - low + 1).mean()),
    }
    if (gaps > 0).any():
        found["found"] = float(better[gaps > 0].mean())
    return found


def false_discoveries(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """The share of false verdicts of a page, with and without the false-discovery line."""
    return count_discoveries(*_numbers(scene, generator, seed, count))


def count_discoveries(
    values: np.ndarray,
    errors: np.ndarray,
    df: np.ndarray,
    true: np.ndarray,
    margin: float,
) -> Found:
    """Verdicts of the pairs of M entries that are false, with and without the line."""
    pairs = np.triu_indices(len(values), 1)
    truth = np.abs((true[:, None] - true)[pairs])
    line = discoveries((values[:, None] - values)[pairs], errors[pairs], df[pairs], margin)
    same, far = truth < 1e-12, truth > margin - 1e-12
    found: Found = {}
    for name, stay in (("alone", np.ones(len(truth), dtype=bool)), ("line", line.stays)):
        differ, equal = line.says_different & stay, line.says_equivalent & stay
        wrong = (differ & same).sum() + (equal & far).sum()
        whole = differ.sum() + equal.sum()
        found[f"{name}: verdicts"] = float(whole)
        found[f"{name}: false share"] = float(wrong / max(1, whole))
        found[f"{name}: any false"] = float(wrong > 0)
    return found


def component_intervals(
    scene: Scene, generator: np.random.Generator, seed: int, count: int
) -> Found:
    """Estimates of the variance components, and whether their profile intervals hold the truth.

    An interval holds a variance if the likelihood-ratio test does not reject it, so that its ends
    need not be looked for.
    """
    terms, found, index = _strata(scene)
    board = draw(scene, generator).seeds
    likelihood = cell_strata(board.ravel(), index, scene.seeds, found)
    best, truth = minimise(likelihood), true_variances(scene)
    columns: Found = {}
    for place, name in enumerate((*terms, RESIDUAL)):
        columns[f"{name}: variance"] = float(best.variances[place])
        least = loose_limits(likelihood, place)
        base = minimise(likelihood, best.variances, least=least)
        start = base.variances.copy()
        start[place] = truth[name]
        there = minimise(likelihood, start, hold=place, least=least)
        columns[f"{name}: hit"] = float(there.deviance - base.deviance <= profile_bar())
    return columns


@lru_cache(maxsize=8)
def _strata(scene: Scene) -> tuple[tuple[str, ...], Decomposition, np.ndarray]:
    """Terms of a scene, the strata of its cells, and the cell of each number."""
    starts, orders = np.array([label[1:].split("o") for label in scene.labels]).astype(int).T
    shape = (len(scene.designs), len(scene.labels), scene.tasks)
    terms = design_terms(starts.tolist(), orders.tolist())
    factors = board_factors((*shape, 1), starts.tolist(), orders.tolist())
    cells = math.prod(shape)
    found = decompose(
        fixed_columns(cells, factors, ()), [indicators(factors, term) for term in terms]
    )
    assert found is not None
    return terms, found, np.repeat(np.arange(cells), scene.seeds)


def true_variances(scene: Scene) -> dict[str, float]:
    """Of the terms of :func:`crlbench.stats.variance_components.design_terms`.

    Where a scene adds to its designs, the component of designs has no truth.
    """
    s = scene.spreads
    whole, third = s.checkpoint**2, s.checkpoint**2 / 3
    parts = {"checkpoint": (0.0, 0.0, whole), "thirds": (third,) * 3, "order": (0.0, whole, 0.0)}
    start, order, both = parts[s.split]
    assert not any(scene.designs)
    return {
        "design": s.design**2,
        "order": s.shared_order**2,
        "design:initialisation": start,
        "design:order": order,
        "design:checkpoint": both,
        "task": s.task**2,
        "design:task": s.design_task**2,
        "design:checkpoint:task": s.checkpoint_task**2,
        RESIDUAL: s.seed**2,
    }


def _location(rows: np.ndarray) -> np.ndarray:
    """(K,) of (K, n) seeds."""
    return trimmed_rows(rows.T)


def _replicates(scene: Scene, rows: np.ndarray, seed: int, count: int) -> np.ndarray:
    """(count,) of the mean over tasks of (K, n) seeds."""
    names = scene.task_names
    drawn = [
        trimmed_rows.resampled(values, times_drawn(name, len(values), count, seed))
        for name, values in zip(names, rows, strict=True)
    ]
    return np.mean(drawn, axis=0)


def covering(name: str, interval: Interval | None, truth: float) -> Found:
    if interval is None:
        return {f"{name}: refused": 1.0}
    return {
        f"{name}: hit": holds(interval, truth),
        f"{name}: half": (interval.high - interval.low) / 2,
        f"{name}: below": truth - interval.low,
    }


def holds(interval: Interval | None, truth: float) -> float:
    return math.nan if interval is None else float(interval.low <= truth <= interval.high)
