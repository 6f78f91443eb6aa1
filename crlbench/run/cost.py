"""What a cell costs, from plain data: to order cells before any of their kind has run.

The unit is a parameter times a byte of text run forward once: only ratios between cells count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.arms import CONTROLS
from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.errors import CrlbenchError

TYPICAL_PARAMETERS = 100_000_000
"""Size of a model that does not say its own."""
LEAST_PARAMETERS = 10_000_000
"""A step of a small model costs what surrounds it, whatever its size."""
TYPICAL_BYTES = (128, 64)
"""Length of a prompt and of a completion, of a task that cannot be read."""
DECODED = 3
"""What a byte costs that is decoded, one after another, against one that is only read."""
BACKWARD = 3
"""What forward and backward cost together, in forwards."""
WATCHED = 2
"""Forwards over every completion beside the update: the reference and the old policy."""


def cost(cell: Cell) -> float:
    """Cost of a whole run of a cell, above 0; of a chain with all its stages."""
    c = Conditions.model_validate(cell.conditions)
    work = Workpiece(cell.model, cell.task, cell.catalog, c)
    stages = sum(stage_costs(cell.recipe_config, work).values())
    return work.cost(c.budget.total, count_scored(cell, c)) + stages


def stage_costs(config: Mapping[str, Any], work: Workpiece) -> dict[str, float]:
    """Cost of each stage of a chain before the last one, by name; empty without a chain.

    A stage that is stored already costs nothing; that is not known here.

    Args:
        config: of the recipe, as records and plans hold it.
    """
    p, items = work.conditions.preference, work.conditions.evaluation.curve_items
    if p is None:
        return {}
    costs: dict[str, float] = {}
    for stage in config.get("stages", ())[:-1]:
        if stage["kind"] in ("collect", "choose"):
            costs[stage["name"]] = work.cost(0, p.prompts * p.per_prompt)
        elif stage["kind"] == "reward":
            costs[stage["name"]] = work.reading(2 * p.prompts * stage.get("epochs", 1))
        elif stage["kind"] == "distill":
            epochs = stage.get("epochs", 1)
            learned = epochs * p.prompts * work.conditions.budget.completions
            costs[stage["name"]] = work.cost(learned, epochs * items)
        else:
            scored = work.cost(0, stage["epochs"] * items)
            costs[stage["name"]] = work.reading(p.demos * stage["epochs"]) + scored
    return costs


@dataclass(frozen=True)
class Workpiece:
    """A model on a task under conditions: what its completions cost."""

    model: str
    task: str
    catalog: tuple[str, ...]
    conditions: Conditions

    def cost(self, learned: int, scored: int) -> float:
        """Cost of completions that are learned from, and of others that are only scored."""
        c = self.conditions
        prompt, completion = _texts(self.task, self.catalog)
        completion = min(completion, c.sampling.max_completion_bytes)
        shared = prompt / c.budget.completions  # a group's prompt is run once
        update = (shared + completion) * (WATCHED + BACKWARD * c.optimization.epochs)
        training = learned * (DECODED * completion + shared + update)
        scoring = scored * (DECODED * completion + prompt)
        return _parameters(self.model, self.catalog) * (training + scoring)

    def reading(self, rows: int) -> float:
        """Cost of learning from so many texts that are there: prompts with a completion."""
        prompt, completion = _texts(self.task, self.catalog)
        return _parameters(self.model, self.catalog) * BACKWARD * rows * (prompt + completion)


def count_scored(cell: Cell, conditions: Conditions) -> int:
    """Completions that are scored and not learned from; a control's end is not scored.

    A mode arm's start model also answers the training prompts.
    """
    e, budget = conditions.evaluation, conditions.budget
    curve = (budget.grid // e.curve_every + 1) * e.curve_items
    if cell.arm == "mode":
        curve += count_training(cell.task, cell.catalog, conditions.data.levels)
    if cell.arm in CONTROLS:
        return curve
    transfer = (len(cell.tasks) - 1) * e.curve_items
    end = (e.end_draws + 1) * e.curve_items + 3 * e.end_items + len(e.retain) * e.retain_items
    end += e.pass_draws * (e.curve_items + e.end_items) + e.blind_draws * e.curve_items
    return curve + transfer + end


def count_training(task: str, catalog: tuple[str, ...], levels: Sequence[int]) -> int:
    """Training prompts of a task at some of its levels, which are taken as equally many; 0 of a
    task that cannot be read."""
    try:
        split = Catalog(catalog).task_card(task).splits["train"]
    except (CrlbenchError, KeyError):
        return 0
    return round(split.count * len({*levels} & {*split.levels}) / len(split.levels))


@lru_cache(maxsize=256)
def _texts(task: str, catalog: tuple[str, ...]) -> tuple[int, int]:
    """Bytes of the longest prompt and completion of a task."""
    try:
        card = Catalog(catalog).task_card(task)
    except CrlbenchError:
        return TYPICAL_BYTES
    return max(s.max_prompt_bytes for s in card.splits.values()), card.max_completion_bytes


@lru_cache(maxsize=64)
def _parameters(model: str, catalog: tuple[str, ...]) -> int:
    """What an entry says, else what the weight files of a folder suggest (2 bytes each)."""
    entries = Catalog(catalog).entries("model")
    folder = Path(os.path.expanduser(model))
    if model in entries:
        size = Catalog(catalog).load_model(model).params_total or TYPICAL_PARAMETERS
    elif folder.is_dir():
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) // 2
    else:
        size = TYPICAL_PARAMETERS
    return max(size, LEAST_PARAMETERS)
