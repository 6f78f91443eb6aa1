"""Boards of designs, checkpoints, tasks and seeds with the spreads that were measured on mini.

y = design + order + checkpoint(design) + task + design x task + checkpoint x task + items + seed,
with Λ in mind. Nothing is answered here: a run is one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .setting import Shape, unit_noise

MEAN = 0.45
"""Λ of a middling design."""
ITEMS = 64
"""Items of a task, where their choice brings noise."""

Split = Literal["checkpoint", "thirds", "order"]
"""Where the variance of checkpoints comes from: each is its own; a third each from initialisation,
order and both together; the corpus order alone."""


@dataclass(frozen=True)
class Spreads:
    """Standard deviations; by default those on mini version 1, but for the checkpoint's, of which
    one difference is known (.05 to .2)."""

    task: float = 0.22
    design_task: float = 0.18
    checkpoint: float = 0.1
    checkpoint_task: float = 0.1
    seed: float = 0.014
    split: Split = "checkpoint"
    shape: Shape = "normal"
    """Of tasks and of design x task."""
    sizes: tuple[float, ...] = (1.0,)
    """By design in turn: what the spreads of its seeds and checkpoints are multiplied with."""
    design: float = 0.0
    """Of designs, beside what a scene adds to each."""
    shared_order: float = 0.0
    """Of what a corpus order does to all designs alike."""
    items: float = 0.0
    """Of what the choice of items does to one entry on one task."""
    seeds_by_cell: tuple[float, float] = (1.0, 1.0)
    """The spread of seeds differs from cell to cell: its logarithm is even between these, times
    ``seed``."""


@dataclass(frozen=True)
class Scene:
    """A board to draw, again and again."""

    spreads: Spreads = Spreads()
    tasks: int = 4
    seeds: int = 3
    labels: tuple[str, ...] = ("i0o0",)
    """Of the checkpoints of every design."""
    designs: tuple[float, ...] = (0.0, 0.0)
    """What each adds to the mean."""
    margin: float = 0.05

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(f"task-{k}" for k in range(self.tasks))


@dataclass(frozen=True)
class Board:
    """One board."""

    seeds: np.ndarray
    """(D, R, K, n) the score of every run."""
    checkpoints: np.ndarray
    """(D, R) what each checkpoint adds."""
    on_tasks: np.ndarray
    """(D, R, K) the truth of every checkpoint on every task."""
    design_tasks: np.ndarray
    """(D, K) the truth of every design on every task."""
    designs: np.ndarray
    """(D,) the truth of every design over all tasks."""
    items: np.ndarray
    """(D, K, N) what each of N items does to a design on a task; N is 1 where they do nothing."""


def draw(scene: Scene, generator: np.random.Generator, shape: tuple[int, ...] = ()) -> Board:
    """One board of a scene, or many: then all arrays have their shape in front."""
    s, tasks, labels = scene.spreads, scene.tasks, scene.labels
    designs, count = len(scene.designs), len(labels)
    of_designs = (*shape, designs)
    means = MEAN + np.array(scene.designs) + s.design * generator.normal(size=of_designs)
    task = s.task * _noise(generator, s.shape, (*shape, 1, tasks))
    own = s.design_task * _noise(generator, s.shape, (*of_designs, tasks))
    design_tasks = means[..., None] + task + own
    sizes = np.resize(s.sizes, designs)
    checkpoints = sizes[:, None] * _checkpoints(s, labels, of_designs, generator)
    shared = s.shared_order * generator.normal(size=(*shape, 1, count))
    checkpoints = checkpoints + shared[..., _orders(labels)]
    single = s.checkpoint_task * generator.normal(size=(*of_designs, count, tasks))
    on_tasks = design_tasks[..., None, :] + checkpoints[..., None] + single
    spread = s.seed * np.exp(generator.uniform(*np.log(s.seeds_by_cell), on_tasks.shape))
    noise = sizes[:, None, None, None] * spread[..., None]
    noise = noise * generator.normal(size=(*on_tasks.shape, scene.seeds))
    count = ITEMS if s.items > 0 else 1
    items = s.items * math.sqrt(count) * generator.normal(size=(*of_designs, tasks, count))
    measured = on_tasks + items.mean(axis=-1)[..., None, :]
    return Board(measured[..., None] + noise, checkpoints, on_tasks, design_tasks, means, items)


def _noise(generator: np.random.Generator, shape: Shape, size: tuple[int, ...]) -> np.ndarray:
    return unit_noise(generator, shape, math.prod(size)).reshape(size)


def _orders(labels: tuple[str, ...]) -> np.ndarray:
    """(R,) corpus order of each checkpoint, counted from 0."""
    return np.unique([int(label.split("o")[1]) for label in labels], return_inverse=True)[1]


def _checkpoints(
    s: Spreads, labels: tuple[str, ...], of_designs: tuple[int, ...], generator: np.random.Generator
) -> np.ndarray:
    """(..., D, R) of checkpoints labelled ``i0o0`` and so on."""
    pairs = np.array([label[1:].split("o") for label in labels]).astype(int)
    shares = {"checkpoint": (0.0, 0.0, 1.0), "thirds": (1 / 3,) * 3, "order": (0.0, 1.0, 0.0)}
    by_start, by_order, by_both = s.checkpoint * np.sqrt(shares[s.split])
    starts = generator.normal(size=(*of_designs, pairs[:, 0].max() + 1))
    orders = generator.normal(size=(*of_designs, pairs[:, 1].max() + 1))
    both = generator.normal(size=(*of_designs, len(labels)))
    return (
        by_start * starts[..., pairs[:, 0]] + by_order * orders[..., pairs[:, 1]] + by_both * both
    )
