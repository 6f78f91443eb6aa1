"""What is counted on one board of designs with several checkpoints (CRL-2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crlbench.stats.design_pairs import DesignPairs, design_pairs
from crlbench.stats.designs import Design, design_difference, design_mean

from .protocol2 import (
    Found,
    component_intervals,
    count_discoveries,
    count_tiers,
    covering,
    false_discoveries,
    item_replicates,
    rank_errors,
    seed_intervals,
    task_intervals,
    tier_errors,
)
from .spreads import Board, Scene, draw


def design_intervals(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Intervals of the first design and of the second minus the first."""
    board = draw(scene, generator)
    designs = _designs(scene, board, count)
    mean = design_mean(designs[0], designs[1:], count, seed)
    here, wide = _truth(scene, board, 0)
    found = covering("mean", mean.interval, here) | covering("mean, wider", mean.wider, wide)
    found["error of the mean"] = mean.value - here
    if len(scene.labels) == 1:
        return found
    theirs, wider = _truth(scene, board, 1)
    cases = {
        "difference": design_difference(*designs[:2]),
        "pooled difference": design_difference(*designs[:2], others=designs[2:]),
    }
    for name, difference in cases.items():
        found |= covering(name, difference.interval, theirs - here)
        found |= covering(f"{name}, wider", difference.wider, wider - wide)
        found["error of the difference"] = difference.value - (theirs - here)
    return found


def design_tiers(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """False separations of the tiers of designs on these tasks, and right ones."""
    return count_tiers(*_pairs(scene, generator, count), has_one_variance=True)


def design_discoveries(
    scene: Scene, generator: np.random.Generator, seed: int, count: int
) -> Found:
    """The share of false verdicts on pairs of designs, with and without the line."""
    return count_discoveries(*_pairs(scene, generator, count))


def _pairs(scene: Scene, generator: np.random.Generator, count: int) -> tuple:
    """Estimates, errors, degrees of freedom, truth and margin of all pairs of designs."""
    board = draw(scene, generator)
    pairs: DesignPairs = design_pairs(_designs(scene, board, count))
    # The truth on these tasks, without what a design does on single ones.
    true = np.array(scene.designs)
    values = pairs.values - board.design_tasks.mean(axis=1) + true
    return values, pairs.errors, pairs.df, true, scene.margin


def _designs(scene: Scene, board: Board, count: int) -> list[Design]:
    values = board.seeds.mean(axis=(1, 2, 3))
    items = item_replicates(scene, board, values, count)
    return [
        Design(f"design-{d}", scene.labels, scene.task_names, runs, items=items[d])
        for d, runs in enumerate(board.seeds)
    ]


def _truth(scene: Scene, board: Board, design: int) -> tuple[float, float]:
    """On these tasks, and over all tasks; of the one checkpoint where there is no other."""
    if len(scene.labels) == 1:
        own = float(board.checkpoints[design, 0])
        return float(board.on_tasks[design, 0].mean()), float(board.designs[design]) + own
    return float(board.design_tasks[design].mean()), float(board.designs[design])


Measure = Callable[[Scene, np.random.Generator, int, int], Found]
MEASURES: dict[str, Measure] = {
    "task intervals": task_intervals,
    "design intervals": design_intervals,
    "seed intervals": seed_intervals,
    "tier errors": tier_errors,
    "design tiers": design_tiers,
    "rank errors": rank_errors,
    "false discoveries": false_discoveries,
    "design discoveries": design_discoveries,
    "component intervals": component_intervals,
}
"""By the kind of a row."""
