"""One sitting: lock the run folders, run their missing cells, and keep the ledgers."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crlbench.errors import ValidationError
from crlbench.records import Cell
from crlbench.run.grid import Launcher, Outcome, StopLevel
from crlbench.run.ledger import Event, Ledger
from crlbench.run.plan import LEDGER_NAME, Plan, check_folder, label, of_shard, state
from crlbench.run.progress import Progress
from crlbench.run.store import clean_temporaries, locked, read_json, remove_tree

_LEDGER_EVENTS: dict[str, Event] = {
    "done": "done",
    "failed": "failed",
    "interrupted": "interrupted",
    "error": "error",
    "lost": "lost",
}


@dataclass
class StopSwitch:
    """How much of a hurry the person, or the clock, is in."""

    deadline: float | None = None
    """Monotonic time after which cells are stopped."""
    signals: int = 0
    on_first: Callable[[], None] = lambda: None

    def level(self) -> StopLevel:
        """0 go on, 1 stop after the current update, 2 kill."""
        if self.signals >= 2:
            return 2
        return 1 if self.signals or self.expired else 0

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _received(self, number: int, frame: object) -> None:
        self.signals += 1
        if self.signals == 1:
            self.on_first()

    @contextlib.contextmanager
    def installed(self) -> Iterator[StopSwitch]:
        """Let SIGINT and SIGTERM turn the switch instead of ending the process."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._received) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass
class Work:
    """What a sitting has to do, found while holding the locks."""

    plans: Sequence[Plan]
    wanted: list[Cell]
    """Of this shard."""
    missing: list[Cell]
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    """By the folder of the plan."""

    def ledger(self, cell: Cell) -> Ledger:
        """The ledger of the run folder that a cell belongs to."""
        home = next(p.folder for p in self.plans if p.folder in Path(cell.folder).parents)
        return self.ledgers[str(home)]


def survey(plans: Sequence[Plan], shard: tuple[int, int] | None = None) -> Work:
    """Which cells are wanted and which are missing; reads only.

    The first seeds of all plans come first, so that what is compared grows alike.

    Raises:
        ValidationError: something stored is damaged or belongs to other runs.
    """
    for plan in plans:
        check_folder(plan)
    wanted = of_shard([cell for plan in plans for cell in plan.cells], shard)
    missing = [cell for cell in wanted if state(cell) != "done"]
    missing.sort(key=lambda cell: cell.seed_index)
    return Work(plans, wanted, missing)


@contextlib.contextmanager
def opened(
    plans: Sequence[Plan], command: str, *, fresh: bool, shard: tuple[int, int] | None
) -> Iterator[Work]:
    """Hold all run folders; discard on ``fresh``; declare the plans before any update.

    Raises:
        EnvironmentUnfit: a folder is held by another process or may not be written.
        ValidationError: something stored is damaged or belongs to other runs.
    """
    with contextlib.ExitStack() as held:
        for plan in plans:
            held.enter_context(locked(plan.folder, command))
            clean_temporaries(plan.folder)
            clean_temporaries(plan.cells[0].start_folder)
        discarded = _discard(plans, shard) if fresh else {}
        work = survey(plans, shard)
        for plan in plans:
            ledger = Ledger(plan.folder / LEDGER_NAME)
            work.ledgers[str(plan.folder)] = ledger
            for reason in discarded.get(str(plan.folder), []):
                ledger.append("discarded", reason)
            if not any(e["event"] == "plan" and e["detail"] == plan.body for e in ledger.entries):
                ledger.append("plan", **plan.body)
            if not _covered(plan):
                plan.write()
        yield work


def _covered(plan: Plan) -> bool:
    """Whether the stored plan holds all of this one, so that a narrower one replaces no wider."""
    if not plan.path.exists():
        return False
    stored = read_json(plan.path)
    return set(plan.body["tasks"]) <= set(stored["tasks"]) and all(
        count <= stored["arms"].get(arm, 0) for arm, count in plan.body["arms"].items()
    )


def _discard(plans: Sequence[Plan], shard: tuple[int, int] | None) -> dict[str, list[str]]:
    """Delete the wanted cells, the start scores, and a plan or ledger that is of no use.

    Returns:
        What was deleted, by run folder.
    """
    wanted = set(map(label, of_shard([cell for plan in plans for cell in plan.cells], shard)))
    found: dict[str, list[str]] = {}
    for plan in plans:
        names = found.setdefault(str(plan.folder), [])
        for cell in plan.cells:
            if label(cell) in wanted and Path(cell.folder).exists():
                remove_tree(cell.folder)
                names.append(label(cell))
        remove_tree(plan.cells[0].start_folder)
        names += [path.name for path in _useless(plan)]
        for path in _useless(plan):
            path.unlink()
    return found


def _useless(plan: Plan) -> list[Path]:
    """A stored plan or ledger that is damaged, or of another entry or recipe."""
    found = []
    try:
        check_folder(plan)
    except ValidationError:
        found.append(plan.path)
    try:
        Ledger(plan.folder / LEDGER_NAME)
    except ValidationError:
        found.append(plan.folder / LEDGER_NAME)
    return found


def run_missing(
    work: Work, launcher: Launcher, progress: Progress, stop: StopSwitch
) -> list[Outcome]:
    """Run the missing cells, writing every attempt into its ledger.

    Cells that never started have no outcome; a cell that was killed has none either.
    """

    def on_event(cell: Cell, event: dict[str, Any]) -> None:
        if event["kind"] == "start":
            known = work.ledger(cell)
            kind = "resume" if state(cell) == "started" else "start"
            known.append(kind, label(cell), plan_hash=cell.plan_hash, attempt=event["attempt"])
        progress.event(cell, event)

    def stop_level() -> StopLevel:
        progress.tick()
        return stop.level()

    outcomes = []
    with contextlib.closing(launcher.run(work.missing, on_event, stop_level)) as running:
        for outcome in running:
            detail = {"reason": outcome.message} if outcome.message else {}
            event = _LEDGER_EVENTS[outcome.state]
            work.ledger(outcome.cell).append(event, label(outcome.cell), **detail)
            progress.ended(outcome)
            outcomes.append(outcome)
    return outcomes
