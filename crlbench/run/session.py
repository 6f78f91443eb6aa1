"""One sitting: lock the run folders, run their missing cells, and keep the ledgers."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crlbench.contract.attempts import (
    ENDED,
    LEDGER_NAME,
    MAX_REASON,
    History,
    covers,
    declarations,
    histories,
)
from crlbench.contract.events import Event
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell, RunRecord
from crlbench.contract.stored import REDO_RUN, damaged
from crlbench.disk.hashing import sha256_file
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import printable
from crlbench.run import checkpoints
from crlbench.run.launcher import Launcher, Outcome, StopLevel
from crlbench.run.ledger import Ledger
from crlbench.run.live import reported
from crlbench.run.mend import identity, mend, set_plan_aside
from crlbench.run.needs import check_needs, unable
from crlbench.run.plan import Plan, check_folder, end_of, label, of_shard, stored_record
from crlbench.run.progress import Progress
from crlbench.run.store import clean_temporaries, locked, read_json, remove_tree


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
        """Let SIGINT and SIGTERM turn the switch instead of ending the process.

        Outside of the main thread, where Python takes no signals, they stay as they are.
        """
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
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
    """Cells of this shard."""
    missing: list[Cell]
    """Cells without a record, to be run."""
    vanished: list[Cell]
    """Cells without a record that ended by the ledger: they count as failed runs."""
    ledgers: dict[str, Ledger]
    """Ledgers by the folder of their plan."""
    said: list[str] = field(default_factory=list)
    """A sentence for each file that was damaged or gone, and was made again or does no harm."""

    def ledger(self, cell: Cell) -> Ledger:
        """The ledger of the run folder that a cell belongs to."""
        home = next(p.folder for p in self.plans if p.folder in Path(cell.folder).parents)
        return self.ledgers[str(home)]


def survey(plans: Sequence[Plan], shard: tuple[int, int] | None = None) -> Work:
    """Which cells are wanted, which are missing and which have vanished; reads only.

    The first seeds of all plans come first, so that what is compared grows alike.

    Raises:
        ValidationError: something stored is damaged or belongs to other runs.
    """
    for plan in plans:
        check_folder(plan)
    work = Work(
        plans=plans,
        wanted=of_shard([cell for plan in plans for cell in plan.cells], shard),
        missing=[],
        vanished=[],
        ledgers={str(plan.folder): Ledger(plan.folder / LEDGER_NAME) for plan in plans},
    )
    for cell, history in _histories(work):
        record = stored_record(cell)
        if record is not None:
            _check_end(cell, record, history)
            work.said += _volatile_changed(cell, history)
        elif history is not None and history.ended:
            work.vanished.append(cell)
        else:
            work.missing.append(cell)
    work.missing.sort(key=lambda cell: cell.seed_index)
    return work


def _histories(work: Work) -> list[tuple[Cell, History | None]]:
    """The wanted cells and what their ledgers say of them."""
    by_folder = {folder: histories(ledger.entries) for folder, ledger in work.ledgers.items()}
    return [
        (cell, by_folder[str(work.ledger(cell).path.parent)].get(label(cell)))
        for cell in work.wanted
    ]


def _check_end(cell: Cell, record: RunRecord, history: History | None) -> None:
    """Refuse a record that is not the one with which its run ended."""
    record_id = history.ends[-1] if history is not None and history.ended else None
    if record_id not in (None, record.record_id):
        raise damaged(
            Path(cell.folder) / RECORD_NAME,
            f"the ledger says that this run ended with another record, {record_id[:12]}...",
            REDO_RUN,
        )


def _volatile_changed(cell: Cell, history: History | None) -> list[str]:
    """A word on a record whose content holds and whose file is not the one that was written."""
    path = Path(cell.folder) / RECORD_NAME
    digest = history.record_sha256 if history is not None and history.ended else None
    if digest in (None, sha256_file(path)):
        return []
    return [
        f"{path} was changed since it was written, outside of what its record_id covers: do not "
        "trust its times and its memory (volatile). Its results are as they were."
    ]


@contextlib.contextmanager
def opened(
    plans: Sequence[Plan],
    command: str,
    *,
    fresh: bool,
    shard: tuple[int, int] | None,
    repeat: bool = False,
) -> Iterator[Work]:
    """Hold all run folders, give up what is to be made again, declare the plans before any update.

    Args:
        fresh: discard all wanted cells, and the start scores.
        repeat: run the vanished cells again.

    Raises:
        UsageError: a plan has cells whose needs can never be met; before anything is written.
        EnvironmentUnfit: a folder is held by another process or may not be written.
        ValidationError: something stored is damaged or belongs to other runs.
    """
    for plan in plans:
        check_needs(plan.cells)
    with contextlib.ExitStack() as locks:
        for plan in plans:
            locks.enter_context(locked(plan.folder, command))
            clean_temporaries(plan.folder)
            clean_temporaries(plan.cells[0].start_folder)
        mended = [sentence for plan in plans for sentence in mend(plan)]
        if fresh:
            _discard(plans, shard)
        work = survey(plans, shard)
        work.said[:0] = mended
        for plan in plans:
            _declare(plan, work.ledgers[str(plan.folder)])
        _note_ends(work)
        if repeat:
            _repeat_vanished(work)
        yield work


def _declare(plan: Plan, ledger: Ledger) -> None:
    """Put a plan into the ledger and on the disk; what was declared before stays declared.

    So does a plan on the disk that the ledger does not hold.
    """
    files = [read_json(plan.path)] if plan.path.exists() else []
    for body in (*files, plan.stored):
        if body["plan_hash"] not in {
            plan_line.plan_hash for plan_line in declarations(ledger.entries)
        }:
            ledger.append("plan", **body)
    if not files or not covers(files[0], plan.stored):
        plan.write()


def _note_ends(work: Work) -> None:
    """Write the last event of finished runs whose command died before it could.

    A record of which the ledger knows no attempt was made elsewhere and gets no event.
    """
    for cell, history in _histories(work):
        going = history is not None and not history.ended
        record = stored_record(cell) if going else None
        if record is not None:
            path = Path(cell.folder) / RECORD_NAME
            detail = identity(path, record) | {"found": True}
            work.ledger(cell).append(end_of(record), label(cell), **detail)


def _repeat_vanished(work: Work) -> None:
    """Give the vanished cells up and count them as missing."""
    for cell in work.vanished:
        _give_up(cell, work.ledger(cell), reason="its record was gone")
    work.missing = sorted([*work.missing, *work.vanished], key=lambda cell: cell.seed_index)
    work.vanished = []


def _discard(plans: Sequence[Plan], shard: tuple[int, int] | None) -> None:
    """Give up the wanted cells, the start scores, and a plan of another model or recipe."""
    names = set(map(label, of_shard([cell for plan in plans for cell in plan.cells], shard)))
    for plan in plans:
        ledger = Ledger(plan.folder / LEDGER_NAME)
        set_plan_aside(plan, ledger)
        by_cell = histories(ledger.entries)
        for cell in plan.cells:
            history = by_cell.get(label(cell))
            exists = Path(cell.folder).exists() or (history is not None and history.ended)
            if exists and label(cell) in names:
                _give_up(cell, ledger)
        remove_tree(plan.cells[0].start_folder)


def _give_up(cell: Cell, ledger: Ledger, **detail: str) -> None:
    """Discard what is left of a cell; the ledger says so before it is gone."""
    ledger.append("discarded", label(cell), **detail)
    remove_tree(cell.folder)


def run_missing(
    work: Work, launcher: Launcher, progress: Progress, stop: StopSwitch
) -> list[Outcome]:
    """Run the missing cells, writing every attempt into its ledger.

    Cells that never started have no outcome, unless they are blocked by what they need; a cell
    that was killed has none either. What needs a cell that this sitting does not run waits.
    """
    cells = _able(work, progress)
    if not cells:
        return []

    def on_event(cell: Cell, event: Event) -> None:
        ledger = work.ledger(cell)
        if event["kind"] == "start":
            if (lost := _begin(cell, ledger, event["attempt"])) is not None:
                progress.warn(f"{label(cell)} begins again: {lost}")
        elif event["kind"] == "rebuilt":
            ledger.append("rebuilt", event["file"], reason=event["reason"])
            progress.warn(f"{event['file']} was made again: {event['reason']}")
        progress.event(cell, event)

    def stop_level() -> StopLevel:
        progress.tick()
        live.tick()
        return stop.level()

    outcomes = []
    by_folder: dict[Path, list[Cell]] = {}
    for cell in cells:
        by_folder.setdefault(work.ledger(cell).path.parent, []).append(cell)
    with (
        reported(by_folder, progress.tally) as live,
        contextlib.closing(launcher.run(cells, on_event, stop_level)) as running,
    ):
        for outcome in running:
            _note_end(outcome, work.ledger(outcome.cell))
            progress.ended(outcome)
            live.tick()
            outcomes.append(outcome)
    return outcomes


def _able(work: Work, progress: Progress) -> list[Cell]:
    """The missing cells that can run in this sitting; says what the others wait for."""
    lacking = unable(work.missing)
    vanished = set(map(label, work.vanished))
    waiting = {label(cell) for cell in work.missing if cell.folder in lacking}
    for cell in work.missing:
        if (name := lacking.get(cell.folder)) is None:
            continue
        why = "which has no record yet: another --shard runs it"
        if name in vanished:
            why = "whose record is gone: --repeat makes both"
        elif name in waiting:
            why = "which is not begun either"
        progress.warn(f"{label(cell)} is not begun: it needs {name}, {why}")
    return [cell for cell in work.missing if cell.folder not in lacking]


def _note_end(outcome: Outcome, ledger: Ledger) -> None:
    """Write into the ledger how an attempt ended; a blocked cell was never begun."""
    if outcome.state == "blocked":
        return
    detail = {"reason": printable(outcome.message)[:MAX_REASON]} if outcome.message else {}
    path = Path(outcome.cell.folder) / RECORD_NAME
    if outcome.state in ENDED and path.exists():
        detail |= identity(path, read_record(path, own=True))
    ledger.append(outcome.state, label(outcome.cell), **detail)


def _begin(cell: Cell, ledger: Ledger, attempt: int) -> str | None:
    """Write that a cell is begun, or continued from a checkpoint that is as it was written.

    Returns:
        Why a checkpoint is of no use, which is gone then: the cell begins again.
    """
    where = {"plan_hash": cell.plan_hash, "attempt": attempt}
    path = checkpoints.path_of(cell)
    try:
        checkpoint = checkpoints.standing(path, checkpoints.known_attempts(cell, ledger.entries))
    except checkpoints.Worthless as error:
        reason = str(error).replace(f"{Path(cell.folder)}/", "")
        ledger.append("start", label(cell), **where, reason=reason)
        remove_tree(path.parent)
        return str(error)
    if checkpoint is None:
        ledger.append("start", label(cell), **where)
    else:
        ledger.append("resume", label(cell), **where, checkpoint=checkpoint.sha256)
    return None
