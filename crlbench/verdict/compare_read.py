"""One entry from its folder, for a comparison: only what lies below that folder is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import UsageError
from crlbench.stats.intervals import REPLICATES, ROOT_SEED, Replicates
from crlbench.verdict.axes import Axis, Evidence
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.runs import Runs, load_runs

DEPTH = 4
"""How many levels below the folder of a recipe a record stands."""
SHOWN = 12
"""No error lists more entries than this."""


@dataclass(frozen=True)
class Loaded:
    """One entry as it was read."""

    folder: Path
    runs: Runs
    board: Board
    """Of this entry alone."""

    @property
    def entry(self) -> Entry:
        return self.board.entries[0]

    @property
    def leaves(self) -> dict[str, Any]:
        """Everything that was held fixed."""
        return self.runs.runs[0].record.fingerprint.leaves


class _Once(Evidence):
    """Evidence that resamples each task once: an entry stands in many pairs."""

    def __init__(self, source: Evidence) -> None:
        super().__init__(source.tasks, source.prefix, source.count, source.seed)
        self._known: dict[tuple[Axis, str, int | None], Replicates | None] = {}

    def replicates(self, axis: Axis, task: str, n: int | None = None) -> Replicates | None:
        if (axis, task, n) not in self._known:
            self._known[axis, task, n] = super().replicates(axis, task, n)
        return self._known[axis, task, n]


def read_entry(folder: Path, replicates: int = REPLICATES, seed: int = ROOT_SEED) -> Loaded:
    """The one entry below a folder.

    Raises:
        UsageError: there is no finished run of the real arm, runs of several entries, or only a
            part of one.
        ValidationError, NotComparable: as :func:`load_runs` and :func:`summarise_board`.
    """
    _refuse_part(folder)
    _refuse_several(folder, [str(home) for home in _recipe_folders(folder)])
    runs = load_runs(folder, files="used")
    names = sorted({f"{run.model}/{run.recipe}" for run in runs if run.record.arm == "real"})
    if not names:
        raise UsageError(
            f"{folder}: holds no run of the real arm. An entry is compared by its real runs; its "
            "placebo runs stand beside them."
        )
    _refuse_several(folder, names)
    board = summarise_board(runs, replicates, seed)
    entry = replace(board.entries[0], evidence=_Once(board.entries[0].evidence))
    return Loaded(folder, runs, replace(board, entries=(entry,)))


def _recipe_folders(folder: Path) -> list[Path]:
    """Folders of recipes strictly below ``folder``, by the layout <recipe>/<task>/<arm>/<seed>."""
    records = folder.rglob(RECORD_NAME)
    deep = (path for path in records if len(path.relative_to(folder).parts) > DEPTH)
    packed = (path.parent for path in folder.rglob(PACKED) if path.parent != folder)
    return sorted({*(path.parents[3] for path in deep), *packed})


def _refuse_part(folder: Path) -> None:
    """A folder below that of a recipe, by the plan that stands in the latter."""
    if (folder / PLAN_NAME).is_file():
        return
    for parent in folder.absolute().parents[:DEPTH]:
        if (parent / PLAN_NAME).is_file():
            raise UsageError(
                f"{folder}: a part of an entry, and compare takes whole ones: give {parent}"
            )


def _refuse_several(folder: Path, found: Sequence[str]) -> None:
    if len(found) > 1:
        more = [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise UsageError(
            "\n".join(
                [
                    f"{folder}: holds {len(found)} entries, and compare takes one at a time. Give "
                    "one of them in its place:",
                    *(f"  {name}" for name in found[:SHOWN]),
                    *more,
                ]
            )
        )
