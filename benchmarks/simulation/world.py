"""Boards of models whose true learning is known, answered one item at a time.

Items have unequal difficulty and pace. The skill of a run rises along the budget, with ups and
downs of its own; what it answers to an item at an evaluation is a Bernoulli draw. A seed of an
entry is described by its true Λ (or Gen), which is drawn and then turned into a skill, so that
two entries can be made equal, or apart by a known amount, whatever their spreads.

The start model answers once for all seeds, as in a real run: its noise is common to them.
Entries of the same ``model`` have the very same start answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .setting import (
    CHURN,
    HARD_PACE,
    HARDER,
    ITEM_SPREAD,
    PACE_SPREAD,
    RETAIN_ITEMS,
    RETAIN_LEVEL,
    TEMPLATES,
    TRANSFER_PACE,
    Entry,
    World,
    course,
    measured_points,
    movements,
    probability,
    targets,
)
from .truth import slopes


@dataclass(frozen=True)
class Answers:
    """What M entries with n seeds answered on one task: 0 or 1."""

    start: np.ndarray
    """(M, D, N) ID items, the start models."""
    measured: np.ndarray
    """(M, n) evaluations before a failure; all of them where there is none."""
    failed: np.ndarray
    """(M, n)"""
    curve: np.ndarray | None = None
    """(M, n, T, N); None on the axis of generalization."""
    starts: dict[str, np.ndarray] = field(default_factory=dict)
    """(M, D, N) of each split but ID."""
    ends: dict[str, np.ndarray] = field(default_factory=dict)
    """(M, n, D, N) of each split."""
    before: np.ndarray | None = None
    """(M, J, N) the retain panel, the same for all tasks."""
    after: np.ndarray | None = None
    """(M, n, J, N)"""
    greedy: np.ndarray | None = None
    """(M, N) ID items that the start models answer rightly when greedy: in most of their draws."""


@dataclass(frozen=True)
class Items:
    """The items of one split as M entries meet them."""

    ease: np.ndarray
    """(M, N) logit of a start model's success."""
    pace: np.ndarray
    """(N,) what a unit of skill adds to it."""


def simulate(world: World, generator: np.random.Generator) -> list[Answers]:
    """One board: what every entry answered on every task."""
    owner = _owners(world.entries)
    items = [_items(world, generator, level, owner) for level in world.levels]
    if world.axis == "generalization":
        return _ends(world, generator, items, owner)
    found = []
    for k, own in enumerate(items):
        skill, measured = _runs(world, generator, k)
        logit = own.ease[:, None, None] + own.pace * skill[..., None]
        start = _repeated(generator, own.ease, world.grid.draws)[owner]
        curve = _draw(generator, logit)
        failed = measured < world.grid.points
        found.append(Answers(start, measured, failed, curve, greedy=(own.ease > 0)[owner]))
    return found


def _owners(entries: tuple[Entry, ...]) -> np.ndarray:
    """(M,) the row of each entry's start model."""
    first: dict[int, int] = {}
    return np.array(
        [
            row if entry.model is None else first.setdefault(entry.model, row)
            for row, entry in enumerate(entries)
        ]
    )


def _items(
    world: World,
    generator: np.random.Generator,
    level: float,
    owner: np.ndarray,
    count: int = 0,
    same: int = 1,
) -> Items:
    """Fresh items; ``same`` neighbours are of one source."""
    count = count or world.grid.items
    sources = -(-count // same)
    ease = generator.normal(level, ITEM_SPREAD, sources)
    pace = np.exp(generator.normal(0.0, PACE_SPREAD, sources))
    own = np.zeros((len(owner), sources))
    if world.profile:
        own = generator.normal(0.0, world.profile, own.shape)[owner]
    ease, pace = (ease + own).repeat(same, axis=1), pace.repeat(same)
    return Items(ease[:, :count].astype(np.float32), pace[:count].astype(np.float32))


def _runs(world: World, generator: np.random.Generator, task: int) -> tuple[np.ndarray, np.ndarray]:
    """(M, n, T) skill and (M, n) measured evaluations of every run of a task."""
    goals = targets(world, generator, task)
    slope = slopes(world.axis, world.levels, task, world.profile)(goals)
    skill = slope[..., None] * course(world.grid) + movements(world, generator, goals.shape)
    return skill.astype(np.float32), measured_points(world, generator)


def _ends(
    world: World, generator: np.random.Generator, items: list[Items], owner: np.ndarray
) -> list[Answers]:
    """The splits at both ends; a start model's ID answers serve its own task and the others."""
    members = world.grid.members
    panel = generator.normal(RETAIN_LEVEL, ITEM_SPREAD, (members, RETAIN_ITEMS))
    panel = panel.astype(np.float32)
    before = _draw(generator, np.broadcast_to(panel, (len(owner), *panel.shape)))[owner]
    starts = [_repeated(generator, own.ease, world.grid.draws)[owner] for own in items]
    found = []
    for k in range(world.tasks):
        skill, measured = _runs(world, generator, k)
        splits = _splits(world, generator, items, k, owner)
        begun = {
            name: starts[int(name.removeprefix("transfer/"))]
            if name.startswith("transfer/")
            else _repeated(generator, split.ease, 1)[owner]
            for name, split in splits.items()
            if name != "id"
        }
        ends = {
            name: _repeated(
                generator,
                split.ease[:, None] + split.pace * skill[..., -1:],
                world.grid.draws if name == "id" else 1,
            )
            for name, split in splits.items()
        }
        fresh = _draw(generator, np.broadcast_to(panel, (*measured.shape, *panel.shape)))
        after = np.where(generator.random(fresh.shape) < CHURN, fresh, before[:, None])
        failed = measured < world.grid.points
        found.append(Answers(starts[k], measured, failed, None, begun, ends, before, after))
    return found


def _splits(
    world: World,
    generator: np.random.Generator,
    items: list[Items],
    task: int,
    owner: np.ndarray,
) -> dict[str, Items]:
    count = world.grid.end_items
    hard = _items(world, generator, world.levels[task] - HARDER, owner, count)
    form = _items(world, generator, world.levels[task], owner, count, len(TEMPLATES))
    shift = np.resize(np.float32(TEMPLATES), count)
    others = {
        f"transfer/{j}": Items(other.ease, np.float32(TRANSFER_PACE) * other.pace)
        for j, other in enumerate(items)
        if j != task
    }
    return {
        "id": items[task],
        "hard": Items(hard.ease, np.float32(HARD_PACE) * hard.pace),
        "format": Items(form.ease + shift, form.pace),
    } | others


def _repeated(generator: np.random.Generator, logit: np.ndarray, draws: int) -> np.ndarray:
    """(..., draws, N) from (..., N)."""
    p = probability(logit)[..., None, :]
    shape = (*logit.shape[:-1], draws, logit.shape[-1])
    return generator.random(shape, dtype=np.float32) < p


def _draw(generator: np.random.Generator, logit: np.ndarray) -> np.ndarray:
    p = probability(logit)
    return generator.random(p.shape, dtype=np.float32) < p
