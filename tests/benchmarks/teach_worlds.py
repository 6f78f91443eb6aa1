"""Synthetic records of the study, whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from teaching.design import Design, Start
from teaching.records import CellScores, StartRecords, StartScores

N, GRID, DRAWS = 256, 20, 64
DESIGN = Design(settings=())

Gain = Callable[[Start, str], tuple[float, float]]
"""(start, arm) -> how much the chance of a right answer rises over the whole budget, on known and
on new items."""


@dataclass(frozen=True)
class World:
    """What is true of every start, task, arm and seed."""

    gain: Gain
    reach: Callable[[Start], float] = lambda start: 0.8
    """Share of the items that a start can answer at all."""
    rise: Callable[[Start], float] = lambda start: 0.0
    """Share of the items that training makes reachable."""
    known: float = 0.4
    """Share of the items that are right greedily: all of them can be answered."""
    spread: float = 0.01
    """Standard deviation of a seed's gain."""


def make(world: World, seed: int = 0, design: Design = DESIGN) -> dict[Start, StartRecords]:
    """Records of every start of a design."""
    rng = np.random.default_rng(seed)
    starts = [start for moment in design.moments for start in design.starts(moment)]
    return {start: _start(world, start, design, rng) for start in starts}


def _start(
    world: World, start: Start, design: Design, rng: np.random.Generator
) -> StartRecords:
    records = StartRecords({}, {})
    order = np.linspace(0, 1, N, endpoint=False)
    known, reached = order < world.known, order < world.reach(start)
    chance = np.where(known, 0.5, np.where(reached, 0.25, 0.0))
    for task in design.tasks:
        records.starts[task] = StartScores(
            task=task,
            weights="ab" * 32,
            fingerprint="f" * 12,
            floor=0.0,
            ceiling=1.0,
            greedy=known,
            draws=rng.random((4, N)) < chance,
            passes={"id": rng.binomial(DRAWS, chance), "hard": rng.binomial(DRAWS, chance)},
        )
        for key in [(t, arm, i) for t, arm, i in design.cells() if t == task]:
            gains = np.where(known, *world.gain(start, key[1])) + rng.normal(0, world.spread)
            final = np.clip(chance + np.where(reached, gains, 0.0), 0.0, 1.0)
            steps = np.linspace(0, 1, GRID + 1)[:, None]
            curve = rng.random((GRID + 1, N)) < chance + steps * (final - chance)
            found = (order >= world.reach(start)) & (order < world.reach(start) + world.rise(start))
            end = np.where(found, 0.3, np.maximum(final, np.where(reached, 0.2, 0.0)))
            real = key[1] == "real"
            draws = {s: rng.binomial(DRAWS, end) for s in ("id", "hard")} if real else {}
            records.cells[key] = CellScores(
                key, "completed", "", GRID, curve, known if real else None, draws, "cd" * 32
            )
    return records


def same_gains(gains: Mapping[str, tuple[float, float]]) -> World:
    """A world whose gains depend on the arm alone."""
    return World(lambda start, arm: gains[arm])


ELICITING = World(
    lambda start, arm: {
        "real": (0.3, 0.02 if start.noise else 0.2),
        "mode": (0.3, 0.02 if start.noise else 0.02),
        "placebo": (-0.05, -0.05),
        "wrong": (-0.2, -0.1),
    }[arm],
    rise=lambda start: 0.1 if start.noise == 0 and start.updates <= 1800 else 0.0,
)
"""H1, H3 and H4 hold; no start is so near its greedy answers that H2 can be tested."""
TEACHING = same_gains(
    {"real": (0.3, 0.5), "mode": (0.1, 0.0), "placebo": (0.15, 0.15), "wrong": (0.15, 0.15)}
)
"""H1 and H4 are false; so is H3, as nothing becomes reachable where it should."""


def narrow(world: World) -> World:
    """The same where a start can answer little that it does not answer greedily."""
    return replace(world, reach=lambda start: world.known + 0.05)
