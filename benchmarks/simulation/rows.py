"""Which boards are simulated: one row of a table each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, cycle
from typing import Literal

from .setting import MINI, SMALL, Axis, Entry, Grid, World
from .spreads import Scene

Part = Literal["coverage", "tiers", "aa", "bias", "power", "robustness"] | Literal[
    "axes", "tasks", "effects", "discovery", "ranks", "designs", "components", "precision"
]
PARTS: tuple[Part, ...] = ("coverage", "tiers", "aa", "bias", "power", "robustness")
"""Of protocol CRL-1."""
PARTS_2: tuple[Part, ...] = (
    "axes",
    "tasks",
    "effects",
    "discovery",
    "ranks",
    "designs",
    "components",
    "precision",
)
"""Of protocol CRL-2; see :mod:`simulation.protocol2_rows`."""
AXES: tuple[Axis, ...] = ("efficiency", "stability", "generalization")
SIGNS = {"efficiency": "Λ", "stability": "Stab", "generalization": "Gen"}
EFFECTS = (0.04, 0.08, 0.12)
SHAPES = ("flat", "rising", "saturating", "late", "level")
GROUPS = 0.3
"""How far the unequal models of a board are apart."""
UNEVEN = 0.2
"""What half of the tasks add to a model, and the others take."""


@dataclass(frozen=True)
class Row:
    """What is simulated for one line of a table."""

    part: Part
    kind: str
    """``intervals``, ``wins``, ``nulls``, ``forgetting``, or a measure of protocol CRL-2."""
    name: str
    """Once; it names the draws."""
    what: str
    """For people: which board."""
    world: World | None = None
    shape: str = ""
    grid: Grid = MINI
    scene: Scene | None = None
    """Of protocol CRL-2."""

    @property
    def has_target(self) -> bool:
        """Whether the protocol says what must come of it: some need many boards, others not."""
        if self.part == "tiers":
            targeted = ("8 equal", "4 equal", "4 + 4", "8 equal, unequal tasks")
            return self.what in targeted and self.world.seeds <= 10
        if self.part == "effects":
            # Boards that are answered item by item are costly.
            return self.world is None
        return self.part in ("coverage", "aa", "bias", *PARTS_2)


def rows(parts: tuple[Part, ...] = PARTS) -> list[Row]:
    """All rows of the chosen parts, in the order of the tables."""
    makers = {
        "coverage": _coverage,
        "tiers": _tiers,
        "aa": _aa,
        "bias": _bias,
        "power": _power,
        "robustness": _robustness,
    }
    return [row for part in PARTS if part in parts for row in makers[part]()]


def _row(part: Part, kind: str, what: str, world: World) -> Row:
    name = f"{part}/{kind}/{world.axis}/{what}/n={world.seeds}/K={world.tasks}/{world.grid.name}"
    return Row(part, kind, name, what, world, grid=world.grid)


def _coverage() -> Iterator[Row]:
    two = (Entry(), Entry(mean=0.42))
    for axis in AXES:
        for tasks in (4, 6):
            for seeds in (5, 10):
                world = World(two, axis, seeds=seeds, tasks=tasks)
                yield _row("coverage", "intervals", "two models", world)
        yield _row("coverage", "intervals", "two models", World(two, axis, SMALL))
        yield _row("coverage", "intervals", "two models", World(two, axis, seeds=3))


def _tiers() -> Iterator[Row]:
    for axis in ("efficiency", "generalization"):
        for seeds in (5, 10, 20):
            yield _row("tiers", "wins", "8 equal", World((Entry(),) * 8, axis, seeds=seeds))
            yield _row("tiers", "wins", "4 + 4", World(_groups(axis, 4), axis, seeds=seeds))
            spreads = tuple(Entry(spread=0.04 + 0.015 * m) for m in range(8))
            world = World(spreads, axis, seeds=seeds)
            yield _row("tiers", "wins", "8 equal, unequal spreads", world)
            uneven = World(_uneven((Entry(),) * 8), axis, seeds=seeds)
            yield _row("tiers", "wins", "8 equal, unequal tasks", uneven)
            both = World(_uneven(spreads), axis, seeds=seeds)
            yield _row("tiers", "wins", "8 equal, unequal tasks and spreads", both)
        small = World((Entry(),) * 8, axis, SMALL, seeds=10)
        yield _row("tiers", "wins", "8 equal", small)
        alike = World((Entry(spread=0.03),) * 8, axis, seeds=10)
        yield _row("tiers", "wins", "8 equal, seeds alike (.03)", alike)
        profiles = World((Entry(),) * 8, axis, seeds=10, profile=0.5)
        yield _row("tiers", "wins", "8 equal, each with its own items", profiles)
    for seeds in (5, 10):
        yield _row("tiers", "wins", "8 equal", World((Entry(),) * 8, seeds=seeds, tasks=6))
        uneven = World(_uneven((Entry(),) * 8, 6), seeds=seeds, tasks=6)
        yield _row("tiers", "wins", "8 equal, unequal tasks", uneven)
    yield _row("tiers", "wins", "20 equal", World((Entry(),) * 20))
    # The null of a curve is costly: fewer models.
    for seeds in (5, 10, 20):
        world = World((Entry(),) * 4, "stability", seeds=seeds)
        yield _row("tiers", "wins", "4 equal", world)
    yield _row("tiers", "wins", "2 + 2", World(_groups("stability", 2), "stability", seeds=10))


def _groups(axis: Axis, size: int) -> tuple[Entry, ...]:
    """Equal models and as many others that are equal among themselves."""
    other = Entry(spread=0.25) if axis == "stability" else Entry(mean=0.35 + GROUPS)
    return (Entry(),) * size + (other,) * size


def _uneven(entries: tuple[Entry, ...], tasks: int = 4) -> tuple[Entry, ...]:
    """The same headlines, each from other tasks: half of them add, half of them take."""
    halves = combinations(range(tasks), tasks // 2)
    return tuple(
        replace(entry, tasks=tuple(UNEVEN if k in half else -UNEVEN for k in range(tasks)))
        for entry, half in zip(entries, cycle(halves))
    )


def _aa() -> Iterator[Row]:
    same = (Entry(model=0), Entry(model=0))
    for axis in AXES:
        for seeds in (5, 10, 20):
            world = World(same, axis, seeds=seeds, correlation=0.0)
            yield _row("aa", "wins", "one model, other seeds", world)
            yield _row("aa", "intervals", "one model, other seeds", world)


def _bias() -> Iterator[Row]:
    for grid in (MINI, SMALL):
        for shape in SHAPES:
            yield Row("bias", "nulls", f"bias/{grid.name}/{shape}", shape, None, shape, grid)
    yield Row("bias", "forgetting", "bias/forgetting", "retain panel")


def _power() -> Iterator[Row]:
    for axis in ("efficiency", "generalization"):
        for effect in EFFECTS:
            for seeds in (5, 10, 20):
                entries = (Entry(mean=0.35 + effect),) + (Entry(),) * 7
                world = World(entries, axis, seeds=seeds)
                what = f"one of 8 better by {effect:.2f}"
                yield _row("power", "wins", what, world)
                uneven = replace(world, entries=_uneven(entries))
                yield _row("power", "wins", f"{what}, unequal tasks", uneven)


def _robustness() -> Iterator[Row]:
    shapes: tuple[tuple[str, Entry], ...] = (
        ("skewed seeds", Entry(shape="skewed")),
        ("heavy tails", Entry(shape="heavy")),
        ("10 % of runs fail", Entry(failures=0.1)),
        ("30 % of runs fail", Entry(failures=0.3)),
    )
    for what, entry in shapes:
        for axis in AXES:
            yield _row("robustness", "intervals", what, World((entry,) * 2, axis))
            models = 4 if axis == "stability" else 8
            yield _row("robustness", "wins", what, World((entry,) * models, axis))
