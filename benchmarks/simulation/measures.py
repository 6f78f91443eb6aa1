"""What is counted on one simulated board: intervals, verdicts and the test behind the tiers."""

from __future__ import annotations

import numpy as np

from crlbench.stats.intervals import Replicates
from crlbench.stats.paired import paired
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    linear_replicates,
    spread,
    stability_replicates,
)
from crlbench.stats.stability import seed_columns
from crlbench.verdict.axes import MARGIN, gate_task
from crlbench.verdict.ranking import axis_test

from . import scores
from .setting import Entry, World
from .world import Answers, simulate

ALPHAS = (0.05, 0.045, 0.04, 0.035, 0.03, 0.025, 0.02)
"""Nominal levels at which wins are counted."""
VERDICTS = ("better", "worse", "equivalent", "undecided")

Found = dict[str, float]
"""What one board says."""


def intervals(world: World, generator: np.random.Generator, seed: int, count: int) -> Found:
    """The interval of the first entry, and that of the second minus the first.

    Args:
        seed: of the package's own draws, so that no draw is common to all boards.
        count: replicates.
    """
    boards = [
        replicates(world, answers, f"task-{k}", seed, count)
        for k, answers in enumerate(simulate(world, generator))
    ]
    first, second = ([parts[m] for parts in boards] for m in (0, 1))
    alone = axis_interval(first)
    effect = paired(first, second, MARGIN)
    found = {
        "value": float(np.mean([part.location for part in first])),
        "low": alone.low,
        "high": alone.high,
        "difference": effect.value,
        "difference low": effect.interval.low,
        "difference high": effect.interval.high,
    }
    return found | {name: float(effect.verdict == name) for name in VERDICTS}


def replicates(
    world: World, answers: Answers, task: str, seed: int, count: int
) -> list[Replicates]:
    """Of each entry on one task."""
    draws = {"count": count, "seed": seed}
    if world.axis == "efficiency":
        tables = scores.item_tables(answers, world.grid)
        return [efficiency_replicates(task, table, **draws) for table in tables]
    if world.axis == "stability":
        runs = scores.stability(answers, world.grid, task)
        return [stability_replicates(task, seed_columns(row), **draws) for row in runs]
    values, blocks = scores.generalization(answers, task), scores.generalization_blocks(answers)
    return [
        linear_replicates(task, row, block, **draws)
        for row, block in zip(values, blocks, strict=True)
    ]


def wins(world: World, generator: np.random.Generator, seed: int, count: int) -> Found:
    """The smallest adjusted p of a pair of equal entries, and the share of others that is found."""
    names = [f"task-{k}" for k in range(world.tasks)]
    board = dict(zip(names, simulate(world, generator), strict=True))
    if world.axis == "stability":
        strata = [_stability_columns(world, board[task], task, count) for task in names]
        moves = None
    else:
        by_task = {task: replicates(world, a, task, seed, count) for task, a in board.items()}
        strata = [np.stack([part.values for part in by_task[task]]) for task in names]
        moves = np.stack([spread(parts) for parts in zip(*by_task.values(), strict=True)])
    test = axis_test(world.axis, strata, names, replicates=count, seed=seed, spread=moves)
    pairs = np.triu(np.ones_like(test.adjusted, dtype=bool), 1)
    same = equal(world) & pairs
    apart = test.adjusted[pairs & ~same]
    found = {"smallest p": float(np.nanmin(test.adjusted[same], initial=1.0))}
    return found | {f"found at {a:g}": float((apart <= a).mean()) for a in ALPHAS if len(apart)}


def _stability_columns(world: World, answers: Answers, task: str, count: int) -> np.ndarray:
    """(M, n, 5) of what Stab is made of; NaN where an entry is not rated."""
    runs = scores.stability(answers, world.grid, task)
    rows = [np.transpose(seed_columns(row)) for row in runs]
    rated = [gate_task(task, row, count).rating == "rated" for row in runs]
    return np.stack([r if known else r * np.nan for r, known in zip(rows, rated, strict=True)])


def equal(world: World) -> np.ndarray:
    """(M, M) which entries have the same true headline."""

    def key(entry: Entry) -> tuple:
        whole = (entry.mean, entry.shape, entry.failures)
        return (*whole, entry.spread) if world.axis == "stability" else whole

    keys = [key(entry) for entry in world.entries]
    return np.array([[a == b for b in keys] for a in keys])
