"""Which boards of protocol CRL-2 are simulated: one row of a table each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from crlbench.stats.stress import STRESS_SEEDS

from .rows import PARTS_2, Part, Row
from .setting import Entry, World
from .spreads import Scene, Spreads

TASKS = (4, 6, 8, 10)
PAIR = (0.0, 0.05)
EIGHT = (0.0,) * 8
LABELS = {
    "1": ("i0o0",),
    "2": ("i0o0", "i1o1"),
    "3": ("i0o0", "i1o1", "i2o2"),
    "6": tuple(f"i{i}o{i}" for i in range(6)),
    "3 x 1": ("i0o0", "i1o0", "i2o0"),
    "3 x 2": tuple(f"i{i}o{o}" for i in range(3) for o in range(2)),
}
"""Of the checkpoints of a design: one, independent ones, those on one order, and crossed ones."""
ALONE = Spreads(checkpoint=0.0, checkpoint_task=0.0)
"""Entries of one checkpoint each: what is theirs on a task is design x task."""
SHAPES = {
    "normal tasks": ALONE,
    "skewed tasks": replace(ALONE, shape="skewed"),
    "as skewed as can be": Spreads(0.0, 0.28, 0.0, 0.0, shape="skewed"),
    "a fifth of the tasks easy": replace(ALONE, shape="two kinds"),
    "heavy tails": replace(ALONE, shape="heavy"),
    "tasks alike": Spreads(0.22, 0.0, 0.0, 0.0),
}
SPREAD = 0.014
"""Of RL seeds."""
ARMS_ALIKE = 0.1
"""Correlation of two arms of a model over the seeds that both have; .12 on the board of mini 2."""
MEASURED = replace(ALONE, items=0.0133, seeds_by_cell=(0.43, 1.93))
"""With the noise of items, .0094 for a pair on four tasks, and seeds that differ by .006 to .027
from cell to cell."""
MINI_2 = Spreads(0.018, 0.05, 0.01, 0.045, 0.012, items=0.0098, seeds_by_cell=(0.43, 1.93))
"""On the board of mini version 2, in Λ_new of designs (2026-11-28); the others are of version 1."""
ALIKE = 0.01
"""Spread of seeds that are nearly alike, before the noise of answers; half of it in a mode arm."""
PRESENT = "mini 2"
"""In the names of rows with these spreads."""
UNEQUAL = {
    "one of 8 spreads 1.5 times": (1.5, *(1.0,) * 7),
    "one of 8 spreads twice": (2.0, *(1.0,) * 7),
    "one of 8 spreads 3 times": (3.0, *(1.0,) * 7),
    "two of 8 spread twice": (2.0, 2.0, *(1.0,) * 6),
    "spreads .15 and .05 by turns": (1.5, 0.5),
}
"""How much the checkpoints of designs vary, by design; the first two are compared."""


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
    shapes = [(two, tasks, seeds) for tasks in TASKS for seeds in (3, 5, 10)]
    equal = [(same, 4, 5), (same, 8, 5)]
    for entries, tasks, seeds in [*shapes, *equal]:
        what = "two equal models" if entries is same else "two models"
        new = World(entries, seeds=seeds, tasks=tasks, profile=0.5)
        yield _axis_row("new intervals", "Λ_new", what, new)
    failing = World((fails, fails), seeds=5, profile=0.5)
    yield _axis_row("new intervals", "Λ_new", "10 % of runs fail", failing)
    for entries, tasks, seeds in [*shapes, *equal]:
        what = "two equal models" if entries is same else "two models"
        calm = World(entries, "stability", seeds=seeds + STRESS_SEEDS, tasks=tasks)
        yield _axis_row("stress intervals", "Stab", what, replace(calm, stress=STRESS_SEEDS))
    failing = World((breaks, breaks), "stability", seeds=5 + STRESS_SEEDS, stress=STRESS_SEEDS)
    yield _axis_row("stress intervals", "Stab", "30 % of stress runs fail", failing)
    for entries, tasks, seeds in [*shapes, *equal]:
        what = "two equal models" if entries is same else "two models"
        ends = World(entries, "generalization", seeds=seeds, tasks=tasks)
        yield _axis_row("gen intervals", "Gen", what, ends)
    arms = (Entry(mean=0.1, model=0), Entry(mean=0.2, model=0))
    for tasks, seeds in product(TASKS, (3, 5, 10)):
        world = World(arms, seeds=seeds, tasks=tasks, correlation=ARMS_ALIKE)
        yield _axis_row("taught intervals", "Λ(mode), Taught", "two arms of a model", world)
    same_arms = (Entry(mean=0.1, model=0), Entry(mean=0.1, model=0))
    for tasks in (4, 8):
        world = World(same_arms, tasks=tasks, correlation=ARMS_ALIKE)
        yield _axis_row("taught intervals", "Λ(mode), Taught", "equal arms", world)
    two = (Entry(spread=ALIKE), Entry(mean=0.42, spread=ALIKE))
    arms = (replace(arms[0], spread=ALIKE / 2), replace(arms[1], spread=ALIKE))
    for tasks in TASKS:
        boards = {
            "new": ("Λ_new", World(two, tasks=tasks, profile=0.5)),
            "gen": ("Gen", World(two, "generalization", tasks=tasks)),
            "taught": ("Λ(mode), Taught", World(arms, tasks=tasks, correlation=ARMS_ALIKE)),
        }
        for kind, (sign, world) in boards.items():
            yield _axis_row(f"{kind} intervals", sign, "two models, seeds alike", world)
    for tasks, seeds in product(TASKS, (3, 5)):
        for kind, (sign, world) in _present_axes().items():
            board = replace(world, tasks=tasks, seeds=seeds)
            yield _axis_row(f"{kind} intervals", sign, f"two models, {PRESENT}", board)


def _present_axes() -> dict[str, tuple[str, World]]:
    """Worlds whose starts, gains and spreads of seeds are like those of the present board.

    Its seeds differ by .012 in Λ_new, .011 in Gen and Λ, .008 in Λ of the mode arm; these by .012,
    .014, .012 and .008, the noise of answers included.
    """
    even = World((), ease=-0.5, ups_and_downs=0.05)
    new = (Entry(mean=0.15, spread=0.01), Entry(mean=0.2, spread=0.01))
    ends = (Entry(mean=0.02, spread=0.003), Entry(mean=0.05, spread=0.003))
    arms = (Entry(mean=0.06, spread=0.003, model=0), Entry(mean=0.16, spread=0.008, model=0))
    far = World(ends, "generalization", ease=-2.0, ups_and_downs=0.02)
    return {
        "new": ("Λ_new", replace(even, entries=new, profile=0.5)),
        "gen": ("Gen", far),
        "taught": ("Λ(mode), Taught", replace(even, entries=arms, correlation=ARMS_ALIKE)),
    }


def _axis_row(kind: str, sign: str, what: str, world: World) -> Row:
    calm = world.seeds - world.stress
    name = f"axes/{sign}/{what}/n={calm}/K={world.tasks}"
    return Row("axes", kind, name, what, world)


def _tasks() -> Iterator[Row]:
    for what, spreads in SHAPES.items():
        for tasks in (4, 5, 6, 8, 10):
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
            scene = Scene(MEASURED, tasks, seeds, designs=designs)
            yield _row("effects", "tier errors", what, scene)
    for name in ("8 equal", "4 + 4, a margin apart"):
        what = f"{name}, no noise of items"
        plain = Scene(ALONE, 4, 5, designs=boards[name])
        yield _row("effects", "tier errors", what, plain)
        what = f"{name}, unequal spreads"
        uneven = Scene(replace(MEASURED, sizes=(1.5, 0.5)), 4, 5, designs=boards[name])
        yield _row("effects", "tier errors", what, uneven)
        entries = tuple(Entry(mean=0.35 + gap, spread=SPREAD) for gap in boards[name])
        world = World(entries, seeds=5)
        what = f"{name}, answered item by item"
        yield Row("effects", "tier errors", f"effects/{what}/n=5/K=4", what, world)
    for plan, what, spreads in _design_boards():
        for name in ("8 equal", "4 + 4, a margin apart"):
            scene = Scene(spreads, 8, 3, LABELS[plan], boards[name])
            yield _row("effects", "design tiers", f"{name}, {plan} checkpoints, {what}", scene)
    boards["a design against itself"] = (0.0, 0.0)
    boards["two designs, a margin apart"] = PAIR
    for name in (*list(boards)[:2], *list(boards)[-2:]):
        for plan, tasks in product(("1", "3", "6"), TASKS):
            kind = "tier errors" if plan == "1" else "design tiers"
            scene = Scene(MINI_2, tasks, 3, LABELS[plan], boards[name])
            yield _row("effects", kind, f"{PRESENT}: {name}, {_checkpoints(plan)}", scene)


def _checkpoints(plan: str) -> str:
    return f"{plan} {'checkpoint' if plan == '1' else 'checkpoints'}"


def _design_boards() -> Iterator[tuple[str, str, Spreads]]:
    """Plans of checkpoints, boards of designs in words, and their spreads."""
    base = Spreads(checkpoint=0.05, items=MEASURED.items)
    yield "2", "own", base
    yield "3", "own", base
    yield "3 x 1", "own", base
    yield "3 x 2", "own", base
    yield "3 x 2", "thirds", replace(base, split="thirds")
    yield "3 x 2", "order", replace(base, split="order")
    yield "3 x 2", "shared order", replace(base, shared_order=0.05)
    yield "3 x 2", "checkpoint x task .2", replace(base, split="thirds", checkpoint_task=0.2)
    uneven = replace(base, split="thirds", sizes=UNEQUAL["two of 8 spread twice"])
    yield "3 x 2", "two of 8 spread twice", uneven


def _discovery() -> Iterator[Row]:
    boards = {
        "8 equal": EIGHT,
        "4 equal, 4 a margin or more apart": (0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.1, 0.15),
        "8 in steps of .01": tuple(0.01 * m for m in range(8)),
        "8 in steps of a margin": tuple(0.05 * m for m in range(8)),
    }
    for what, designs in boards.items():
        for seeds in (5, 10):
            scene = Scene(MEASURED, 4, seeds, designs=designs)
            yield _row("discovery", "false discoveries", what, scene)
        for plan in ("3", "3 x 2"):
            spreads = Spreads(checkpoint=0.05, split="thirds", items=MEASURED.items)
            scene = Scene(spreads, 8, 3, LABELS[plan], designs)
            what_here = f"{what}, {plan} checkpoints"
            yield _row("discovery", "design discoveries", what_here, scene)
        for plan, tasks in product(("1", "3", "6"), TASKS):
            scene = Scene(MINI_2, tasks, 3, LABELS[plan], designs)
            kind = "false discoveries" if plan == "1" else "design discoveries"
            yield _row("discovery", kind, f"{PRESENT}: {what}, {_checkpoints(plan)}", scene)


def _ranks() -> Iterator[Row]:
    for tasks in TASKS:
        for name in ("normal tasks", "skewed tasks"):
            scene = Scene(SHAPES[name], tasks, 5, designs=EIGHT)
            yield _row("ranks", "rank errors", f"8 equal, {name}", scene)
        better = Scene(ALONE, tasks, 5, designs=(0.3, *EIGHT[1:]))
        yield _row("ranks", "rank errors", "one of 8 better by .3", better)
        for what, designs in (("8 equal", EIGHT), ("one of 8 better by .1", (0.1, *EIGHT[1:]))):
            # One checkpoint each: what is its own is no noise, and the board is of checkpoints.
            alone = Scene(replace(MINI_2, checkpoint=0.0), tasks, 3, designs=designs)
            yield _row("ranks", "rank errors", f"{PRESENT}: {what}, 1 checkpoint", alone)
            for plan in ("3", "6"):
                scene = Scene(MINI_2, tasks, 3, LABELS[plan], designs)
                what_here = f"{PRESENT}: {what}, {_checkpoints(plan)}"
                yield _row("ranks", "design ranks", what_here, scene)


def _designs() -> Iterator[Row]:
    def row(plan: str, what: str, spreads: Spreads, tasks: int) -> Row:
        scene = Scene(spreads, tasks, 3, LABELS[plan], PAIR + EIGHT[2:])
        kind = "one checkpoint" if plan == "1" else "design intervals"
        return _row("designs", kind, f"{plan}, {what}", scene)

    for plan, tasks in product(("1", "3", "6"), TASKS):
        yield row(plan, PRESENT, MINI_2, tasks)
    for plan, tasks in product(("3", "6"), TASKS):
        two = Scene(MINI_2, tasks, 3, LABELS[plan], (0.0, 0.0))
        yield _row("designs", "design intervals", f"{plan}, {PRESENT}, two designs", two)
    for tasks in TASKS:
        for shape in ("normal", "skewed"):
            yield row("1", f"{shape} tasks", Spreads(shape=shape), tasks)
        for spread in (0.05, 0.2):
            what = f"checkpoint {spread:g}"
            base = Spreads(checkpoint=spread)
            for plan in ("3", "6", "3 x 1"):
                yield row(plan, what, base, tasks)
            for split in ("checkpoint", "thirds", "order"):
                yield row("3 x 2", f"{what} ({split})", replace(base, split=split), tasks)
            thirds = replace(base, split="thirds")
            for plan in ("3", "3 x 2"):
                skewed = replace(thirds, shape="skewed")
                yield row(plan, f"{what}, skewed tasks", skewed, tasks)
    for tasks in (4, 8):
        thirds = Spreads(split="thirds")
        for shared in (0.03, 0.06, 0.1):
            ordered = replace(thirds, shared_order=shared)
            for plan in ("3", "3 x 2"):
                yield row(plan, f"checkpoint .1, order of all {shared:g}", ordered, tasks)
        for plan in ("2", "3", "3 x 2"):
            noisy = replace(thirds, checkpoint_task=0.2, items=MEASURED.items)
            yield row(plan, "checkpoint .1, checkpoint x task .2, items", noisy, tasks)
        for what, sizes in UNEQUAL.items():
            for plan in ("3", "3 x 2"):
                yield row(plan, f"checkpoint .1, {what}", replace(thirds, sizes=sizes), tasks)


def _components() -> Iterator[Row]:
    base = Spreads(checkpoint=0.14, split="thirds", design=0.05, shared_order=0.05)
    for tasks in (4, 8):
        for spread in (0.05, 0.14, 0.2):
            yield _component_row(f"checkpoint {spread:g}", replace(base, checkpoint=spread), tasks)
    yield _component_row("designs .2", replace(base, design=0.2), 8)
    yield _component_row("equal designs, no order", replace(base, design=0, shared_order=0), 8)
    alone = replace(base, split="checkpoint")
    yield _component_row("checkpoint .14, no main effects", alone, 8)
    yield _component_row("checkpoint .14, skewed tasks", replace(base, shape="skewed"), 8)
    present = replace(MINI_2, design=0.028, items=0.0, seeds_by_cell=(1.0, 1.0))
    for plan, tasks in product(("3", "6"), TASKS):
        yield _component_row(f"{PRESENT}: {_checkpoints(plan)}", present, tasks, plan)


def _component_row(what: str, spreads: Spreads, tasks: int, plan: str = "3 x 2") -> Row:
    scene = Scene(spreads, tasks, 3, LABELS[plan], EIGHT)
    return _row("components", "component intervals", what, scene)


def _precision() -> Iterator[Row]:
    for tasks in (4, 8):
        alone = Scene(MINI_2, tasks, 3, designs=(0.0, 0.0))
        yield _row("precision", "seed intervals", f"{PRESENT}: 1 checkpoint", alone)
        for plan in ("3", "6"):
            scene = Scene(MINI_2, tasks, 3, LABELS[plan], EIGHT)
            what = f"{PRESENT}: {_checkpoints(plan)}"
            yield _row("precision", "design intervals", what, scene)
    for tasks in (4, 8):
        for seeds in (3, 5, 10, 20):
            scene = Scene(MEASURED, tasks, seeds, designs=(0.0, 0.0))
            yield _row("precision", "seed intervals", "seeds and items", scene)
            scene = Scene(ALONE, tasks, seeds, designs=(0.0, 0.0))
            yield _row("precision", "seed intervals", "seeds alone", scene)
    for tasks in (4, 6, 8, 10, 12, 16, 24):
        scene = Scene(ALONE, tasks, 5, designs=(0.0, 0.0))
        yield _row("precision", "task intervals", "tasks", scene)
    for spread in (0.05, 0.1, 0.2):
        for plan in ("3", "3 x 1", "3 x 2"):
            for tasks in (4, 8):
                split = "thirds" if plan == "3 x 2" else "checkpoint"
                spreads = Spreads(checkpoint=spread, split=split, items=MEASURED.items)
                scene = Scene(spreads, tasks, 3, LABELS[plan], EIGHT)
                what = f"checkpoints {plan}, {spread:g}"
                yield _row("precision", "design intervals", what, scene)
    thirds = Spreads(split="thirds", items=MEASURED.items)
    for seeds in (1, 3, 10):
        scene = Scene(thirds, 8, seeds, LABELS["3 x 2"], EIGHT)
        yield _row("precision", "design intervals", "seeds of checkpoints 3 x 2", scene)
