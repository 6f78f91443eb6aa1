"""How much of the difference between designs is pretraining: variance components of a board.

The designs with two checkpoints or more, on the tasks that count in all their checkpoints, each
cell with the seeds that all cells have. Components are those of
:func:`crlbench.stats.variance_components.variance_components`: exact REML with profile intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import read_layout
from crlbench.stats.intervals import Interval
from crlbench.stats.variance_components import (
    RESIDUAL,
    Component,
    design_terms,
    variance_components,
)
from crlbench.verdict.axes import Axis
from crlbench.verdict.design_rows import Group, common_tasks, counting
from crlbench.verdict.entry import Entry

WORDS: Mapping[str, str] = {
    "design": "design",
    "order": "corpus order",
    "design:initialisation": "initialisation",
    "design:order": "design × order",
    "design:checkpoint": "checkpoint",
    "task": "task",
    "design:task": "design × task",
    "design:checkpoint:task": "checkpoint × task",
    RESIDUAL: "seed",
}
"""Terms for people."""
PRETRAINING = ("design:initialisation", "design:order", "design:checkpoint")
"""Terms that another pretraining of the same design draws anew. What a corpus order does to all
designs alike is no part of a difference between two of them."""
LEAST_DESIGNS, LEAST_TASKS = 2, 2


@dataclass(frozen=True)
class SpreadPart:
    """One component."""

    term: str
    """Factors joined by colons."""
    words: str
    levels: int
    """How many values of the term the data have."""
    sd: float
    """Standard deviation."""
    interval: Interval
    """95 %, of the standard deviation; ``high`` is infinite where few levels bound nothing."""


@dataclass(frozen=True)
class DesignSpread:
    """Components of one axis."""

    parts: tuple[SpreadPart, ...]
    """Empty with a ``reason``."""
    designs: int
    checkpoints: int
    """Over all designs."""
    tasks: int
    seeds: int
    """Of every checkpoint and task; 0 where the axis has one number for them all."""
    share: float | None
    """Share of the variance between single checkpoints of different designs that pretraining
    brings: the rest is the designs'."""
    share_low: float | None
    """Least share that the intervals of the components allow."""
    share_high: float | None
    reason: str | None
    """Why there are no components."""


def measure_spread(axis: Axis, groups: Sequence[Group]) -> DesignSpread:
    """The components of some designs.

    Args:
        groups: rows with two checkpoints or more.
    """
    entries = [(group, entry) for group in groups for entry in counting(axis, group)]
    if len(groups) < LEAST_DESIGNS:
        return _nothing("It takes two designs with two checkpoints or more each.", groups, 0, 0)
    tasks = common_tasks([entry.axes[axis] for _, entry in entries])
    if len(tasks) < LEAST_TASKS:
        few = "It takes two tasks that count in every checkpoint of every design."
        return _nothing(few, groups, len(entries), len(tasks))
    columns = [[_column(axis, entry, task) for task in tasks] for _, entry in entries]
    seeds = min(len(column) for of_entry in columns for column in of_entry)
    values = np.array([[column[:seeds] for column in of_entry] for of_entry in columns])
    factors = _factors(entries, values.shape)
    terms = _terms(groups, entries, seeds)
    try:
        found = variance_components(values.ravel(), factors, terms)
    except ValidationError as error:
        return _nothing(f"{error}.", groups, len(entries), len(tasks))
    residual = RESIDUAL if seeds > 1 else "design:checkpoint:task"
    parts = tuple(_part(one, residual) for one in found.components)
    by_term = {one.name: one for one in found.components}
    return DesignSpread(
        parts=parts,
        designs=len(groups),
        checkpoints=len(entries),
        tasks=len(tasks),
        seeds=seeds if seeds > 1 else 0,
        **_shares(by_term),
        reason=None,
    )


def _nothing(reason: str, groups: Sequence[Group], checkpoints: int, tasks: int) -> DesignSpread:
    return DesignSpread((), len(groups), checkpoints, tasks, 0, None, None, None, reason)


def _column(axis: Axis, entry: Entry, task: str) -> np.ndarray:
    """(n,) the numbers of the seeds; (1,) of stability, which is a number of all seeds."""
    if axis == "stability":
        return np.array([entry.axes[axis].by_task[task].value], dtype=np.float64)
    seeds = entry.evidence.seeds(axis, task)
    assert seeds is not None  # the entry has a value on the axis
    return seeds


def _factors(
    entries: Sequence[tuple[Group, Entry]], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """By name the level of every number of a (checkpoints, tasks, seeds) table."""
    checkpoint, task, _ = (axis.ravel() for axis in np.indices(shape))
    layouts = [read_layout([entry.checkpoint or ""]) for _, entry in entries]
    levels = {
        "design": np.array([group.name for group, _ in entries]),
        "checkpoint": np.array([entry.checkpoint for _, entry in entries]),
        "initialisation": np.array([layout.initialisations[0] for layout in layouts]),
        "order": np.array([layout.orders[0] for layout in layouts]),
    }
    return {name: column[checkpoint] for name, column in levels.items()} | {"task": task}


def _terms(
    groups: Sequence[Group], entries: Sequence[tuple[Group, Entry]], seeds: int
) -> tuple[str, ...]:
    """Terms that the data can tell apart: crossed ones where every design has the same crossing."""
    layouts = [
        read_layout([entry.checkpoint or "" for of, entry in entries if of is group])
        for group in groups
    ]
    crossings = {(frozenset(one.initialisations), frozenset(one.orders)) for one in layouts}
    crossed = all(layout.plan == "crossed" for layout in layouts) and len(crossings) == 1
    orders = sorted({order for layout in layouts for order in layout.orders})
    first = layouts[0]
    numbers = (first.initialisations, first.orders) if crossed else ([0] * len(orders), orders)
    terms = design_terms(*numbers)
    return terms if seeds > 1 else tuple(t for t in terms if t != "design:checkpoint:task")


def _part(one: Component, residual: str) -> SpreadPart:
    term = residual if one.name == RESIDUAL else one.name
    return SpreadPart(term, WORDS[term], one.levels, one.spread, one.spread_interval)


def _shares(parts: Mapping[str, Component]) -> dict[str, float | None]:
    """What pretraining is of the variance between single checkpoints of different designs."""
    again = [parts[name] for name in PRETRAINING if name in parts]
    design = parts["design"]
    mine, theirs = sum(one.variance for one in again), design.variance
    low, high = sum(one.interval.low for one in again), sum(one.interval.high for one in again)
    return {
        "share": _share(mine, theirs),
        "share_low": _share(low, design.interval.high),
        "share_high": _share(high, design.interval.low),
    }


def _share(part: float, rest: float) -> float | None:
    """Part of the sum; an endless sum leaves nothing, or everything, of a finite part."""
    if math.isinf(part):
        return 1.0
    total = part + rest
    return part / total if total > 0 else None
