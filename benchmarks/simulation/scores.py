"""From simulated answers to what the package's estimators take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crlbench.stats.derivatives import Blocks, gen_blocks
from crlbench.stats.generalization import PARTS, WEIGHTS, forgetting, gen
from crlbench.stats.measures import ItemTable, captured, fallen, trapezoid_weights, unit
from crlbench.stats.stability import RunStability, runs_stability

from .setting import CEILING, FLOOR, Grid
from .world import Answers


def u(scores: np.ndarray) -> np.ndarray:
    """Raw scores on the scale of the floor and the ceiling."""
    return unit(scores, FLOOR, CEILING)


def item_tables(answers: Answers, grid: Grid) -> list[ItemTable]:
    """The items of each entry's seeds on one task."""
    seeds = answers.measured.shape[1]
    valid = np.arange(grid.points) < answers.measured[..., None]
    # u is 0 from a failure on.
    weights = trapezoid_weights(grid.time, 1.0) * valid
    right = np.matmul(weights[:, :, None].astype(np.float32), answers.curve.astype(np.float32))
    area = (right[:, :, 0] - FLOOR * weights.sum(axis=-1)[..., None]) / (CEILING - FLOOR)
    start = u(answers.start.mean(axis=1))
    return [
        ItemTable(area[m] - head, np.tile(head, (seeds, 1)), None, CEILING - FLOOR)
        for m, head in enumerate(start)
    ]


def lam(tables: list[ItemTable]) -> np.ndarray:
    """(M, n) Λ of every seed."""
    items = tables[0].learned.shape[1]
    even = np.full((1, items), 1.0 / items)
    return np.stack([table.lam(even)[0] for table in tables])


def stability(answers: Answers, grid: Grid, task: str) -> list[list[RunStability]]:
    """M lists of the n runs of one task."""
    return [_runs_stability(answers, grid, task, m) for m in range(len(answers.measured))]


def _runs_stability(answers: Answers, grid: Grid, task: str, m: int) -> list[RunStability]:
    n = answers.measured.shape[1]
    curves, items = np.zeros((n, grid.points)), []
    for i, measured in enumerate(answers.measured[m].tolist()):
        items.append(u(answers.curve[m, i, :measured].astype(np.float64)))
        curves[i, :measured] = items[i].mean(axis=1)
    heads = [float(u(answers.start[m].mean()))] * n
    failed = answers.failed[m].tolist()
    return list(runs_stability(curves, heads, items, task, range(n), failed))


def generalization(
    answers: Answers, task: str, weights: Sequence[float] = WEIGHTS
) -> np.ndarray:
    """(M, n) Gen of every run; a failed one ends with u = 0 on every split."""
    parts = np.stack([_change(answers, name) for name in PARTS], axis=-1)
    models, n = answers.measured.shape
    lost = [
        [forgetting(_panel(answers, m, i), task, i).corrected for i in range(n)]
        for m in range(models)
    ]
    return gen(parts, np.array(lost), weights)


def generalization_blocks(
    answers: Answers, weights: Sequence[float] = WEIGHTS, unchanged: float = 0.0
) -> list[Blocks]:
    """Of each entry, how Gen of its n runs moves with the weights of items."""
    return [_blocks(answers, m, weights, unchanged) for m in range(len(answers.measured))]


def _blocks(
    answers: Answers, m: int, weights: Sequence[float], unchanged: float
) -> Blocks:
    """(n, N) of the runs of one entry."""
    failed = answers.failed[m][:, None]

    def ends(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before = np.broadcast_to(start, end.shape)
        return before, np.where(failed, fallen(before), end)

    starts = {"id": answers.start} | answers.starts
    splits = {
        name: ends(u(starts[name][m].mean(axis=0)), u(found[m].mean(axis=1)))
        for name, found in answers.ends.items()
    }
    panel = {
        str(j): ends(before.astype(np.float64), answers.after[m, :, j].astype(np.float64))
        for j, before in enumerate(answers.before[m])
    }
    return gen_blocks(splits, panel, weights, unchanged)


def _change(answers: Answers, name: str) -> np.ndarray:
    """(M, n) λ of one part."""
    if name == "transfer":
        others = [other for other in answers.ends if other.startswith("transfer/")]
        return np.mean([_change(answers, other) for other in others], axis=0)
    start = answers.start if name == "id" else answers.starts[name]
    begun = u(start.mean(axis=(1, 2)))[:, None]
    ended = np.where(answers.failed, 0.0, u(answers.ends[name].mean(axis=(2, 3))))
    return captured(ended - begun, begun)


def _panel(answers: Answers, m: int, i: int) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Members of the retain panel, which have floor 0 and ceiling 1."""
    found = {}
    for j, before in enumerate(answers.before[m].astype(np.float64)):
        after = None if answers.failed[m, i] else answers.after[m, i, j].astype(np.float64)
        found[str(j)] = (before, after)
    return found
