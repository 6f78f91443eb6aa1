"""What a simulated board is: its items, its entries and how their runs learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

FLOOR, CEILING = 0.03, 1.0
LEVELS = (-1.3, -1.0, -0.7, -0.4, -1.15, -0.55, -0.85, -1.4, -0.6, -1.1)
"""Logit of the start model's success on each task's mean item."""
ITEM_SPREAD, PACE_SPREAD = 1.5, 0.4
"""Standard deviations of the logit, and of the logarithm of the pace, from item to item."""
COURSE = 3.0
"""Skill follows 1 - exp(-3 t) along the budget."""
UPS_AND_DOWNS, MEMORY = 0.15, 0.6
"""Of a run's skill: standard deviation, and correlation from one evaluation to the next."""
HARDER, HARD_PACE = 1.2, 0.7
"""How much harder HARD is than ID, and the share of the skill that helps there."""
TEMPLATES = (-0.4, -0.2, 0.0, 0.1, 0.2)
"""FORMAT: five templates of one source item stand in consecutive rows; their shifts."""
TRANSFER_PACE = 0.3
STRESS_SPREAD = 2.0
"""Standard deviation of the seeds of a stress arm, in those of the calm ones."""
RETAIN_LEVEL, RETAIN_ITEMS = 1.0, 64
EASY = 0.2
"""Share of the easy ones among tasks of two kinds."""
CHURN = 0.3
"""Share of the retain panel that a trained model answers anew; it is decoded greedily, so that the
rest is answered as before."""

Axis = Literal["efficiency", "stability", "generalization"]
Shape = Literal["normal", "skewed", "heavy", "two kinds"]


@dataclass(frozen=True)
class Grid:
    """What a track evaluates."""

    name: str
    points: int
    items: int
    """Of the curve and of both ends of ID."""
    end_items: int
    """Of HARD and FORMAT."""
    draws: int
    """Of both ends of ID; everything else is drawn once."""
    members: int
    """Of the retain panel."""

    @property
    def time(self) -> np.ndarray:
        """(T,) share of the budget at each evaluation."""
        return np.linspace(0.0, 1.0, self.points)


MINI = Grid("mini", points=21, items=256, end_items=256, draws=4, members=3)
SMALL = Grid("small", points=11, items=96, end_items=192, draws=4, members=5)


@dataclass(frozen=True)
class Entry:
    """How one entry learns: the distribution of its seeds on the axis."""

    mean: float = 0.35
    spread: float = 0.1
    shape: Shape = "normal"
    failures: float = 0.0
    """Probability that a run fails, at an evaluation drawn evenly."""
    tasks: tuple[float, ...] = ()
    """What each task adds to the mean; together 0. None: all tasks are alike."""
    model: int | None = None
    """Entries of one number are one model; None is a model of its own."""
    stress_failures: float = 0.0
    """As ``failures``, of the runs of the stress arm."""


@dataclass(frozen=True)
class World:
    """A board to simulate, again and again."""

    entries: tuple[Entry, ...]
    axis: Axis = "efficiency"
    grid: Grid = MINI
    tasks: int = 4
    seeds: int = 5
    correlation: float = 0.3
    """Of the seeds of two entries with the same index."""
    profile: float = 0.0
    """Standard deviation of an item's logit from model to model; 0: all models find the same
    items difficult."""
    stress: int = 0
    """How many of the seeds, the last ones, are runs of the stress arm."""
    ease: float = 0.0
    """Added to the logits of :data:`LEVELS`."""
    ups_and_downs: float = UPS_AND_DOWNS

    @property
    def levels(self) -> tuple[float, ...]:
        """Logit of the start model's success on the mean item of each task."""
        return tuple(level + self.ease for level in LEVELS[: self.tasks])

    @property
    def stressed(self) -> np.ndarray:
        """(n,) whether a seed is one of the stress arm."""
        return np.arange(self.seeds) >= self.seeds - self.stress


def course(grid: Grid) -> np.ndarray:
    """(T,) share of its slope that a run's skill has reached."""
    return 1.0 - np.exp(-COURSE * grid.time)


def movements(
    world: World, generator: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray:
    """(..., T) ups and downs of the skill, none at the start."""
    points = world.grid.points
    noise = generator.normal(0.0, world.ups_and_downs, (*shape, points))
    for j in range(1, points):
        noise[..., j] *= np.sqrt(1.0 - MEMORY**2)
        noise[..., j] += MEMORY * noise[..., j - 1]
    return noise * course(world.grid)


def targets(world: World, generator: np.random.Generator, task: int) -> np.ndarray:
    """(M, n) true Λ (or Gen) of the seeds of a task, correlated by index over entries."""
    shapes = [entry.shape for entry in world.entries]
    common = {shape: unit_noise(generator, shape, world.seeds) for shape in dict.fromkeys(shapes)}
    own = np.stack([unit_noise(generator, shape, world.seeds) for shape in shapes])
    shared = np.stack([common[shape] for shape in shapes])
    rho = world.correlation
    noise = np.sqrt(rho) * shared + np.sqrt(1.0 - rho) * own
    mean = np.array(
        [[entry.mean + (entry.tasks[task] if entry.tasks else 0.0)] for entry in world.entries]
    )
    spread = np.array([[entry.spread] for entry in world.entries])
    return mean + spread * np.where(world.stressed, STRESS_SPREAD, 1.0) * noise


def unit_noise(generator: np.random.Generator, shape: Shape, n: int) -> np.ndarray:
    """(n,) draws of mean 0 and variance 1; skewed ones have their long tail below."""
    if shape == "skewed":
        return 1.0 - generator.exponential(size=n)
    if shape == "heavy":
        return generator.standard_t(3, size=n) / np.sqrt(3.0)
    if shape == "two kinds":
        return ((generator.random(size=n) < EASY) - EASY) / np.sqrt(EASY * (1.0 - EASY))
    return generator.normal(size=n)


def measured_points(world: World, generator: np.random.Generator) -> np.ndarray:
    """(M, n) evaluations before a failure; all of them where a run does not fail."""
    shape = (len(world.entries), world.seeds)
    calm, stress = (
        np.array([[getattr(entry, name)] for entry in world.entries])
        for name in ("failures", "stress_failures")
    )
    share = np.where(world.stressed, stress, calm)
    fails = generator.random(shape) < share
    at = generator.integers(1, world.grid.points, shape)
    return np.where(fails, at, world.grid.points)


def probability(logit: np.ndarray) -> np.ndarray:
    """Of success, in the precision of its argument."""
    return 1.0 / (1.0 + np.exp(-logit))
