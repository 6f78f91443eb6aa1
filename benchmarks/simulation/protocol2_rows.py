"""Which boards of protocol CRL-2 are simulated: one row of a table each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crlbench.stats.stress import STRESS_SEEDS

from .rows import PARTS_2, Part, Row
from .setting import Entry, World
from .spreads import Scene, Spreads

TASKS = (4, 6, 8, 10)
PAIR = (0.0, 0.05)
EIGHT = (0.0,) * 8
LABELS = {
    "1": ("i0o0",),
    "3": ("i0o0", "i1o1", "i2o2"),
    "6": tuple(f"i{i}o{i}" for i in range(6)),
    "3 x 2": tuple(f"i{i}o{o}" for i in range(3) for o in range(2)),
}
"""Of the checkpoints of a design: one, independent ones, and crossed ones."""
ALONE = Spreads(checkpoint=0.0, checkpoint_task=0.0)
"""Entries of one checkpoint each: what is theirs on a task is design x task."""
SHAPES = {
    "normal tasks": ALONE,
    "skewed tasks": replace(ALONE, shape="skewed"),
    "as skewed as can be": Spreads(0.0, 0.28, 0.0, 0.0, shape="skewed"),
    "heavy tails": replace(ALONE, shape="heavy"),
    "tasks alike": Spreads(0.22, 0.0, 0.0, 0.0),
}
SPREAD = 0.014
"""Of RL seeds."""


def rows_2(parts: tuple[Part, ...] = PARTS_2) -> list[Row]:
    """All rows of the chosen parts, in the order of the tables."""
    makers = {
        "axes": _axes,
        "tasks": _tasks,
        "effects": _effects,
        "discovery": _discovery,
        "ranks": _ranks,
        "designs": _designs,
        "components": _components,
        "precision": _precision,
    }
    return [row for part in PARTS_2 if part in parts for row in makers[part]()]


def _row(part: Part, kind: str, what: str, scene: Scene) -> Row:
    designs = f"M={len(scene.designs)}/R={len(scene.labels)}"
    name = f"{part}/{kind}/{what}/{designs}/K={scene.tasks}/n={scene.seeds}"
    return Row(part, kind, name, what, scene=scene)


def _axes() -> Iterator[Row]:
    two, same = (Entry(), Entry(mean=0.42)), (Entry(), Entry())
    fails, breaks = Entry(failures=0.1), Entry(stress_failures=0.3)
    shapes = [(two, tasks, seeds) for tasks in (4, 6) for seeds in (3, 5, 10)]
    for entries, tasks, seeds in [*shapes, (same, 4, 5)]:
        what = "two equal models" if entries is same else "two models"
        new = World(entries, seeds=seeds, tasks=tasks, profile=0.5)
        yield _axis_row("new intervals", "Λ_new", what, new)
    failing = World((fails, fails), seeds=5, profile=0.5)
    yield _axis_row("new intervals", "Λ_new", "10 % of runs fail", failing)
    for entries, tasks, seeds in [*shapes, (same, 4, 5)]:
        what = "two equal models" if entries is same else "two models"
        calm = World(entries, "stability", seeds=seeds + STRESS_SEEDS, tasks=tasks)
        yield _axis_row("stress intervals", "Stab", what, replace(calm, stress=STRESS_SEEDS))
    failing = World((breaks, breaks), "stability", seeds=5 + STRESS_SEEDS, stress=STRESS_SEEDS)
    yield _axis_row("stress intervals", "Stab", "30 % of stress runs fail", failing)


def _axis_row(kind: str, sign: str, what: str, world: World) -> Row:
    calm = world.seeds - world.stress
    name = f"axes/{sign}/{what}/n={calm}/K={world.tasks}"
    return Row("axes", kind, name, what, world)


def _tasks() -> Iterator[Row]:
    for what, spreads in SHAPES.items():
        for tasks in TASKS:
            scene = Scene(spreads, tasks, 5, designs=PAIR)
            yield _row("tasks", "task intervals", what, scene)


def _effects() -> Iterator[Row]:
    boards = {
        "8 equal": EIGHT,
        "4 + 4, a margin apart": (0.0,) * 4 + (0.05,) * 4,
        "8 in steps of a margin": tuple(0.05 * m for m in range(8)),
        "a model against itself": (0.0, 0.0),
        "one of 8 better by .08": (0.08, *EIGHT[1:]),
    }
    for what, designs in boards.items():
        for tasks, seeds in ((4, 3), (4, 5), (4, 10), (8, 5)):
            scene = Scene(ALONE, tasks, seeds, designs=designs)
            yield _row("effects", "tier errors", what, scene)
    for name in ("8 equal", "4 + 4, a margin apart"):
        what = f"{name}, unequal spreads"
        uneven = Scene(replace(ALONE, uneven=True), 4, 5, designs=boards[name])
        yield _row("effects", "tier errors", what, uneven)
        entries = tuple(Entry(mean=0.35 + gap, spread=SPREAD) for gap in boards[name])
        world = World(entries, seeds=5)
        what = f"{name}, answered item by item"
        yield Row("effects", "tier errors", f"effects/{what}/n=5/K=4", what, world)


def _discovery() -> Iterator[Row]:
    boards = {
        "8 equal": EIGHT,
        "4 equal, 4 a margin or more apart": (0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.1, 0.15),
        "8 in steps of .01": tuple(0.01 * m for m in range(8)),
        "8 in steps of a margin": tuple(0.05 * m for m in range(8)),
    }
    for what, designs in boards.items():
        for seeds in (5, 10):
            scene = Scene(ALONE, 4, seeds, designs=designs)
            yield _row("discovery", "false discoveries", what, scene)


def _ranks() -> Iterator[Row]:
    for tasks in TASKS:
        for name in ("normal tasks", "skewed tasks"):
            scene = Scene(SHAPES[name], tasks, 5, designs=EIGHT)
            yield _row("ranks", "rank errors", f"8 equal, {name}", scene)
        better = Scene(ALONE, tasks, 5, designs=(0.3, *EIGHT[1:]))
        yield _row("ranks", "rank errors", "one of 8 better by .3", better)


def _designs() -> Iterator[Row]:
    for tasks in TASKS:
        for shape in ("normal", "skewed"):
            one = Scene(Spreads(shape=shape), tasks, 3, LABELS["1"], PAIR)
            yield _row("designs", "design intervals", f"1, {shape} tasks", one)
        for spread in (0.05, 0.2):
            for plan in ("3", "6"):
                for shape in ("normal", "skewed"):
                    spreads = Spreads(checkpoint=spread, shape=shape)
                    scene = Scene(spreads, tasks, 3, LABELS[plan], PAIR)
                    what = f"{plan}, {shape} tasks, checkpoint {spread:g}"
                    yield _row("designs", "design intervals", what, scene)
            for split in ("checkpoint", "thirds", "order"):
                spreads = Spreads(checkpoint=spread, split=split)
                scene = Scene(spreads, tasks, 3, LABELS["3 x 2"], PAIR + EIGHT[2:])
                what = f"3 x 2 ({split}), normal tasks, checkpoint {spread:g}"
                yield _row("designs", "design intervals", what, scene)
            skewed = Spreads(checkpoint=spread, split="thirds", shape="skewed")
            scene = Scene(skewed, tasks, 3, LABELS["3 x 2"], PAIR + EIGHT[2:])
            what = f"3 x 2 (thirds), skewed tasks, checkpoint {spread:g}"
            yield _row("designs", "design intervals", what, scene)
        uneven = Spreads(split="thirds", uneven=True)
        scene = Scene(uneven, tasks, 3, LABELS["3 x 2"], PAIR + EIGHT[2:])
        what = "3 x 2 (thirds), normal tasks, checkpoint .15 and .05 by turns"
        yield _row("designs", "design intervals", what, scene)


def _components() -> Iterator[Row]:
    for tasks in (4, 8):
        for spread in (0.05, 0.14, 0.2):
            spreads = Spreads(checkpoint=spread, split="thirds")
            scene = Scene(spreads, tasks, 3, LABELS["3 x 2"], EIGHT)
            yield _row("components", "component intervals", f"checkpoint {spread:g}", scene)
    spreads = Spreads(checkpoint=0.14, split="checkpoint")
    scene = Scene(spreads, 8, 3, LABELS["3 x 2"], EIGHT)
    yield _row("components", "component intervals", "checkpoint .14, no main effects", scene)
    skewed = Spreads(checkpoint=0.14, split="thirds", shape="skewed")
    scene = Scene(skewed, 8, 3, LABELS["3 x 2"], EIGHT)
    yield _row("components", "component intervals", "checkpoint .14, skewed tasks", scene)


def _precision() -> Iterator[Row]:
    for tasks in (4, 8):
        for seeds in (3, 5, 10, 20):
            scene = Scene(ALONE, tasks, seeds, designs=(0.0, 0.0))
            yield _row("precision", "seed intervals", "seeds", scene)
    for tasks in (4, 6, 8, 10, 12, 16, 24):
        scene = Scene(ALONE, tasks, 5, designs=(0.0, 0.0))
        yield _row("precision", "task intervals", "tasks", scene)
    for spread in (0.05, 0.1, 0.2):
        for plan in ("3", "6", "3 x 2"):
            for tasks in (4, 8):
                split = "thirds" if plan == "3 x 2" else "checkpoint"
                spreads = Spreads(checkpoint=spread, split=split)
                designs = EIGHT if plan == "3 x 2" else (0.0, 0.0)
                scene = Scene(spreads, tasks, 3, LABELS[plan], designs)
                what = f"checkpoints {plan}, {spread:g}"
                yield _row("precision", "design intervals", what, scene)
    for seeds in (1, 3, 10):
        scene = Scene(Spreads(checkpoint=0.1), 8, seeds, LABELS["6"], (0.0, 0.0))
        yield _row("precision", "design intervals", "seeds of a checkpoint", scene)
