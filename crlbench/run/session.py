"""One sitting: lock the run folders, run their missing cells, and keep the ledgers."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.attempts import (
    ENDED,
    LEDGER_NAME,
    MAX_REASON,
    Event,
    History,
    declarations,
    histories,
    salvaged,
)
from crlbench.errors import ValidationError, printable
from crlbench.records import Cell, RunRecord
from crlbench.run.grid import Launcher, Outcome, StopLevel
from crlbench.run.ledger import Ledger
from crlbench.run.plan import (
    RECORD_NAME,
    REDO_CELL,
    Plan,
    check_folder,
    label,
    of_shard,
    state,
    stored_record,
)
from crlbench.run.progress import Progress
from crlbench.run.store import (
    clean_temporaries,
    damaged,
    explained,
    locked,
    read_json,
    remove_tree,
    write_bytes,
)

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
    """Without a record, to be run."""
    vanished: list[Cell]
    """Without a record though the ledger says that they ended: they count as failed runs."""
    ledgers: dict[str, Ledger]
    """By the folder of the plan."""

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
        elif history is not None and history.ended:
            work.vanished.append(cell)
        else:
            work.missing.append(cell)
    work.missing.sort(key=lambda cell: cell.seed_index)
    return work


def _histories(work: Work) -> list[tuple[Cell, History | None]]:
    """The wanted cells and what their ledgers say of them."""
    known = {folder: histories(ledger.entries) for folder, ledger in work.ledgers.items()}
    return [
        (cell, known[str(work.ledger(cell).path.parent)].get(label(cell))) for cell in work.wanted
    ]


def _check_end(cell: Cell, record: RunRecord, history: History | None) -> None:
    """Refuse a record that is not the one with which its run ended."""
    stated = history.ends[-1] if history is not None and history.ended else None
    if stated not in (None, record.record_id):
        raise damaged(
            Path(cell.folder) / RECORD_NAME,
            f"the ledger says that this run ended with another record, {stated[:12]}...",
            REDO_CELL,
        )


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
        EnvironmentUnfit: a folder is held by another process or may not be written.
        ValidationError: something stored is damaged or belongs to other runs.
    """
    with contextlib.ExitStack() as held:
        for plan in plans:
            held.enter_context(locked(plan.folder, command))
            clean_temporaries(plan.folder)
            clean_temporaries(plan.cells[0].start_folder)
        if fresh:
            _discard(plans, shard)
        work = survey(plans, shard)
        for plan in plans:
            _declare(plan, work.ledgers[str(plan.folder)])
        _note_ends(work)
        if repeat:
            _repeat_vanished(work)
        yield work


def _declare(plan: Plan, ledger: Ledger) -> None:
    """Put a plan into the ledger and on the disk; what was declared before stays declared.

    So does the plan on the disk where the ledger that held it is gone.
    """
    for body in (*_stored_plan(plan), plan.stored):
        if body["plan_hash"] not in {found.plan_hash for found in declarations(ledger.entries)}:
            ledger.append("plan", **body)
    if not _covered(plan):
        plan.write()


def _covered(plan: Plan) -> bool:
    """Whether the stored plan holds all of this one, so that a narrower one replaces no wider."""
    if not plan.path.exists():
        return False
    stored = read_json(plan.path)
    return set(plan.body["tasks"]) <= set(stored["tasks"]) and all(
        count <= stored["arms"].get(arm, 0) for arm, count in plan.body["arms"].items()
    )


def _note_ends(work: Work) -> None:
    """Write the last event of finished runs whose command died before it could.

    A record of which the ledger knows no attempt was made elsewhere and gets no event.
    """
    for cell, history in _histories(work):
        begun = history is not None and not history.ended
        record = stored_record(cell) if begun else None
        if record is not None:
            event: Event = "failed" if record.status.state == "failed" else "done"
            work.ledger(cell).append(event, label(cell), **_identity(cell), found=True)


def _repeat_vanished(work: Work) -> None:
    """Give the vanished cells up and count them as missing."""
    for cell in work.vanished:
        _give_up(cell, work.ledger(cell), reason="its record was gone")
    work.missing = sorted([*work.missing, *work.vanished], key=lambda cell: cell.seed_index)
    work.vanished = []


def _discard(plans: Sequence[Plan], shard: tuple[int, int] | None) -> None:
    """Give up the wanted cells, the start scores, and a plan or ledger that is of no use."""
    wanted = set(map(label, of_shard([cell for plan in plans for cell in plan.cells], shard)))
    for plan in plans:
        ledger = _sound_ledger(plan)
        _set_plan_aside(plan, ledger)
        known = histories(ledger.entries)
        for cell in plan.cells:
            history = known.get(label(cell))
            stored = Path(cell.folder).exists() or (history is not None and history.ended)
            if stored and label(cell) in wanted:
                _give_up(cell, ledger)
        remove_tree(plan.cells[0].start_folder)


def _give_up(cell: Cell, ledger: Ledger, **detail: str) -> None:
    """Discard what is left of a cell; the ledger says so before it is gone."""
    ledger.append("discarded", label(cell), **detail)
    remove_tree(cell.folder)


def _set_plan_aside(plan: Plan, ledger: Ledger) -> None:
    """Rename a stored plan that is damaged, or of another entry or recipe."""
    try:
        check_folder(plan)
    except ValidationError:
        kept = _aside(plan.path)
        ledger.append("discarded", plan.path.name, kept=kept.name)
        with explained(kept):
            os.replace(plan.path, kept)


def _sound_ledger(plan: Plan) -> Ledger:
    """The ledger of a run folder; a damaged one is kept beside a new one, which says so.

    What can be read of its declared plans is declared again, so that no number of seeds becomes
    smaller. The new ledger is whole before it takes the place of the old.
    """
    path = plan.folder / LEDGER_NAME
    try:
        return Ledger(path)
    except ValidationError:
        kept = write_bytes(_aside(path), path.read_bytes())
    begun = path.with_suffix(".new.jsonl")
    begun.unlink(missing_ok=True)
    ledger = Ledger(begun)
    ledger.append("discarded", path.name, kept=kept.name)
    for declared in salvaged(kept):
        ledger.append("plan", **declared)
    with explained(path):
        os.replace(begun, path)
    return Ledger(path)


def _stored_plan(plan: Plan) -> list[dict[str, Any]]:
    """The plan on the disk, where it is sound."""
    try:
        check_folder(plan)
    except ValidationError:
        return []
    return [read_json(plan.path)] if plan.path.exists() else []


def _aside(path: Path) -> Path:
    """The first free ``<name>.damaged-N``, beside a file that is of no use."""
    names = (path.with_name(f"{path.stem}.damaged-{n}{path.suffix}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


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
            detail = {"reason": printable(outcome.message)[:MAX_REASON]} if outcome.message else {}
            event = _LEDGER_EVENTS[outcome.state]
            if event in ENDED:
                detail |= _identity(outcome.cell)
            work.ledger(outcome.cell).append(event, label(outcome.cell), **detail)
            progress.ended(outcome)
            outcomes.append(outcome)
    return outcomes


def _identity(cell: Cell) -> dict[str, str]:
    """What ties the end of a run to its record and its item vectors.

    Another record cannot stand in its place, and a repetition shows whether it is another draw.
    """
    path = Path(cell.folder) / RECORD_NAME
    if not path.exists():
        return {}
    record = read_json(path)
    items = record["files"].get("items.npz")
    return {"record_id": record["record_id"]} | (
        {} if items is None else {"items_sha256": items["sha256"]}
    )
