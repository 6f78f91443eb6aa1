"""What stands above loaded runs: their plan, ledger, badges and retractions, each read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from crlbench.contract.arms import CONTROL_SEEDS, CONTROLS, Arm
from crlbench.contract.attempts import LEDGER_NAME, plan_hash
from crlbench.contract.retractions import (
    Retraction,
    concerning,
    leaderboard_above,
    read_retractions,
)
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.packed import PACKED
from crlbench.verdict.attempts import Attempts, check_declared, key_of, read_attempts
from crlbench.verdict.badges import read_badges
from crlbench.verdict.cells import cell_name
from crlbench.verdict.load import Runs
from crlbench.verdict.protocols import rules_of
from crlbench.verdict.runs import Run


class Archive:
    """The plans and ledgers of loaded runs, each read once.

    Raises:
        ValidationError: a ledger is damaged, or a record is not one of its plan or ledger; or the
            retractions of the leaderboard are.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._retractions: dict[Path, tuple[Retraction, ...]] = {}
        self._attempts: dict[Path, Attempts | None] = {}
        self._settled: dict[Path, Attempts | None] = {}
        self._controls: dict[tuple[str, str, str], list[Run]] = {}
        self._folders: dict[Path, Path | None] = {}
        for run in runs:
            if run.arm in CONTROLS:
                self._controls.setdefault((run.model, run.recipe, run.arm), []).append(run)

    def plan(self, run: Run) -> dict[str, Any]:
        """The plan above a run; empty without one."""
        return self._runs.plan_of(run)

    def attempts(self, run: Run) -> Attempts | None:
        """What the ledger above a run says; None without one."""
        folder = self._folder(run)
        if folder is None:
            return None
        if folder not in self._attempts:
            self._attempts[folder] = read_attempts(folder)
        return self._attempts[folder]

    def settled(self, run: Run) -> Attempts | None:
        """What the ledger above a run says up to the last plan whose runs count.

        In a submitted entry that has badges, what a later plan adds counts once it has them too.
        """
        attempts, folder = self.attempts(run), self._folder(run)
        if attempts is None or folder is None or not (folder / PACKED).is_file():
            return attempts
        if folder not in self._settled:
            self._settled[folder] = self._keep_verified(folder, attempts)
        return self._settled[folder]

    def _keep_verified(self, folder: Path, attempts: Attempts) -> Attempts:
        later = range(1, len(attempts.declared))
        badges = read_badges(folder) if later else None
        if badges is None or not badges.lines:
            return attempts
        for number in later:
            if not badges.cover(self._inside[folder], attempts.added_by(number)):
                return attempts.until(number)
        return attempts

    def counted(self, runs: Iterable[Run]) -> list[Run]:
        """Those that do not wait."""
        return [run for run in runs if not self.waits(run)]

    def waits(self, run: Run) -> bool:
        """Whether a run was added to an entry with badges, and is not verified yet."""
        settled = self.settled(run)
        if settled is None or settled is self.attempts(run):
            return False
        task, arm, index = key_of(run)
        return index >= settled.planned.get((task, arm), 0)

    def controls(self, run: Run, arm: Arm) -> list[Run]:
        """All runs of a control arm of a run's entry."""
        return self._controls.get((run.model, run.recipe, arm), [])

    def retracted(self, run: Run) -> tuple[str, ...]:
        """What was taken back of a run's entry, in sentences; only submitted entries can be."""
        folder = self._folder(run)
        if folder is None or not (folder / PACKED).is_file():
            return ()
        if (leaderboard := leaderboard_above(folder)) is None:
            return ()
        if leaderboard not in self._retractions:
            self._retractions[leaderboard] = read_retractions(leaderboard)
        inside = [inner.record.record_id for inner in self._inside.get(folder, [])]
        name = "/".join(folder.absolute().parts[-3:])
        retractions = concerning(self._retractions[leaderboard], name, inside)
        return tuple(line.sentence(len(inside)) for line in retractions)

    def uncontrolled(self, tasks: Mapping[str, Sequence[Run]]) -> dict[Arm, tuple[str, ...]]:
        """By control arm the cells of an entry that a rank needs and that are not stored.

        Args:
            tasks: the entry's real runs by task, one or more of each.
        """
        lacking: dict[Arm, list[str]] = {}
        for task, (run, *_) in sorted(tasks.items()):
            for arm in rules_of(run.record).needed:
                stored = {
                    control.record.seed.index
                    for control in self.controls(run, arm)
                    if control.record.task.name == task
                    and control.record.status.state != "partial"
                    and not self.waits(control)
                }
                lacking.setdefault(arm, []).extend(
                    cell_name(task, index) for index in range(CONTROL_SEEDS) if index not in stored
                )
        return {arm: tuple(cells) for arm, cells in lacking.items()}

    def check(self, runs: Iterable[Run]) -> None:
        """Refuse runs that their ledger, or without one their plan, does not know."""
        for run in runs:
            attempts, folder = self.attempts(run), self._folder(run)
            if attempts is not None:
                attempts.check([run])
            elif folder is not None and (plan := self.plan(run)):
                check_declared(run, (plan_hash(plan),), folder / PLAN_NAME)

    @cached_property
    def _inside(self) -> dict[Path | None, list[Run]]:
        """All runs by the folder of their plan and ledger."""
        by_folder: dict[Path | None, list[Run]] = {}
        for run in self._runs:
            by_folder.setdefault(self._folder(run), []).append(run)
        return by_folder

    def _folder(self, run: Run) -> Path | None:
        if run.folder == self._runs.folder:
            return None
        place = run.folder.parent
        if place not in self._folders:
            self._folders[place] = self._find_folder(place)
        return self._folders[place]

    def _find_folder(self, place: Path) -> Path | None:
        """The nearest folder above with a plan or a ledger, seen from a folder of seeds."""
        within = place.relative_to(self._runs.folder)
        for parent in (within, *within.parents):
            folder = self._runs.folder / parent
            if parent.as_posix() in self._runs.plans or (folder / LEDGER_NAME).is_file():
                return folder
        return None


def retractions_of(runs: Runs) -> list[tuple[str, str]]:
    """What was taken back of entries: ``<model>@<revision>/<recipe>`` and a sentence, each once."""
    archive = Archive(runs)
    lines = [(f"{run.model}/{run.recipe}", line) for run in runs for line in archive.retracted(run)]
    return list(dict.fromkeys(lines))
