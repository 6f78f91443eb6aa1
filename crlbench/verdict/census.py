"""What became of every run that an entry declared (protocol CRL-1, A.6 point 1).

A planned run without a record *vanished* if its folder's ledger says that it ended, or if there
is no ledger. It stays in as a failed run that never learned anything, with u = 0 at most
everywhere; else the seeds that went badly could be left away. A planned run that was never
started, or only interrupted or lost, is *missing*: the same command runs it, and until then
nothing ranks. Nor does anything without a ledger that knows how every run ended, nor a submitted
entry that was retracted.

Runs that a later plan added to an entry with badges *wait*: they count once they were verified too,
so that nobody moves a verified entry by adding to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crlbench.contract.arms import CONTROL_SEEDS, CONTROLS, PAID_BY_TASK, Arm
from crlbench.contract.attempts import DECLARED_SEEDS, LEDGER_NAME
from crlbench.contract.model_card import UNPINNED
from crlbench.contract.records import Subject
from crlbench.stats.intervals import MIN_SEEDS_TOGETHER
from crlbench.verdict.archive import Archive
from crlbench.verdict.attempts import Attempts
from crlbench.verdict.cells import (
    cell_name,
    cell_of,
    counts_as_failed,
    failure,
    list_names,
    name_cells,
    vanished_run,
)
from crlbench.verdict.runs import Run

PROVISIONAL_SEEDS, RANKED_SEEDS = DECLARED_SEEDS[:2]

SHOWS: Mapping[Arm, str] = {
    "placebo": "any reward would have brought",
    "mode": "agreeing with the start model would have brought",
    "stress": "breaks at three times the learning rate",
    "wrong": "a reward for wrong answers brings",
}
"""What a control arm is for."""

Standing = Literal["partial", "retracted", "preview", "provisional", "ranked"]


@dataclass(frozen=True)
class Census:
    """The runs of one entry under one arm."""

    runs: dict[str, tuple[Run, ...]]
    """Per task the runs that count, by seed index, vanished ones among them."""
    declared: dict[str, int]
    """Number of seeds per planned task; empty without a plan."""
    shortened: bool
    """Nothing but partial runs, and failures of such."""
    failed: tuple[str, ...]
    vanished: tuple[str, ...]
    missing: tuple[str, ...]
    partial: tuple[str, ...]
    """Partial runs; left out unless ``shortened``."""
    absent: tuple[str, ...]
    """Tasks of the board without a run that counts."""
    doubts: tuple[str, ...] = ()
    """What the ledger leaves open of how the runs came to be; sentences."""
    uncontrolled: Mapping[Arm, tuple[str, ...]] = field(default_factory=dict)
    """By control arm the cells that a rank needs and that are not stored; of the real arm only."""
    unrankable: tuple[str, ...] = ()
    """What about the model itself keeps it from ranks, whatever its runs are; sentences."""
    extended: bool = False
    """Seeds were added after runs had ended and could be looked at."""
    retracted: tuple[str, ...] = ()
    """When, by whom and why the entry or some of its records were taken back; sentences."""
    waiting: tuple[str, ...] = ()
    """Runs that were added to an entry with badges, and were not verified yet."""

    @property
    def n(self) -> int:
        """Seeds of every task."""
        return min((len(runs) for runs in self.runs.values()), default=0)

    def prefix(self, task: str) -> int:
        """How many seed indices from 0 on there are without a gap."""
        indices = {run.record.seed.index for run in self.runs[task]}
        return next(i for i in range(len(indices) + 1) if i not in indices)

    def standing(self) -> tuple[Standing, tuple[str, ...]]:
        """What the number of seeds allows, and what keeps it from more, in sentences."""
        standing, why = self._standing()
        if not self.waiting:
            return standing, why
        return standing, (
            *why,
            f"{len(self.waiting)} added runs count once they are replayed: "
            f"{list_names(self.waiting)}.",
        )

    def _standing(self) -> tuple[Standing, tuple[str, ...]]:
        if self.shortened:
            return "partial", ("Shortened runs never rank.",)
        if self.retracted:
            return "retracted", self.retracted
        why = self._obstacles() + self._control() + self.unrankable
        if why:
            return "preview", why
        if self.n < RANKED_SEEDS:
            return "provisional", (
                f"{self.n} seeds rank provisionally; a full rank needs {RANKED_SEEDS}.",
            )
        if self.extended:
            return "provisional", (
                f"Seeds were added after results could be seen, and {self.n} seeds rank fully only "
                "where all were declared before the first run ended.",
            )
        return "ranked", ()

    @property
    def is_whole(self) -> bool:
        """Whether it may stand for a checkpoint of a design: all declared runs are there, with
        enough seeds to say how seeds differ."""
        barred = self.shortened or self.retracted or self.unrankable or not self.declared
        return not barred and self.n >= MIN_SEEDS_TOGETHER and not self._gaps()

    @property
    def decides(self) -> bool:
        """Whether verdicts on pairs may lean on it, which need no control arm as ranks do."""
        return not (self.shortened or self.retracted or self._obstacles())

    def _control(self) -> tuple[str, ...]:
        return tuple(self._lacks(arm, cells) for arm, cells in self.uncontrolled.items() if cells)

    def _lacks(self, arm: Arm, cells: tuple[str, ...]) -> str:
        planned = CONTROL_SEEDS * len(self.runs)
        some = "" if len(cells) == planned else f" ({len(cells)} of {planned} runs missing)"
        return (
            f"A rank needs {CONTROL_SEEDS} seeds of the {arm} arm{some}, which show what "
            f"{SHOWS[arm]}: --arm real,{arm}."
        )

    def _obstacles(self) -> tuple[str, ...]:
        obstacles = []
        run_counts = {len(runs) for runs in self.runs.values()}
        counts = set(self.declared.values()) or run_counts
        if not self.declared:
            obstacles.append(
                "No plan declares the number of seeds, and a rank needs one that was made before "
                "the runs."
            )
        if not counts <= set(DECLARED_SEEDS):
            numbers = " and ".join(map(str, sorted(counts)))
            obstacles.append(f"Ranking needs 5, 10 or 20 seeds; this has {numbers}.")
        return (*obstacles, *self._gaps())

    def _gaps(self) -> tuple[str, ...]:
        """Where the runs are not those that were declared."""
        obstacles = []
        beyond = [t for t, runs in self.runs.items() if len(runs) > self.declared.get(t, len(runs))]
        if beyond:
            obstacles.append(
                f"More seeds are stored than were declared: {', '.join(sorted(beyond))}."
            )
        if self.missing:
            one = len(self.missing) == 1
            obstacles.append(
                f"{len(self.missing)} {'run' if one else 'runs'} missing (the same command makes "
                f"{'it' if one else 'them'}): {list_names(self.missing)}."
            )
        if self.absent:
            obstacles.append(f"Tasks of the track without a run: {list_names(self.absent)}.")
        return (*obstacles, *self.doubts)


def take_census(runs: Sequence[Run], board: Iterable[str], archive: Archive) -> Census:
    """Count the runs of one model, recipe and arm.

    Args:
        runs: all of them, by task and seed index.
        board: tasks of the board.
    """
    archive.check(runs)
    waiting = [run for run in runs if archive.waits(run)]
    runs = archive.counted(runs) or runs  # none counts: no plan that does declares the arm
    partial = [run for run in runs if run.record.status.state == "partial"]
    shortened = bool(partial) and not any(r.record.status.state == "completed" for r in runs)
    counted = [run for run in runs if shortened or run.record.status.state != "partial"]
    attempts, arm = archive.attempts(runs[0]), runs[0].record.arm
    settled = archive.settled(runs[0])
    control = [run for other in CONTROLS for run in archive.controls(runs[0], other)]
    control = control if arm == "real" else []
    declared = _count_declared(archive.plan(runs[0]), settled, arm)
    vanished_cells, missing = ([], []) if shortened else _without(runs, counted, declared, attempts)
    tasks: dict[str, list[Run]] = {}
    for run in counted:
        tasks.setdefault(run.record.task.name, []).append(run)
    # The start of a task that left no run at all is unknown, so that it stays absent.
    vanished = [(task, index) for task, index in vanished_cells if task in tasks]
    for task, index in vanished if arm in PAID_BY_TASK else ():
        tasks[task].append(vanished_run(tasks[task][0], index))
    return Census(
        runs={
            task: tuple(sorted(tasks[task], key=lambda run: run.record.seed.index))
            for task in sorted(tasks)
        },
        declared=declared,
        shortened=shortened,
        failed=tuple(failure(run) for run in counted if counts_as_failed(run)),
        vanished=tuple(cell_name(*key) for key in vanished_cells),
        missing=tuple(cell_name(*key) for key in missing),
        partial=tuple(cell_of(run) for run in partial),
        absent=tuple(sorted(set(board) - set(tasks))),
        doubts=_doubts(attempts, [*runs, *control]),
        uncontrolled=archive.uncontrolled(tasks) if arm == "real" else {},
        unrankable=_unrankable(runs[0].record.subject),
        extended=settled is not None and any(e.ended for e in settled.extensions(arm)),
        retracted=archive.retracted(runs[0]),
        waiting=tuple(map(cell_of, waiting)),
    )


def _unrankable(subject: Subject) -> tuple[str, ...]:
    if not subject.listed:
        return (
            "This model has no entry in models/, so nobody else can run it by its name: it never "
            "ranks.",
        )
    if subject.revision == UNPINNED:
        return (
            "Its entry names no commit (revision unpinned), so its weights can change under the "
            "same name: it never ranks.",
        )
    return ()


def _doubts(attempts: Attempts | None, runs: Sequence[Run]) -> tuple[str, ...]:
    if attempts is None:
        return ("No attempt ledger stands beside the runs, so what was tried cannot be known.",)
    doubts = []
    if unknown := attempts.unknown(runs):
        what = "1 stored run" if len(unknown) == 1 else f"{len(unknown)} stored runs"
        doubts.append(
            f"The ledger does not know how {what} ended: {name_cells(unknown)}. Where its "
            "command died before it said so, the same command notes it."
        )
    arms = {run.record.arm for run in runs}
    if redrawn := [key for key in attempts.redrawn if key[1] in arms]:
        what = "1 run" if len(redrawn) == 1 else f"{len(redrawn)} runs"
        cells = name_cells(redrawn)
        doubts.append(f"{what} ended with another result under the same seed: {cells}.")
    if LEDGER_NAME in attempts.discarded:
        doubts.append(
            "The attempt ledger was damaged or gone and was begun anew, so what was tried before "
            "cannot be known."
        )
    return tuple(doubts)


def _count_declared(plan: dict[str, Any], attempts: Attempts | None, arm: str) -> dict[str, int]:
    """Number of seeds per planned task: the largest that was ever declared."""
    if attempts is not None and attempts.planned:
        return {task: n for (task, a), n in sorted(attempts.planned.items()) if a == arm}
    tasks, arms = plan.get("tasks"), plan.get("arms")
    count = arms.get(arm) if isinstance(arms, dict) else None
    if not isinstance(tasks, list) or not isinstance(count, int) or plan.get("partial"):
        return {}
    return {task: count for task in sorted(t for t in tasks if isinstance(t, str))}


def _without(
    runs: Sequence[Run],
    counted: Sequence[Run],
    declared: dict[str, int],
    attempts: Attempts | None,
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Cells without a run that counts, as (task, index): those that vanished, and the rest.

    Without a plan, seeds are run in prefix order, so that a gap is missing.
    """
    arm = runs[0].record.arm
    stored_cells = {(run.record.task.name, run.record.seed.index) for run in runs}
    have = {(run.record.task.name, run.record.seed.index) for run in counted}
    highest = max((index for _, index in have), default=-1)
    tasks = sorted({task for task, _ in have} | set(declared))
    vanished_cells, missing = [], []
    for task in tasks:
        for index in range(max(highest + 1, declared.get(task, 0))):
            if (task, index) in have:
                continue
            is_planned = index < declared.get(task, 0) and (task, index) not in stored_cells
            has_ended = attempts is None or attempts.vanished((task, arm, index))
            (vanished_cells if is_planned and has_ended else missing).append((task, index))
    return vanished_cells, missing
