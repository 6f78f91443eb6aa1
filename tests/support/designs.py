"""Simulated boards of protocol CRL-2 whose designs were pretrained several times.

``python -m tests.support.designs FOLDER`` writes the one of docs/designs.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from crlbench.disk.hashing import digest
from crlbench.seeding import derive
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


if __name__ == "__main__":
    print(write_designs(Path(sys.argv[1])))
