"""Simulated boards of protocol CRL-2 whose designs were pretrained several times.

``python -m tests.support.designs FOLDER`` writes the one of docs/designs.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from crlbench.disk.hashing import digest
from crlbench.seeding import derive
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AxisScore, Estimate
from tests.support.simulate import TASKS, Plan, write_board

CROSSED = ("i0o0", "i0o1", "i1o0", "i1o1", "i2o0", "i2o1")
INDEPENDENT = ("i0o0", "i1o1", "i2o2")
Designs = Mapping[str, tuple[float, tuple[str, ...]]]
"""By model: how fast it learns, and the labels of its checkpoints."""
DESIGNS: Designs = {
    "tiny-llama": (2.4, CROSSED),
    "tiny-qwen2": (1.6, CROSSED),
    "tiny-mistral": (1.0, CROSSED),
    "tiny-phi": (0.9, CROSSED),
    "tiny-gemma": (1.4, ("i0o0",)),
}
ALONE = "tiny-gemma"
"""The design with a single checkpoint."""
SPREAD = 0.15
"""Standard deviation of the slope between checkpoints of a design."""
ITEMS = 224


def plans(designs: Designs = DESIGNS, stressed: bool = False) -> Iterator[Plan]:
    """Three seeds of every checkpoint; the first of each design has what a rank needs.

    Args:
        stressed: whether every checkpoint has a stress arm and the five seeds by which Stab of a
            task is rated, and not the first ones alone.
    """
    for model, (slope, labels) in designs.items():
        for label in labels:
            yield checkpoint(model, label, slope, label == labels[0], stressed)


def checkpoint(model: str, label: str, slope: float, first: bool, stressed: bool) -> Plan:
    """One checkpoint; its slope is drawn by its name."""
    drawn = np.random.Generator(np.random.PCG64(derive(3, model, label))).normal(0, SPREAD)
    name = model.replace("-", " ").title()
    plan = Plan(
        model=model,
        display_name=name if label == "i0o0" else f"{name} {label}",
        revision=digest([model, label])[:40],
        checkpoint=label,
        tasks=TASKS,
        seeds=3,
        stress=3 if first or stressed else 0,
        slope=float(slope + drawn),
        items=ITEMS,
        protocol="CRL-2",
        pass_draws=32,
        track_version=1,
    )
    plan = replace(plan, seeds=5) if stressed else plan
    return replace(plan, seeds=5, placebo=3, mode=3) if first else plan


def write_designs(root: Path, designs: Designs = DESIGNS, stressed: bool = False) -> Path:
    """The folder of a board of these designs."""
    return write_board(root, *plans(designs, stressed))


def entry_of(
    model: str,
    label: str,
    by_task: np.ndarray,
    margin_items: np.ndarray,
    revision: str = "",
    began: float | None = None,
    is_whole: bool = True,
) -> Any:
    """What a ranking reads of an entry.

    Args:
        by_task: (K,) its numbers.
        margin_items: (R,) replicates over items.
        revision: a second entry of a checkpoint has another one.
        began: seconds at which its first run started; None where no record says.
    """
    tasks = [f"task-{k}" for k in range(len(by_task))]
    score = AxisScore(
        axis="efficiency",
        value=float(by_task.mean()),
        interval=Interval(0.0, 1.0, 0.95),
        wider=None,
        n=5,
        by_task={t: Estimate(float(v), None, 5) for t, v in zip(tasks, by_task, strict=True)},
        reason=None,
        silence=None,
        drawn=None,
        spread=np.stack([margin_items] * 3),
        new=True,
    )
    volatile = {} if began is None else {"attempts": [{"start": began, "end": began + 1}]}
    run = SimpleNamespace(record=SimpleNamespace(volatile=volatile))
    around = np.linspace(-0.01, 0.01, 5)
    seeds = {task: value + around for task, value in zip(tasks, by_task, strict=True)}
    return SimpleNamespace(
        name=f"{model}@{revision or label}/ppo",
        slug=model,
        recipe="ppo",
        model=f"{model}@{revision or label}",
        display_name=model,
        design_name=model,
        full_name=f"{model} {label}",
        checkpoint=label,
        is_whole=is_whole,
        ranks=is_whole,
        why=(),
        axes={"efficiency": score},
        task_names=tuple(tasks),
        n=5,
        evidence=SimpleNamespace(
            seeds=lambda _, task: seeds[task], tasks={"task-0": SimpleNamespace(runs=[run])}
        ),
    )


if __name__ == "__main__":
    print(write_designs(Path(sys.argv[1])))
