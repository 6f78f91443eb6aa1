"""What is counted on one board of protocol CRL-2, with the package's own functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from crlbench.stats.designs import Design, design_difference, design_mean
from crlbench.stats.false_discovery import RATE, difference_p, discoveries, equivalence_p
from crlbench.stats.intervals import (
    Interval,
    student_interval,
    student_quantile,
    times_drawn,
)
from crlbench.stats.minimum_effect import minimum_effect_tiers, pair_errors
from crlbench.stats.rank_over_tasks import rank_over_tasks
from crlbench.stats.reml import Decomposition, decompose, minimise
from crlbench.stats.resampling import spread, trimmed_rows, widen
from crlbench.stats.task_sample import interval_over_tasks
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
from .arms import new_intervals, stress_intervals
from .setting import World
from .spreads import MEAN, Board, Scene, draw
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
        found |= _covering(name, wide, true)
        found[f"{name}, Student's"] = _holds(student_interval(values.tolist()), true)
        before = widen(drawn, values.tolist(), sizes, count, seed)
        found[f"{name}, CRL-1"] = _holds(before, true)
    return found


def design_intervals(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Intervals of the first design and of the second minus the first."""
    board = draw(scene, generator)
    designs = [
        Design(f"design-{d}", scene.labels, scene.task_names, runs)
        for d, runs in enumerate(board.seeds)
    ]
    one = len(scene.labels) == 1
    mean = design_mean(designs[0], designs[1:], count, seed)
    here, wide = _design_truth(scene, board, 0)
    found = _covering("mean", mean.interval, here) | _covering("mean, wider", mean.wider, wide)
    found["error of the mean"] = mean.value - here
    pair = design_mean(designs[0], designs[1:2], count, seed)
    found |= _covering("mean of a pair", pair.interval, here)
    found |= _covering("mean of a pair, wider", pair.wider, wide)
    if one:
        return found
    difference = design_difference(*designs[:2])
    theirs, wider = _design_truth(scene, board, 1)
    found |= _covering("difference", difference.interval, theirs - here)
    found |= _covering("difference, wider", difference.wider, wider - wide)
    found["error of the difference"] = difference.value - (theirs - here)
    if designs[0].layout.plan == "crossed":
        pooled = design_difference(*designs[:2], others=designs[2:])
        found |= _covering("pooled difference", pooled.interval, theirs - here)
        found |= _covering("pooled difference, wider", pooled.wider, wider - wide)
    return found


def _design_truth(scene: Scene, board: Board, design: int) -> tuple[float, float]:
    """On these tasks, and over all tasks; of the one checkpoint where there is no other."""
    if len(scene.labels) == 1:
        own = float(board.checkpoints[design, 0])
        return float(board.on_tasks[design, 0].mean()), MEAN + scene.designs[design] + own
    return float(board.design_tasks[design].mean()), MEAN + scene.designs[design]


def seed_intervals(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """One checkpoint each, on these tasks: the interval over seeds alone."""
    board = draw(scene, generator)
    first, second = board.on_tasks[:2, 0].mean(axis=1)
    spreads = np.stack([[_replicates(scene, rows[0], seed, count)] for rows in board.seeds[:2]])
    values = [float(_location(rows[0]).mean()) for rows in board.seeds[:2]]
    error = pair_errors(spreads.repeat(3, axis=1) * [[[1.0], [1.0], [0.0]]], scene.seeds)[0, 1]
    half = error * student_quantile(0.975, scene.tasks * (scene.seeds - 1))
    alone = Design("design-0", scene.labels, scene.task_names, board.seeds[0])
    mean = design_mean(alone, (), count, seed).interval
    gap = values[1] - values[0]
    return _covering("mean", mean, first) | _covering(
        "difference", Interval(gap - half, gap + half), second - first
    )


def tier_errors(
    scene: Scene | World, generator: np.random.Generator, seed: int, count: int
) -> Found:
    """False separations and false breaks of tiers on these tasks, and right ones."""
    if isinstance(scene, World):
        values, errors, df, true, margin = _answered(scene, generator, seed, count)
    else:
        values, errors, df, true, margin = _numbers(scene, generator, seed, count)
    found: Found = {}
    gaps = true[:, None] - true
    for name, least in (("margin", margin), ("no margin", 0.0)):
        tiers = minimum_effect_tiers(values, errors, df, least)
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
    drawn = np.stack([_replicates(scene, rows[0], seed, count) for rows in board.seeds])
    spreads = np.stack([drawn, drawn, np.zeros_like(drawn)], axis=1)
    values = np.array([_location(rows[0]).mean() for rows in board.seeds])
    # The truth of these checkpoints on these tasks is what tiers of single checkpoints speak of.
    true = np.array(scene.designs)
    values = values - board.on_tasks[:, 0].mean(axis=1) + MEAN + true
    errors = pair_errors(spreads, scene.seeds)
    return values, errors, scene.tasks * (scene.seeds - 1), true, scene.margin


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
    ranking = rank_over_tasks(table)
    true = np.array(scene.designs)
    above, below = (true > true[:, None]).sum(axis=1), (true < true[:, None]).sum(axis=1)
    best, worst = 1 + above, len(true) - below
    low, high = ranking.ranks.T
    gaps = true[:, None] - true
    found = {
        "a true rank left out": float(((low > best) | (high < worst)).any()),
        "ranks in an interval": float((high - low + 1).mean()),
    }
    if (gaps > 0).any():
        found["found"] = float(ranking.better[gaps > 0].mean())
    return found


def false_discoveries(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """The share of false verdicts of a page, with and without the false-discovery line."""
    values, errors, df, true, margin = _numbers(scene, generator, seed, count)
    pairs = np.triu_indices(len(values), 1)
    gaps, error = (values[:, None] - values)[pairs], errors[pairs]
    truth = np.abs((true[:, None] - true)[pairs])
    line = discoveries(gaps, error, df, margin)
    alike = equivalence_p(gaps, error, df, margin) <= 0.05
    apart = ~alike & (difference_p(gaps, error, df) <= 0.05)
    same, far = truth < 1e-12, truth > margin - 1e-12
    stays = (apart & (line.q_differ <= RATE), alike & (line.q_equivalent <= RATE))
    counts = {"alone": (apart, alike), "line": stays}
    found: Found = {}
    for name, (differ, equal) in counts.items():
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
        if name in truth:
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

    The designs of a scene are set and not drawn, so that their component has no truth.
    """
    s = scene.spreads
    whole, third = s.checkpoint**2, s.checkpoint**2 / 3
    parts = {"checkpoint": (0.0, 0.0, whole), "thirds": (third,) * 3, "order": (0.0, whole, 0.0)}
    start, order, both = parts[s.split]
    return {
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


def _covering(name: str, interval: Interval | None, truth: float) -> Found:
    if interval is None:
        return {f"{name}: refused": 1.0}
    return {
        f"{name}: hit": _holds(interval, truth),
        f"{name}: half": (interval.high - interval.low) / 2,
        f"{name}: below": truth - interval.low,
    }


def _holds(interval: Interval | None, truth: float) -> float:
    return math.nan if interval is None else float(interval.low <= truth <= interval.high)


Measure = Callable[[Scene | World, np.random.Generator, int, int], Found]
MEASURES: dict[str, Measure] = {
    "task intervals": task_intervals,
    "design intervals": design_intervals,
    "seed intervals": seed_intervals,
    "tier errors": tier_errors,
    "rank errors": rank_errors,
    "false discoveries": false_discoveries,
    "component intervals": component_intervals,
    "new intervals": new_intervals,
    "stress intervals": stress_intervals,
}
"""By the kind of a row."""
