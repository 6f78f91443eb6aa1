"""What an endless number of items would say: the true Λ and Gen behind a run's answers.

Means over items are quadratures over their logit and pace (Gauss-Hermite), so that nothing here
is drawn but runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from crlbench.seeding import derive
from crlbench.stats.intervals import Location
from crlbench.stats.measures import captured, trapezoid_weights, unit

from .setting import (
    CEILING,
    FLOOR,
    HARD_PACE,
    HARDER,
    ITEM_SPREAD,
    MINI,
    PACE_SPREAD,
    TEMPLATES,
    TRANSFER_PACE,
    Axis,
    World,
    course,
    measured_points,
    movements,
    probability,
    targets,
)

SLOPES = np.linspace(-2.0, 12.0, 281)
"""Between them values are looked up by straight lines."""
RUNS = 4000
"""Per task, of the expectation of a headline."""


@lru_cache(maxsize=8)
def _nodes(profile: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Q,) deviations of the logit, paces and weights of an item drawn at random."""
    x, w = np.polynomial.hermite_e.hermegauss(15)
    y, v = np.polynomial.hermite_e.hermegauss(5)
    weights = np.outer(w, v).ravel()
    deviation = np.repeat(np.hypot(ITEM_SPREAD, profile) * x, len(y))
    return deviation, np.tile(np.exp(PACE_SPREAD * y), len(x)), weights / weights.sum()


def score(level: float, skill: np.ndarray, profile: float = 0.0) -> np.ndarray:
    """(...) u at (...) skills on a split of that level."""
    deviation, pace, weights = _nodes(profile)
    p = probability(level + deviation + pace * np.asarray(skill)[..., None])
    return unit(p @ weights, FLOOR, CEILING)


def efficiency(
    level: float, skill: np.ndarray, profile: float = 0.0, measured: np.ndarray | None = None
) -> np.ndarray:
    """(...) Λ of (..., T) skills on a task of that level; u is 0 from ``measured`` on."""
    points = skill.shape[-1]
    start = float(score(level, np.array(0.0), profile))
    u = score(level, skill, profile)
    if measured is not None:
        u = u * (np.arange(points) < measured[..., None])
    area = u @ trapezoid_weights(np.linspace(0.0, 1.0, points), 1.0)
    return captured(area - start, start)


def generalization(
    levels: Sequence[float], task: int, skill: np.ndarray, profile: float = 0.0
) -> np.ndarray:
    """(...) Gen at (...) final skills on one of the tasks of these levels; nothing is forgotten."""
    level = levels[task]
    none = np.array(0.0)
    starts, ends = (
        np.mean([score(level + t, z, profile) for t in TEMPLATES], axis=0)
        for z in (none, skill)
    )
    others = [
        _change(other, TRANSFER_PACE * skill, profile)
        for j, other in enumerate(levels)
        if j != task
    ]
    parts = [
        _change(level, skill, profile),
        _change(level - HARDER, HARD_PACE * skill, profile),
        captured(ends - starts, starts),
        np.mean(others, axis=0),
    ]
    return np.mean(parts, axis=0)


def _change(level: float, skill: np.ndarray, profile: float) -> np.ndarray:
    start = score(level, np.array(0.0), profile)
    return captured(score(level, skill, profile) - start, start)


@lru_cache(maxsize=64)
def slopes(
    axis: Axis, levels: tuple[float, ...], task: int, profile: float = 0.0
) -> Callable[[np.ndarray], np.ndarray]:
    """The function from a run's true value on the axis to the slope of its skill.

    Stability has no value of one run; there, seeds are described by their Λ.
    """
    if axis == "generalization":
        values = generalization(levels, task, SLOPES * course(MINI)[-1], profile)
    else:
        values = efficiency(levels[task], SLOPES[:, None] * course(MINI), profile)
    return lambda wanted: np.interp(wanted, values, SLOPES)


@lru_cache(maxsize=256)
def expected(world: World, location: Location) -> tuple[float, ...]:
    """What the headline of each entry would be on average without the noise of items.

    The mean over many boards of ``location`` over the world's n seeds, then over tasks; on the
    axes of efficiency and (without failures) generalization.
    """
    generator = np.random.Generator(np.random.PCG64(derive(0, "truth", world.axis, world.seeds)))
    groups = RUNS // world.seeds
    found = []
    for entry in world.entries:
        many = replace(world, entries=(entry,) * groups, correlation=0.0)
        by_task = [location(_runs(many, generator, k)).mean() for k in range(world.tasks)]
        found.append(float(np.mean(by_task)))
    return tuple(found)


def _runs(world: World, generator: np.random.Generator, task: int) -> np.ndarray:
    """(M, n) true values of the runs of a task."""
    goals = targets(world, generator, task)
    slope = slopes(world.axis, world.levels, task, world.profile)(goals)
    skill = slope[..., None] * course(world.grid) + movements(world, generator, goals.shape)
    if world.axis == "generalization":
        return generalization(world.levels, task, skill[..., -1], world.profile)
    levels, measured = world.levels, measured_points(world, generator)
    return efficiency(levels[task], skill, world.profile, measured)
