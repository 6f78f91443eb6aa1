"""What is compared: entries, each from its folder and what lies below it, and their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import UsageError, unknown_name
from crlbench.stats.intervals import REPLICATES, ROOT_SEED, Replicates
from crlbench.verdict.axes import Axis, Evidence
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import Runs, load_runs

MOST_ENTRIES = len(ascii_uppercase)
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

    @property
    def products(self) -> dict[str, str]:
        """Digests of what stages that the track shares left, by task, arm, seed and stage."""
        return {
            f"lineage.{r.task.name}.{r.arm}.seed-{r.seed.index:02d}.{stage.name}.sha256": (
                stage.sha256
            )
            for r in (run.record for run in self.runs)
            for stage in r.lineage or ()
            if stage.shared and stage.sha256 is not None
        }


class _Once(Evidence):
    """Evidence that resamples each task once: an entry stands in many pairs."""

    def __init__(self, source: Evidence) -> None:
        draws = (source.count, source.seed, source.weights, source.interval)
        super().__init__(source.tasks, source.prefix, *draws)
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
    packed_folders = (path.parent for path in folder.rglob(PACKED) if path.parent != folder)
    return sorted({*(path.parents[3] for path in deep), *packed_folders})


def _refuse_part(folder: Path) -> None:
    """A folder below that of a recipe, by the plan that stands in the latter."""
    if (folder / PLAN_NAME).is_file():
        return
    for parent in folder.absolute().parents[:DEPTH]:
        if (parent / PLAN_NAME).is_file():
            raise UsageError(
                f"{folder}: a part of an entry, and compare takes whole ones: give {parent}"
            )


def _refuse_several(folder: Path, names: Sequence[str]) -> None:
    if len(names) > 1:
        more = [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
        raise UsageError(
            "\n".join(
                [
                    f"{folder}: holds {len(names)} entries, and compare takes one at a time. Give "
                    "one of them in its place:",
                    *(f"  {name}" for name in names[:SHOWN]),
                    *more,
                ]
            )
        )


def check_entries(loaded: Sequence[Loaded]) -> None:
    """Refuse more entries than there are letters, and the same one twice.

    Raises:
        UsageError: as it says.
    """
    if len(loaded) > MOST_ENTRIES:
        raise UsageError(f"compare takes at most {MOST_ENTRIES} entries, here are {len(loaded)}.")
    folders: dict[Path, Path] = {}
    for one in loaded:
        home = one.folder.resolve()
        if home in folders:
            raise UsageError(
                f"{one.folder} is given twice: an entry has no difference from itself."
            )
        folders[home] = one.folder


def compared_tasks(loaded: Sequence[Loaded], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The wanted tasks by name; all that any entry has where ``wanted`` is None.

    Raises:
        UsageError: an unknown task, or one at another version.
    """
    task_names = sorted({task for one in loaded for task in one.entry.task_names})
    if wanted is None:
        return tuple(task_names)
    for spec in wanted:
        name, at, version = spec.partition("@")
        if name not in task_names:
            raise unknown_name("task", name, task_names)
        there = {str(one.leaves.get(f"tasks.{name}.version")) for one in loaded
                 if name in one.entry.task_names}  # fmt: skip
        if at and there != {version}:
            raise UsageError(
                f"--tasks {spec:.80}: these entries have task '{name}' at version "
                f"{', '.join(sorted(there))}."
            )
    chosen = {spec.partition("@")[0] for spec in wanted}
    return tuple(name for name in task_names if name in chosen)
