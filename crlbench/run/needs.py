"""What cells need of one another: a cell of a chain begins when those before it have ended well.

A cell names what it needs as the ledger does (:func:`crlbench.run.plan.label`), so it follows
from its own folder where the needed files lie. All are cells of one plan. What has a record need
not run again; a need that broke a stability rule has one too, and fails its dependants by the
rule ``upstream``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell
from crlbench.contract.stored import damaged
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import Incomplete, RunFailed, UsageError
from crlbench.run.launcher import EndState, Outcome
from crlbench.run.plan import end_of, label

UPSTREAM = "upstream"
"""The rule by which a cell fails when one that it needs broke a rule."""

_PARTS = 5
"""Parts of a cell's name; the first two are those of its plan."""


@dataclass(frozen=True)
class End:
    """How a cell ended, and the cell to blame: itself, or the one that it waited for in vain."""

    state: EndState
    origin: str
    """Name of the cell."""


def folders_of(cell: Cell) -> dict[str, str]:
    """The folder of each cell that a cell needs, by its name."""
    if not cell.needs:
        return {}
    board = Path(cell.folder).parents[_PARTS - 1]
    return {name: str(board / name) for name in cell.needs}


def check_needs(cells: Sequence[Cell]) -> None:
    """Refuse cells that could never all run.

    Raises:
        UsageError: a cell needs one that is neither among ``cells`` nor has a record, or is no
            cell of its plan; or cells need one another in a circle.
    """
    for cell, name in _absent(cells, {cell.folder for cell in cells}):
        raise UsageError(
            f"{label(cell)} needs '{name}', which is no cell of its plan that runs or has a "
            "record. Run that one too, or take it out of its needs."
        )
    names = {cell.folder: label(cell) for cell in cells}
    try:
        TopologicalSorter({c.folder: folders_of(c).values() for c in cells if c.needs}).prepare()
    except CycleError as error:
        # The library names each before the one that needs it.
        circle = " needs ".join(names[folder] for folder in reversed(error.args[1]))
        raise UsageError(
            f"cells need one another in a circle: {circle}. None of them can begin; take one "
            "of these needs out."
        ) from None


def unable(cells: Sequence[Cell]) -> dict[str, str]:
    """Which of ``cells`` cannot run when no others do, by folder, each with a need that it lacks.

    Such a need has no record and is not among the cells that can run.
    """
    lacking: dict[str, str] = {}
    able = {cell.folder for cell in cells}
    dependants = _dependants(cells)
    suspects: Sequence[Cell] = cells
    while suspects:
        absent = {cell.folder: name for cell, name in _absent(suspects, able)}
        lacking |= absent
        able -= absent.keys()
        failures = [folder for folder in absent if not _has_record(folder)]
        # Only a cell that needs one of these can have become unable.
        behind = {cell.folder: cell for folder in failures for cell in dependants.get(folder, ())}
        suspects = [cell for folder, cell in behind.items() if folder in able]
    return lacking


def _dependants(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The cells that need another, by the folder of the other."""
    dependants: dict[str, list[Cell]] = {}
    for cell in cells:
        for folder in folders_of(cell).values():
            dependants.setdefault(folder, []).append(cell)
    return dependants


def _absent(cells: Iterable[Cell], able: Collection[str]) -> Iterator[tuple[Cell, str]]:
    """Each of ``cells`` that needs one that is neither ``able`` nor finished, and the name of
    that one. ``able`` holds folders."""
    for cell in cells:
        for name, folder in folders_of(cell).items():
            runs = folder in able or _has_record(folder)
            if not (runs and _of_the_plan_of(cell, name)):
                yield cell, name
                break


def _has_record(folder: str) -> bool:
    return (Path(folder) / RECORD_NAME).is_file()


def _of_the_plan_of(cell: Cell, name: str) -> bool:
    parts = name.split("/")
    inside = parts[:2] == label(cell).split("/")[:2] and ".." not in parts
    return inside and len(parts) == _PARTS


def stored_ends(cells: Sequence[Cell]) -> dict[str, End]:
    """How those ended, by folder, that cells need and that are not among them.

    Raises:
        ValidationError: a record is damaged, or of another board.
    """
    folders = {cell.folder for cell in cells}
    ends: dict[str, End] = {}
    for cell in cells:
        for name, folder in folders_of(cell).items():
            if folder in folders or folder in ends:
                continue
            path = Path(folder) / RECORD_NAME
            record = read_record(path, own=True)
            if record.fingerprint.hash != cell.fingerprint:
                raise damaged(path, f"it is of another board than {label(cell)}")
            ends[folder] = End(end_of(record), name)
    return ends


_REASONS = {
    "failed": (
        f"broke a stability rule: it fails too, by the rule {UPSTREAM}, and is not made again. "
        "Both begin anew with --fresh",
        RunFailed.exit_code,
    ),
    "error": (
        "ended in an error. Mend that; the same command continues with both",
        Incomplete.exit_code,
    ),
    "lost": (
        "was lost: its process died twice. The same command continues with both",
        Incomplete.exit_code,
    ),
}
"""What became of the cell to blame, what to do, and the exit code; by its state."""


def block(cell: Cell, name: str, end: End) -> Outcome:
    """The outcome of a cell that is not begun, because its need ``name`` came to such an end."""
    through = "" if end.origin == name else f" (by way of {name})"
    why, code = _REASONS[end.state]
    return Outcome(
        cell, "blocked", f"not begun: it needs {end.origin}{through}, which {why}", exit_code=code
    )
