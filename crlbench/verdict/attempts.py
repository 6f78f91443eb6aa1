"""What was declared and what was attempted in a run folder: its plan and its ledger, read.

A plan is declared before the first update and may be widened later; the ledger says when, and how
many runs had ended by then, so that a look before more seeds shows. A planned cell without a
record *vanished* where the ledger says that it ended; it counts as a failed run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import (
    LEDGER_NAME,
    Declaration,
    History,
    declarations,
    histories,
    plan_hash,
    planned,
    read,
)
from crlbench.contract.stored import json_object
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.verdict.runs import Run

Key = tuple[str, str, int]
"""A cell of a run folder: task, arm and seed index."""

_CELL = re.compile(r"(?:.*/)?([^/]+)/([^/]+)/seed-(\d{2,6})")


@dataclass(frozen=True)
class Extension:
    """A later declaration with more seeds than before."""

    time: str
    """UTC, ISO 8601."""
    before: int
    after: int
    ended: int
    """Runs of the folder that had ended by then, and could have been looked at."""


@dataclass(frozen=True)
class Attempts:
    """The ledger of one run folder, whole and unbroken."""

    folder: Path
    declared: tuple[Declaration, ...]
    """Oldest first."""
    planned: dict[tuple[str, str], int]
    """Number of seeds by (task, arm): the largest that was declared."""
    cells: dict[Key, History]
    """Every cell that was attempted."""
    discarded: tuple[str, ...]
    """Files of the folder that were damaged or gone and lost what they said: a plan, a ledger."""

    def vanished(self, key: Key) -> bool:
        """Whether a planned cell without a record had ended."""
        history = self.cells.get(key)
        return history is not None and history.ended

    def unknown(self, runs: Iterable[Run]) -> tuple[Key, ...]:
        """The stored runs of which the ledger knows no start or no end.

        They were made elsewhere, or their command died before it wrote the last event.
        """
        keys = sorted(key_of(run) for run in runs)
        ledger_keys = {
            key for key, history in self.cells.items() if history.begun and history.ended
        }
        return tuple(key for key in keys if key not in ledger_keys)

    def extensions(self, arm: str = "real") -> tuple[Extension, ...]:
        """When the number of seeds was raised, and what had been seen by then."""
        extensions: list[Extension] = []
        seeds: dict[str, int] = {}
        for plan in self.declared:
            count = plan.arms.get(arm, 0)
            earlier = [seeds[task] for task in plan.tasks if 0 < seeds.get(task, 0) < count]
            if earlier:
                extensions.append(Extension(plan.time, max(earlier), count, plan.ended))
            seeds |= {task: max(count, seeds.get(task, 0)) for task in plan.tasks}
        return tuple(extensions)

    def until(self, count: int) -> Attempts:
        """The same ledger as if only the first ``count`` plans had been declared."""
        if count >= len(self.declared):
            return self
        plans = self.declared[:count]
        return replace(self, declared=plans, planned=planned(plans))

    def added_by(self, number: int) -> tuple[Key, ...]:
        """The cells that the plan of this number declares beyond those before it."""
        before, after = (planned(self.declared[:n]) for n in (number, number + 1))
        return tuple(
            (task, arm, index)
            for (task, arm), count in after.items()
            for index in range(before.get((task, arm), 0), count)
        )

    @property
    def repeated(self) -> tuple[Key, ...]:
        """Cells that had ended, were discarded and ended again."""
        return tuple(sorted(k for k, h in self.cells.items() if h.discarded and len(h.ends) > 1))

    @property
    def given_up(self) -> tuple[Key, ...]:
        """Cells that were discarded, and not ended before and again."""
        discarded = {key for key, history in self.cells.items() if history.discarded}
        return tuple(sorted(discarded - set(self.repeated)))

    @property
    def redrawn(self) -> tuple[Key, ...]:
        """Cells that ended with item vectors that differ: more than one draw of a seed."""
        return tuple(sorted(key for key, history in self.cells.items() if history.redrawn))

    @property
    def hashes(self) -> frozenset[str]:
        """Of the declared plans."""
        return frozenset(plan.plan_hash for plan in self.declared)

    def check(self, runs: Iterable[Run]) -> None:
        """Refuse records that this ledger does not know as its own.

        Raises:
            ValidationError: a record cites a plan that was never declared here, or is not the
                one with which the ledger says that its run ended.
        """
        for run in runs:
            check_declared(run, self.hashes, self.folder / LEDGER_NAME)
            record, where = run.record, f"{run.folder / RECORD_NAME}"
            history = self.cells.get(key_of(run))
            last = history.ends[-1] if history is not None and history.ended else None
            if last not in (None, record.record_id):
                raise ValidationError(
                    f"{where}: record_id: {record.record_id[:12]}..., but "
                    f"{self.folder / LEDGER_NAME} says that this run ended with {last[:12]}...: "
                    "the record was exchanged"
                )


def check_declared(run: Run, hashes: Collection[str], source: Path) -> None:
    """Refuse a run of a plan that its folder's plan or ledger does not declare.

    Raises:
        ValidationError: names the record and the file that should declare its plan.
    """
    plan = run.record.plan_hash
    if plan not in hashes:
        raise ValidationError(
            f"{run.folder / RECORD_NAME}: plan_hash: {plan[:12]}... was never declared in "
            f"{source}, and a plan must be declared before it is run"
        )


def key_of(run: Run) -> Key:
    """A run as the ledger of its folder names it."""
    return run.record.task.name, run.record.arm, run.record.seed.index


def read_attempts(folder: Path) -> Attempts | None:
    """The attempts of a run folder; None where it has no ledger.

    Raises:
        ValidationError: the chain is broken (names the line), a run began under a plan that had
            not been declared by then, or the stored plan was never declared.
        EnvironmentUnfit: a file may not be read.
    """
    path = folder / LEDGER_NAME
    entries = read(path)
    if not entries:
        return None
    _check_order(path, entries)
    declared = declarations(entries)
    _check_plan(folder / PLAN_NAME, declared)
    cells = histories(entries)
    files = (PLAN_NAME, LEDGER_NAME)
    return Attempts(
        folder=folder,
        declared=declared,
        planned=planned(declared),
        cells={_key(path, name): history for name, history in cells.items() if name not in files},
        discarded=tuple(e["cell"] for e in entries if _is_loss(e)),
    )


def _is_loss(entry: Mapping[str, Any]) -> bool:
    """Whether an event says that a file of the folder lost what it said.

    A plan that was rebuilt says what the ledger says; a ledger follows from nothing.
    """
    files = {"discarded": (PLAN_NAME, LEDGER_NAME), "rebuilt": (LEDGER_NAME,)}
    return entry.get("cell") in files.get(entry["event"], ())


def _check_order(path: Path, entries: list[dict[str, Any]]) -> None:
    """A plan comes before everything that is run under it."""
    hashes = set()
    for number, entry in enumerate(entries, start=1):
        if entry["event"] == "plan":
            hashes.add(plan_hash(entry["detail"]))
        elif entry["event"] in ("start", "resume"):
            plan = entry["detail"].get("plan_hash")
            if not isinstance(plan, str) or plan not in hashes:
                raise ValidationError(
                    f"{path}:{number}: a run began under the plan {plan!r:.16}, which had not "
                    "been declared by then. A plan is declared before the first update."
                )


def _check_plan(path: Path, declared: tuple[Declaration, ...]) -> None:
    if not path.is_file():
        return
    stored_hash = plan_hash(json_object(path))
    if stored_hash not in {plan.plan_hash for plan in declared}:
        raise ValidationError(
            f"{path}: this plan ({stored_hash[:12]}...) was never declared in "
            f"{path.parent / LEDGER_NAME}"
        )


def _key(path: Path, name: str) -> Key:
    match = _CELL.fullmatch(name)
    if match is None:
        raise ValidationError(f"{path}: cell {name!r:.80}: expected .../task/arm/seed-00")
    return match[1], match[2], int(match[3])
