"""Bootstrap of a design: checkpoints, seeds and items are drawn.

Initialisations and corpus orders are drawn apart and crossed, so that a checkpoint comes as often
as its initialisation times its order (Owen 2007, "The pigeonhole bootstrap"). Draws of
initialisations carry the name of the design, because initialisation 0 of two designs has nothing in
common. Corpus orders are the same documents for all designs, so that all meet the same draws of
them; draws of seeds carry the name of the task alone, as everywhere.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import Layout
from crlbench.stats.intervals import REPLICATES, ROOT_SEED, times_drawn
from crlbench.stats.resampling import Rows


class Runs(Protocol):
    """What of a design is drawn."""

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def seeds(self) -> np.ndarray: ...
    @property
    def location(self) -> Rows: ...
    @property
    def items(self) -> np.ndarray | None: ...
    @property
    def layout(self) -> Layout: ...


def draw_design(design: Runs, count: int = REPLICATES, seed: int = ROOT_SEED) -> np.ndarray:
    """(count,) replicates of the mean over checkpoints and tasks.

    Raises:
        ValidationError: the design has item replicates of another number.
    """
    n = design.seeds.shape[2]
    means = np.zeros((len(design.seeds), count))
    for k, task in enumerate(design.tasks):
        times = times_drawn(task, n, count, seed)
        for row, values in zip(means, design.seeds[:, k], strict=True):
            row += design.location.resampled(values, times)
    weights = checkpoint_weights(design.name, design.layout, count, seed)
    replicates = (weights * means).sum(axis=0) / len(design.tasks)
    if design.items is None:
        return replicates
    if len(design.items) != count:
        raise ValidationError(
            f"design {design.name}: {len(design.items)} replicates over items and {count} draws"
        )
    return replicates + design.items - design.items.mean()


def draw_seeds(
    design: Runs, count: int = REPLICATES, seed: int = ROOT_SEED
) -> list[np.ndarray]:
    """Per task (count,) replicates of the first checkpoint's location, seeds alone drawn."""
    n = design.seeds.shape[2]
    return [
        design.location.resampled(values, times_drawn(task, n, count, seed))
        for task, values in zip(design.tasks, design.seeds[0], strict=True)
    ]


def checkpoint_weights(
    name: str, layout: Layout, count: int = REPLICATES, seed: int = ROOT_SEED
) -> np.ndarray:
    """(R, count) what each checkpoint weighs in each replicate; columns sum to 1.

    Raises:
        ValidationError: checkpoints that are neither independent nor crossed.
    """
    if layout.refusal is not None:
        raise ValidationError(f"design {name}: {layout.refusal}")
    starts = (f"{name}/initialisations", layout.initialisations)
    orders = ("corpus orders", layout.orders)
    sides = {
        "one": (),
        "one order": (starts,),
        # A checkpoint of its own on every order: its initialisation comes with it.
        "independent": (orders,),
        "one initialisation": (orders,),
        "crossed": (starts, orders),
    }[layout.plan]
    weights = np.ones((len(layout.labels), count))
    for title, numbers in sides:
        levels = sorted(set(numbers))
        times = times_drawn(f"{title} {levels}", len(levels), count, seed)
        weights *= times[[levels.index(number) for number in numbers]]
    return weights / weights.sum(axis=0)
