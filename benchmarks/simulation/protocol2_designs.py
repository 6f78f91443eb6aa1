"""What is counted on boards of designs with several checkpoints (CRL-2).

The package judges a board at a time. Its formulas take many at once, so that rows of designs are
judged all together; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from crlbench.stats.checkpoints import (
    MeanVariance,
    board_squares,
    design_table,
    independent_variance,
    read_layout,
)
from crlbench.stats.design_pool import WARN_ALPHA, Pool
from crlbench.stats.design_widths import (
    add,
    either_half_width,
    student_half_width,
    wider_ends,
)
from crlbench.stats.designs import Design, design_mean
from crlbench.stats.intervals import LEVEL
from crlbench.stats.rank_over_tasks import rank_over_tasks
from crlbench.stats.resampling import trimmed_rows

from .arms import gen_intervals, new_intervals, stress_intervals, taught_intervals
from .protocol2 import (
    Found,
    component_intervals,
    count_discoveries,
    count_ranks,
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

Columns = dict[str, np.ndarray]
"""(boards,) per thing that was counted."""

TOGETHER = 500
"""Boards that are judged at once."""


def one_checkpoint(scene: Scene, generator: np.random.Generator, seed: int, count: int) -> Found:
    """Intervals of a design with one checkpoint, which are about this one alone."""
    board = draw(scene, generator)
    values = trimmed_rows(np.moveaxis(board.seeds[:, 0], -1, 0)).mean(axis=-1)
    items = item_replicates(scene, board, values, count)[0]
    design = Design("design-0", scene.labels, scene.task_names, board.seeds[0], items=items)
    mean = design_mean(design, (), count, seed)
    here = float(board.on_tasks[0, 0].mean())
    wide = float(board.designs[0] + board.checkpoints[0, 0])
    found = covering("mean", mean.interval, here) | covering("mean, wider", mean.wider, wide)
    return found | {"error of the mean": mean.value - here}


def design_intervals(scene: Scene, generator: np.random.Generator, boards: int) -> Columns:
    """Intervals of the first design and of the second minus the first, of all boards at once."""
    judged = judge(scene, draw(scene, generator, (boards,)))
    values, means, pool = judged.values, judged.task_means, judged.pool
    here, wide = judged.board.design_tasks.mean(axis=-1), judged.board.designs
    crossed = read_layout(scene.labels).plan == "crossed"
    own = pool.of_mean("0")
    if not crossed:
        own = independent_variance(judged.checkpoint_means[:, 0])
    parts = [own, judged.items_of(0)]
    half = student_half_width(parts, LEVEL)
    if crossed:
        half = either_half_width(parts, pool.of_orders, LEVEL)
    ends = wider_ends(means[:, 0], own, False, LEVEL)
    columns = _columns("mean", values[:, 0], half, ends, here[:, 0], wide[:, 0])
    columns["error of the mean"] = values[:, 0] - here[:, 0]
    gap, truth, wider = (x[:, 1] - x[:, 0] for x in (values, here, wide))
    columns["error of the difference"] = gap - truth
    cases = {"pooled difference": pool.of_difference("0", "1")}
    columns["warned"] = pool.squares.spread_p[:, :2].min(axis=-1) < WARN_ALPHA
    if not crossed:
        two = [judged.checkpoint_means[:, 0], judged.checkpoint_means[:, 1]]
        apart = len({label.split("o")[1] for label in scene.labels}) > 1
        cases["difference"] = (
            independent_variance(two[1] - two[0])
            if apart
            else add([independent_variance(one) for one in two])
        )
    for name, spread in cases.items():
        half = student_half_width([spread, judged.items_of(0, 1)], LEVEL)
        ends = wider_ends(means[:, 1] - means[:, 0], spread, True, LEVEL)
        columns |= _columns(name, gap, half, ends, truth, wider)
    return columns


def design_tiers(scene: Scene, generator: np.random.Generator, boards: int) -> Columns:
    """False separations of the tiers of designs on these tasks, and right ones."""
    return _stack(
        [count_tiers(*one, has_one_variance=True) for one in _pairs(scene, generator, boards)]
    )


def design_discoveries(scene: Scene, generator: np.random.Generator, boards: int) -> Columns:
    """The share of false verdicts on pairs of designs, with and without the line."""
    return _stack([count_discoveries(*one) for one in _pairs(scene, generator, boards)])


def design_ranks(scene: Scene, generator: np.random.Generator, boards: int) -> Columns:
    """Ranks of designs with tasks resampled, where two also differ beyond their checkpoints."""
    judged = judge(scene, draw(scene, generator, (boards,)))
    count, means = len(scene.designs), judged.task_means
    beyond = np.zeros((boards, count, count), dtype=bool)
    for i, j in combinations(range(count), 2):
        low, high = judged.wider_of(i, j)
        beyond[:, j, i], beyond[:, i, j] = low > 0, high < 0
    found = []
    for place in range(boards):
        better = rank_over_tasks(means[place]).better
        assert better is not None
        found.append(count_ranks(better & beyond[place], np.array(scene.designs)))
    return _stack(found)


@dataclass(frozen=True)
class Judged:
    """Many boards, B of them, of D designs."""

    board: Board
    checkpoint_means: np.ndarray
    """(B, D, R)"""
    task_means: np.ndarray
    """(B, D, K)"""
    pool: Pool
    """Of designs that are named by their place."""

    @property
    def values(self) -> np.ndarray:
        """(B, D)"""
        return self.task_means.mean(axis=-1)

    def items_of(self, *places: int) -> MeanVariance:
        """(B,) that the choice of items adds to a mean, or to a difference of two."""
        rows = self.board.items[:, places[-1]]
        if len(places) > 1:
            rows = rows - self.board.items[:, places[0]]
        # The variance of a bootstrap over N items is that of its N numbers over N.
        variance = rows.var(axis=-1).sum(axis=-1) / (rows.shape[-1] * rows.shape[-2] ** 2)
        return MeanVariance(variance, np.full(variance.shape, np.inf))


    def wider_of(self, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        """(B,) ends of the interval over checkpoints and tasks of the second minus the first."""
        spread, gap = self.pool.of_difference(str(i), str(j)), self.values[:, j] - self.values[:, i]
        half = student_half_width([spread, self.items_of(i, j)], LEVEL)
        ends = wider_ends(self.task_means[:, j] - self.task_means[:, i], spread, True, LEVEL)
        return np.minimum(ends[0], gap - half), np.maximum(ends[1], gap + half)


def judge(scene: Scene, board: Board) -> Judged:
    """What of boards with several checkpoints the intervals rest on."""
    cells = trimmed_rows(np.moveaxis(board.seeds, -1, 0))
    means = cells.mean(axis=-1)
    tables = design_table(means, read_layout(scene.labels))
    names = tuple(str(place) for place in range(len(scene.designs)))
    return Judged(board, means, cells.mean(axis=-2), Pool(names, board_squares(tables)))


def _pairs(scene: Scene, generator: np.random.Generator, boards: int) -> Iterator[tuple]:
    """Estimates, errors, degrees of freedom, truth and margin of all pairs, board by board."""
    judged = judge(scene, draw(scene, generator, (boards,)))
    count = len(scene.designs)
    errors, df = np.zeros((boards, count, count)), np.full((boards, count, count), np.nan)
    for i, j in combinations(range(count), 2):
        spread = add((judged.pool.of_difference(str(i), str(j)), judged.items_of(i, j)))
        errors[:, i, j] = errors[:, j, i] = np.sqrt(spread.variance)
        df[:, i, j] = df[:, j, i] = spread.df
    # The truth on these tasks, without what a design does on single ones.
    true = np.array(scene.designs)
    values = judged.values - judged.board.design_tasks.mean(axis=-1) + true
    for place in range(boards):
        yield values[place], errors[place], df[place], true, scene.margin


def _columns(
    name: str,
    value: np.ndarray,
    half: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    here: np.ndarray,
    wide: np.ndarray,
) -> Columns:
    """Of an interval on these tasks and the wider one, which holds it."""
    found: Columns = {}
    inner = value - half, value + half
    outer = np.minimum(ends[0], inner[0]), np.maximum(ends[1], inner[1])
    for title, (low, high), truth in ((name, inner, here), (f"{name}, wider", outer, wide)):
        found[f"{title}: hit"] = ((low <= truth) & (truth <= high)).astype(float)
        found[f"{title}: half"] = (high - low) / 2
        found[f"{title}: below"] = truth - low
    return found


def _stack(found: list[Found]) -> Columns:
    return {name: np.array([one[name] for one in found]) for name in found[0]}


Measure = Callable[[Scene, np.random.Generator, int, int], Found]
MEASURES: dict[str, Measure] = {
    "task intervals": task_intervals,
    "one checkpoint": one_checkpoint,
    "seed intervals": seed_intervals,
    "tier errors": tier_errors,
    "rank errors": rank_errors,
    "false discoveries": false_discoveries,
    "component intervals": component_intervals,
    "new intervals": new_intervals,
    "stress intervals": stress_intervals,
    "gen intervals": gen_intervals,
    "taught intervals": taught_intervals,
}
"""By the kind of a row: one board at a time."""
AT_ONCE: dict[str, Callable[[Scene, np.random.Generator, int], Columns]] = {
    "design intervals": design_intervals,
    "design tiers": design_tiers,
    "design discoveries": design_discoveries,
    "design ranks": design_ranks,
}
"""By the kind of a row: many boards at once."""
