"""Runs whose records stay on disk until something asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crlbench.contract.records import RunRecord, Status
from crlbench.verdict.cells import VANISHED, vanished_run
from crlbench.verdict.runs import Run

COLUMNS = (
    *("model", "recipe", "arm", "task", "seed", "completions", "version"),
    *("status", "subject", "task_ref", "environment"),
)
"""What is known of a run without its record."""
MODELS = ("status", "subject", "task_ref")
"""Columns that are parts of a record."""


def columns_of(run: Run) -> dict[str, Any]:
    """The columns of a run as plain data."""
    plain = {name: getattr(run, name) for name in COLUMNS}
    return plain | {name: plain[name].model_dump(mode="json") for name in MODELS}


def _column(name: str) -> Any:
    return property(lambda run: run._columns[name])


class KeptRun(Run):
    """A run by its columns; its record is read when it is asked for."""

    model, recipe, arm, task, seed, completions, version = map(_column, COLUMNS[:7])
    status, subject, task_ref, environment = map(_column, COLUMNS[7:])

    def __init__(
        self, columns: Mapping[str, Any], load: Callable[[], RunRecord], folder: Path
    ) -> None:
        """
        Args:
            columns: a value for each of :data:`COLUMNS`.
            load: reads the record.
            folder: of its files.
        """
        self.__dict__.update(_columns=columns, _load=load, folder=folder)

    @property
    def record(self) -> RunRecord:  # type: ignore[override]
        return self._load()

    def vanished(self, index: int) -> KeptRun:
        """What stands for a run of the same task that left no record."""
        status = Status(state="failed", rule=VANISHED, at=-1)
        columns = {**self._columns, "seed": index, "status": status, "completions": 0}
        return KeptRun(columns, lambda: vanished_run(self, index).record, self.folder)
