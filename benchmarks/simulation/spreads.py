"""Boards of designs, checkpoints, tasks and seeds with the spreads that were measured on mini.

y = design + checkpoint(design) + task + design x task + checkpoint x task + seed, with Λ in mind.
Nothing is answered here: a run is one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .setting import Shape, unit_noise

MEAN = 0.45
"""Λ of a middling design."""

Split = Literal["checkpoint", "thirds", "order"]
"""Where the variance of checkpoints comes from: each is its own; a third each from initialisation,
order and both together; the corpus order alone."""


@dataclass(frozen=True)
class Spreads:
    """Standard deviations on mini version 1, but for the checkpoint's, of which one difference is
    known (.05 to .2)."""

    task: float = 0.22
    design_task: float = 0.18
    checkpoint: float = 0.1
    checkpoint_task: float = 0.1
    seed: float = 0.014
    split: Split = "checkpoint"
    shape: Shape = "normal"
    """Of tasks and of design x task."""
    uneven: bool = False
    """Seeds and checkpoints of every second entry have half of the spread, those of the first, the
    third and so on one and a half."""


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


def draw(scene: Scene, generator: np.random.Generator) -> Board:
    """One board of a scene."""
    s, tasks, labels = scene.spreads, scene.tasks, scene.labels
    designs, count = len(scene.designs), len(labels)
    means = MEAN + np.array(scene.designs)[:, None]
    task = s.task * unit_noise(generator, s.shape, tasks)
    own = s.design_task * unit_noise(generator, s.shape, designs * tasks).reshape(designs, tasks)
    design_tasks = means + task + own
    sizes = np.resize([1.5, 0.5] if s.uneven else [1.0], designs)
    checkpoints = sizes[:, None] * _checkpoints(s, labels, designs, generator)
    single = s.checkpoint_task * generator.normal(size=(designs, count, tasks))
    on_tasks = design_tasks[:, None] + checkpoints[..., None] + single
    noise = s.seed * generator.normal(size=(designs, count, tasks, scene.seeds))
    noise *= sizes[:, None, None, None]
    return Board(on_tasks[..., None] + noise, checkpoints, on_tasks, design_tasks)


def _checkpoints(
    s: Spreads, labels: tuple[str, ...], designs: int, generator: np.random.Generator
) -> np.ndarray:
    """(D, R) of checkpoints labelled ``i0o0`` and so on."""
    pairs = np.array([label[1:].split("o") for label in labels]).astype(int)
    shares = {"checkpoint": (0.0, 0.0, 1.0), "thirds": (1 / 3,) * 3, "order": (0.0, 1.0, 0.0)}
    by_start, by_order, by_both = s.checkpoint * np.sqrt(shares[s.split])
    starts = generator.normal(size=(designs, pairs[:, 0].max() + 1))
    orders = generator.normal(size=(designs, pairs[:, 1].max() + 1))
    both = generator.normal(size=(designs, len(labels)))
    return by_start * starts[:, pairs[:, 0]] + by_order * orders[:, pairs[:, 1]] + by_both * both
