"""What a cell costs, from plain data: to order cells before any of their kind has run.

The unit is a parameter times a byte of text run forward once: only ratios between cells count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from crlbench.catalog.find import Catalog
from crlbench.contract.arms import CONTROLS
from crlbench.contract.conditions import Conditions
from crlbench.contract.experience import reads_file
from crlbench.contract.records import Cell
from crlbench.errors import CrlbenchError
from crlbench.suite.own_answers import read_own

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
    stages = sum(stage_costs(cell.recipe_config, work, own_texts(cell)).values())
    return work.cost(c.budget.total, count_scored(cell, c)) + stages


class OwnTexts(NamedTuple):
    """A person's own file of answers, as far as its cost goes."""

    holds: str
    """``pairs`` or ``demonstrations``."""
    lines: int
    size: int
    """Bytes of a prompt with one answer, on average."""


def own_texts(cell: Cell) -> OwnTexts | None:
    """The file that stages of a cell learn from; None without one, and where it cannot be read,
    which the run says."""
    if cell.answers is None:
        return None
    try:
        own = read_own(Path(cell.answers))
    except CrlbenchError:
        return None
    sizes = [
        sum(len(message["content"].encode()) for message in one.messages) + len(answer.encode())
        for one in own.examples
        for answer in one.answers
    ]
    return OwnTexts(own.holds, len(own.examples), round(sum(sizes) / len(sizes)))


def stage_costs(
    config: Mapping[str, Any], work: Workpiece, own: OwnTexts | None = None
) -> dict[str, float]:
    """Cost of each stage of a chain before the last one, by name; empty without a chain.

    A stage that is stored already costs nothing; that is not known here.

    Args:
        config: of the recipe, as records and plans hold it.
        own: the file that stages learn from in place of the task's answers.
    """
    p, items = work.conditions.preference, work.conditions.evaluation.curve_items
    if p is None:
        return {}
    costs: dict[str, float] = {}
    pairs = {}
    for stage in config.get("stages", ())[:-1]:
        file = own if own is not None and reads_file(stage, own.holds) else None
        if stage["kind"] == "collect" and file is not None:  # its pairs are there
            costs[stage["name"]] = 0.0
            pairs[stage["name"]] = file
        elif stage["kind"] in ("collect", "choose"):
            costs[stage["name"]] = work.cost(0, p.prompts * p.per_prompt)
        elif stage["kind"] == "reward":
            file = pairs.get(stage["data"])
            rows = 2 * (p.prompts if file is None else file.lines)
            costs[stage["name"]] = work.reading(rows * stage.get("epochs", 1), file)
        elif stage["kind"] == "distill":
            epochs = stage.get("epochs", 1)
            learned = epochs * p.prompts * work.conditions.budget.completions
            costs[stage["name"]] = work.cost(learned, epochs * items)
        else:
            scored = work.cost(0, stage["epochs"] * items)
            rows = stage["epochs"] * (p.demos if file is None else file.lines)
            costs[stage["name"]] = work.reading(rows, file) + scored
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

    @property
    def text(self) -> int:
        """Bytes of the task's longest prompt with its longest completion."""
        return sum(_texts(self.task, self.catalog))

    def reading(self, rows: int, own: OwnTexts | None = None) -> float:
        """Cost of learning from so many texts that are there: prompts with a completion, of the
        task or of a person's own file."""
        size = self.text if own is None else own.size
        return _parameters(self.model, self.catalog) * BACKWARD * rows * size


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
    """What an entry says, of all its checkpoints alike, else what the weight files of a folder
    suggest (2 bytes each)."""
    entries = Catalog(catalog).entries("model")
    folder = Path(os.path.expanduser(model))
    slug = model.partition("@")[0]
    if slug in entries:
        size = Catalog(catalog).load_model(slug).params_total or TYPICAL_PARAMETERS
    elif folder.is_dir():
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) // 2
    else:
        size = TYPICAL_PARAMETERS
    return max(size, LEAST_PARAMETERS)
