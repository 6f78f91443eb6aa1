"""Whether every run is there that an entry declared, by the census of its plan and ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crlbench.base.wording import count, first_of
from crlbench.contract.arms import ARMS
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.verification import Finding
from crlbench.proof.entry import Home
from crlbench.verdict.archive import Archive
from crlbench.verdict.attempts import Attempts
from crlbench.verdict.board_conditions import board_tasks
from crlbench.verdict.cells import cell_name
from crlbench.verdict.census import Census, take_census
from crlbench.verdict.load import Runs

SHOWN = 4
"""Cells that a sentence names."""


@dataclass(frozen=True)
class Absence:
    """Declared runs of one arm that are not stored."""

    arm: str
    cells: tuple[str, ...]
    has_ended: bool
    """Whether the ledger says that they ended."""

    def __str__(self) -> str:
        what = (
            "ended, says the ledger, and left no record"
            if self.has_ended
            else ("planned and not there")
        )
        return f"{self.arm} arm: {what}: {first_of(self.cells, SHOWN)}"


def absences_in(census: Census, arm: str) -> Iterator[Absence]:
    """The declared runs that the census of an arm does not find."""
    for cells, has_ended in ((census.vanished, True), (census.missing, False)):
        if cells:
            yield Absence(arm, cells, has_ended)


def absent_arm(attempts: Attempts | None, arm: str) -> Iterator[Absence]:
    """All declared runs of an arm of which none is stored."""
    if attempts is None:
        return
    declared = [
        (task, arm, index)
        for (task, planned_arm), seeds in sorted(attempts.planned.items())
        if planned_arm == arm
        for index in range(seeds)
    ]
    for has_ended in (True, False):
        keys = [key for key in declared if attempts.vanished(key) == has_ended]
        if keys:
            yield Absence(arm, tuple(cell_name(key[0], key[2]) for key in keys), has_ended)


def absent_runs(runs: Runs, home: Home, archive: Archive) -> Iterator[Absence]:
    """The declared runs of a whole entry that are not stored.

    Raises:
        ValidationError: a record is not one of its plan or ledger.
    """
    inside = [run for run in runs if home.folder in run.folder.parents]
    for arm in ARMS:
        stored = [run for run in inside if run.arm == arm]
        if stored:
            census = take_census(stored, board_tasks(stored[0].record), archive)
            yield from absences_in(census, arm)
        else:
            yield from absent_arm(home.attempts, arm)


def as_finding(home: Home, absence: Absence) -> Finding:
    """Absent runs as a fault of their entry."""
    name = "/".join(home.folder.absolute().parts[-2:])
    stored = f"no record of {count(len(absence.cells), 'declared run')}"
    return Finding(name, LEDGER_NAME, "runs", stored, "a record of each", str(absence))
