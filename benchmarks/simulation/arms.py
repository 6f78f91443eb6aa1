"""Intervals that protocol CRL-2 brought: Λ of new items, Taught, stability under stress, and Gen
without the ID split.

Boards are answered one item at a time. A start model answers an item rightly when greedy if it
does so in more than half of its draws. The last runs of a world with a stress arm are that arm's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from crlbench.contract.conditions import PROTOCOL_2
from crlbench.stats.intervals import Replicates, trimmed_mean
from crlbench.stats.measures import ItemTable
from crlbench.stats.paired import paired
from crlbench.stats.resampling import (
    axis_interval,
    efficiency_replicates,
    lam_of_some_by_weight,
    linear_replicates,
    trimmed_rows,
)
from crlbench.stats.stability import seed_columns
from crlbench.stats.stress import stress_replicates
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.entry import less_control
from crlbench.verdict.protocols import RULES

from . import scores
from .setting import World
from .truth import expected
from .world import Answers, simulate

RULES_2 = RULES[PROTOCOL_2]
MODE_SEEDS = 3
"""Of the mode arm."""
MANY_ITEMS, MANY_BOARDS = 4096, 200
"""Of the boards whose mean stands for the true Λ_new, at most: so many items add little noise."""

Found = dict[str, float]
"""What one board says."""


def new_intervals(world: World, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Λ_new of the first entry, and the second minus the first."""
    by_task = [
        _new_replicates(answers, world, f"task-{k}", seed, count)
        for k, answers in enumerate(simulate(world, generator))
    ]
    first, second = ([parts[m] for parts in by_task] for m in (0, 1))
    return _found(first, second)


def _new_replicates(
    answers: Answers, world: World, task: str, seed: int, count: int
) -> list[Replicates]:
    """Of each entry on one task."""
    draws = {"count": count, "seed": seed}
    found = []
    for table, chosen in new_tables(answers, world):
        by_weight = lam_of_some_by_weight(task, table, chosen, **draws)
        part = efficiency_replicates(task, table, None, trimmed_rows, **draws, by_weight=by_weight)
        found.append(replace(part, rule=RULES_2.interval))
    return found


def new_tables(answers: Answers, world: World) -> list[tuple[ItemTable, np.ndarray]]:
    """The table of each entry's new items, and which of all items these are."""
    tables = scores.item_tables(answers, world.grid)
    return [
        (ItemTable(table.learned[:, ~known], table.head[:, ~known], None, table.scale), ~known)
        for table, known in zip(tables, answers.greedy, strict=True)
    ]


@lru_cache(maxsize=32)
def true_new(world: World, boards: int) -> tuple[float, float]:
    """Λ_new of the first two entries, as so many boards of many items show it."""
    large = replace(world, grid=replace(world.grid, items=MANY_ITEMS))
    generator = np.random.Generator(np.random.PCG64(0))
    found = []
    for _ in range(boards):
        tasks = [
            [trimmed_mean(_lam(table)) for table, _ in new_tables(answers, large)]
            for answers in simulate(large, generator)
        ]
        found.append(np.mean(tasks, axis=0))
    first, second = np.mean(found, axis=0)[:2]
    return float(first), float(second)


def _lam(table: ItemTable) -> np.ndarray:
    items = table.learned.shape[1]
    return table.lam(np.full((1, items), 1.0 / items))[0]


def stress_intervals(
    world: World, generator: np.random.Generator, seed: int, count: int
) -> Found:
    """Stab of the first entry, and the second minus the first."""
    by_task, calm = [], world.seeds - world.stress
    for k, answers in enumerate(simulate(world, generator)):
        task = f"task-{k}"
        runs = scores.stability(answers, world.grid, task)
        arms = [[seed_columns(part) for part in (row[:calm], row[calm:])] for row in runs]
        by_task.append([stress_replicates(task, *both, count, seed) for both in arms])
    first, second = ([parts[m] for parts in by_task] for m in (0, 1))
    return _found(first, second)


def gen_intervals(world: World, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Gen of the first entry, and the second minus the first."""
    by_task = []
    for k, answers in enumerate(simulate(world, generator)):
        values = scores.generalization(answers, f"task-{k}", RULES_2.weights)
        blocks = scores.generalization_blocks(answers, RULES_2.weights, RULES_2.unchanged)
        parts = [
            linear_replicates(f"task-{k}", row, block, count=count, seed=seed)
            for row, block in zip(values, blocks, strict=True)
        ]
        by_task.append([replace(part, rule=RULES_2.interval) for part in parts])
    first, second = ([parts[m] for parts in by_task] for m in (0, 1))
    return _found(first, second)


def taught_intervals(world: World, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Λ of the mode arm, the first entry with its first three seeds; and Λ of the real arm minus
    it."""
    draws = {"count": count, "seed": seed}
    mode, real = dict[str, Replicates](), dict[str, Replicates]()
    for k, answers in enumerate(simulate(world, generator)):
        task, tables = f"task-{k}", scores.item_tables(answers, world.grid)
        few = tables[0]
        few = ItemTable(few.learned[:MODE_SEEDS], few.head[:MODE_SEEDS], None, few.scale)
        for arm, table in ((mode, few), (real, tables[1])):
            arm[task] = replace(efficiency_replicates(task, table, **draws), rule=RULES_2.interval)
    alone = axis_interval([*mode.values()])
    taught, _ = less_control(real, mode, [*real])
    low, high = taught.interval.low, taught.interval.high
    return {
        "value": float(np.mean([part.location for part in mode.values()])),
        "low": alone.low,
        "high": alone.high,
        "difference": taught.value,
        "difference low": low,
        "difference high": high,
        "better or worse": float(not low <= 0 <= high),
    }


def true_taught(world: World) -> tuple[float, float]:
    """Λ of the mode arm and of the real one, without the noise of items."""
    mode = expected(replace(world, seeds=MODE_SEEDS), trimmed_mean)[0]
    return mode, expected(world, trimmed_mean)[1]


def _found(first: list[Replicates], second: list[Replicates]) -> Found:
    alone, effect = axis_interval(first), paired(first, second, MARGIN)
    return {
        "value": float(np.mean([part.location for part in first])),
        "low": alone.low,
        "high": alone.high,
        "difference": effect.value,
        "difference low": effect.interval.low,
        "difference high": effect.interval.high,
        "better or worse": float(effect.verdict in ("better", "worse")),
    }
