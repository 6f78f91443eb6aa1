"""Loading what cells name before any of them runs, in the process that forks their workers.

Everything here fills the caches of :mod:`crlbench.run.subject` with the arguments that a run will
ask with; asked otherwise, a run loads for itself and only its start is slower.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from crlbench.contract.conditions import Conditions
from crlbench.contract.records import Cell
from crlbench.disk.hashing import canonical_json
from crlbench.policy.weights.load import Reader
from crlbench.run import environment
from crlbench.run.ends import own_splits
from crlbench.run.subject import (
    load_panel,
    load_subject,
    prompts_of,
    row_cap,
    task_of,
)


def warm(contents: Sequence[dict[str, Any]]) -> None:
    """Load the models, tasks and prompts of cells, as far as that is possible.

    What cannot be loaded is passed over: the cell that needs it says what is wrong.
    """
    environment.packages()
    environment.source()
    # The models of the first cells, as many as stay loaded.
    models = [*dict.fromkeys((c["model"], tuple(c["catalog"])) for c in contents)]
    del models[load_subject.cache_parameters()["maxsize"] :]
    for cell in _different(contents):
        with contextlib.suppress(Exception):
            load_panel(cell.catalog)
        if (cell.model, cell.catalog) in models:
            with contextlib.suppress(Exception):
                _load(cell)


def _different(contents: Sequence[dict[str, Any]]) -> list[Cell]:
    """One cell of each kind: seeds, arms and recipes load the same."""
    names = ("model", "catalog", "task", "tasks", "conditions", "confined")
    kinds = {canonical_json({name: c.get(name) for name in names}): c for c in contents}
    return [Cell.model_validate(content) for content in kinds.values()]


def _load(cell: Cell) -> None:
    conditions = Conditions.model_validate(cell.conditions)
    reader = load_subject(cell.model, cell.catalog, conditions.hardware.precision).reader
    for name in dict.fromkeys((cell.task, *cell.tasks)):
        with contextlib.suppress(Exception):
            _render(name, cell, reader, conditions)


def _render(name: str, cell: Cell, reader: Reader, conditions: Conditions) -> None:
    """The prompts of a task that the cell trains on, or only measures transfer to."""
    task, e = task_of(cell, name), conditions.evaluation
    cap = row_cap(task, reader, conditions)
    prompts_of(task, "id", reader, cap, e.curve_items)
    if name == cell.task:
        prompts_of(task, "train", reader, cap)
        for split in own_splits(task):
            prompts_of(task, split, reader, cap, e.end_items)
