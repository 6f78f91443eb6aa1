"""The attempt ledger of a run folder: its lines, its chain, and what became of each cell.

One JSON line per event, chained (:mod:`crlbench.disk.linked_lines`), so that a removed or changed
attempt shows. The run side appends to it (:mod:`crlbench.run.ledger`), the report reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from crlbench.disk.hashing import digest
from crlbench.disk.line_ends import BOM, remedy
from crlbench.disk.linked_lines import follows, parsed, whole_lines
from crlbench.errors import ValidationError

LEDGER_NAME = "ledger.jsonl"

DECLARED_SEEDS = (5, 10, 20)
"""Numbers of seeds that rank (protocol CRL-1, A.6); any other is a preview."""

Event = Literal[
    "plan",
    "start",
    "resume",
    "done",
    "failed",
    "error",
    "interrupted",
    "lost",
    "discarded",
    "rebuilt",
]
"""``failed`` is a run that broke a stability rule, ``error`` a wrong input or machine, ``lost`` a
process that died twice, ``discarded`` a result that was given up to be made again. ``rebuilt`` is
a file that was damaged or gone and was made again from others; its ``cell`` is the file's name."""
ENDED = frozenset({"done", "failed"})
"""Events after which a record stands."""

MAX_REASON = 2000
"""Characters of what a ledger says of a run that did not finish."""
MAX_SEEDS = 10_000
MAX_RUNS = 100_000
"""Most runs of a plan or a study."""

_EVENTS = frozenset(get_args(Event))
REPAIR = (
    "Restore the file if you have a copy. Otherwise repeat the command that made the runs: it "
    "keeps the damaged file, and begins a new ledger from what can be read. No run is lost; runs "
    "under a ledger that was begun anew never rank."
)


def read(path: Path | str) -> list[dict[str, Any]]:
    """The verified entries of a ledger; an absent file is an empty ledger.

    Raises:
        ValidationError: the chain is broken, or a line is no event; says at which line.
        EnvironmentUnfit: the file may not be read.
    """
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(whole_lines(Path(path)), start=1):
        entry = parsed(line)
        if not follows(entry, entries):
            has_mark = line.startswith(BOM) and follows(parsed(line.removeprefix(BOM)), entries)
            raise ValidationError(
                f"{path}:{number}: the attempt ledger was changed or damaged: this line does not "
                f"follow from the one before. {remedy(Path(path), BOM) if has_mark else REPAIR}"
            )
        if (fault := _fault(entry)) is not None:
            raise ValidationError(f"{path}:{number}: no event of a ledger: {fault}. {REPAIR}")
        entries.append(entry)
    return entries


def _fault(entry: Mapping[str, Any]) -> str | None:
    """Why a line is no event; None where it is one."""
    detail = entry.get("detail")
    if not isinstance(entry.get("event"), str) or entry["event"] not in _EVENTS:
        return f"event {entry.get('event')!r:.40}, expected one of {', '.join(sorted(_EVENTS))}"
    if not isinstance(entry.get("time"), str) or not isinstance(detail, dict):
        return "time or detail is missing"
    if entry["event"] == "plan":
        return _plan_fault(detail)
    return None if isinstance(entry.get("cell"), str) else "cell is missing"


def _plan_fault(detail: Mapping[str, Any]) -> str | None:
    tasks, arms = detail.get("tasks", []), detail.get("arms", {})
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        return "detail.tasks is no list of names"
    if not isinstance(arms, dict) or not all(map(_is_count, arms.values())):
        return "detail.arms holds no numbers of seeds"
    if len(tasks) * sum(arms.values()) > MAX_RUNS:
        return f"detail declares more than {MAX_RUNS} runs"
    plan_id = detail.get("plan_hash")
    return None if plan_id in (None, plan_hash(detail)) else "detail.plan_hash is of another plan"


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_SEEDS


def plan_hash(plan: Mapping[str, Any]) -> str:
    """The hash of a plan as it is stored: SHA-256 of all but the hash itself."""
    return digest({key: value for key, value in plan.items() if key != "plan_hash"})


def attempt_hashes(entries: Iterable[Mapping[str, Any]], cell: str) -> tuple[str, ...]:
    """The hashes of the lines that say that a cell was begun, and continued since, oldest first."""
    hashes: list[str] = []
    for entry in entries:
        if entry.get("cell") == cell and entry["event"] == "start":
            hashes = [entry["hash"]]
        elif entry.get("cell") == cell and entry["event"] == "resume":
            hashes.append(entry["hash"])
    return tuple(hashes)


def salvaged(content: bytes) -> list[dict[str, Any]]:
    """The plans of a damaged ledger whose own hash still holds, in order."""
    entries = map(parsed, content.splitlines())
    return [entry["detail"] for entry in entries if _holds_plan(entry)]


def sound_lines(content: bytes) -> list[dict[str, Any]]:
    """The events of a damaged ledger up to the first line that is none."""
    entries: list[dict[str, Any]] = []
    for line in content.rpartition(b"\n")[0].splitlines():
        entry = parsed(line)
        if not follows(entry, entries) or _fault(entry) is not None:
            break
        entries.append(entry)
    return entries


def _holds_plan(entry: Mapping[str, Any]) -> bool:
    detail = entry.get("detail")
    if entry.get("event") != "plan" or not isinstance(detail, dict):
        return False
    try:
        return detail.get("plan_hash") == plan_hash(detail) and _plan_fault(detail) is None
    except (ValueError, RecursionError):  # a number that JSON does not know, or a depth
        return False


def subject_of(plan: Mapping[str, Any]) -> str:
    """What a plan's runs are runs of: the model's entry and the recipe, as a hash."""
    return digest([plan.get("model"), plan.get("recipe")])


@dataclass(frozen=True)
class Declaration:
    """A plan as it was declared: what would be run, said before it was."""

    time: str
    """UTC, ISO 8601."""
    plan_hash: str
    tasks: tuple[str, ...]
    arms: dict[str, int]
    """Number of seeds by arm."""
    ended: int
    """Runs of this folder that had ended by then: what could be seen when it was declared."""


def declarations(entries: Iterable[Mapping[str, Any]]) -> tuple[Declaration, ...]:
    """The plans of the model entry and recipe that were declared last, oldest first.

    They hold though the stored plan was lost: a folder's declared seeds never become fewer.
    """
    plans: list[tuple[str, Declaration]] = []
    ended = 0
    for entry in entries:
        if entry["event"] in ENDED:
            ended += 1
        elif entry["event"] == "plan":
            plan = entry["detail"]
            declaration = Declaration(
                time=entry["time"],
                plan_hash=plan_hash(plan),
                tasks=tuple(plan.get("tasks", ())),
                arms=dict(plan.get("arms", {})),
                ended=ended,
            )
            plans.append((subject_of(plan), declaration))
    return tuple(declaration for subject, declaration in plans if subject == plans[-1][0])


def planned(plans: Sequence[Declaration]) -> dict[tuple[str, str], int]:
    """The number of seeds by (task, arm): the largest that was declared, never a smaller one."""
    counts: dict[tuple[str, str], int] = {}
    for plan in plans:
        for task in plan.tasks:
            for arm, count in plan.arms.items():
                counts[task, arm] = max(count, counts.get((task, arm), 0))
    return counts


@dataclass(frozen=True)
class History:
    """What a ledger says of one cell."""

    last: Event
    begun: bool = False
    """Whether any start is known."""
    resumed: bool = False
    """Whether it was continued from a checkpoint since it was last begun anew."""
    discarded: int = 0
    ends: tuple[str | None, ...] = ()
    """``record_id`` at each end, oldest first; None where the ledger states none."""
    record_sha256: str | None = None
    """Digest of the record's file at the last end; None where the ledger states none."""
    begun_at: str = ""
    """Time of the first start; "" where none is known."""
    ended_at: str = ""
    """Time of the last end."""
    results: tuple[tuple[str, str | None], ...] = ()
    """At each end what the run was of, as a hash, and the SHA-256 of its item vectors."""

    @property
    def ended(self) -> bool:
        """Whether a record must stand; where none does, the run *vanished* and counts as failed.

        A process that died as often as is allowed ended nothing: the same command continues it.
        """
        return self.last in ENDED

    @property
    def redrawn(self) -> bool:
        """Whether it ended with item vectors that differ: the seed was drawn more than once.

        A repetition elsewhere or with another version has another record, and the same vectors
        where nothing else changed. Another entry or recipe is another run.
        """
        distinct = {(subject, items) for subject, items in self.results if items is not None}
        return len(distinct) > len({subject for subject, _ in distinct})

    def after(self, entry: Mapping[str, Any], subject: str) -> History:
        """This history and one event more, under a plan of ``subject``."""
        event = entry["event"]
        ends, results, sha256 = self.ends, self.results, self.record_sha256
        begins = event in ("start", "resume")
        if event in ENDED:
            ends += (_text(entry["detail"].get("record_id")),)
            results += ((subject, _text(entry["detail"].get("items_sha256"))),)
            sha256 = _text(entry["detail"].get("record_sha256"))
        return replace(
            self,
            last=event,
            begun=self.begun or begins,
            begun_at=self.begun_at or (entry["time"] if begins else ""),
            ended_at=entry["time"] if event in ENDED else self.ended_at,
            resumed=event == "resume" or (self.resumed and event != "start"),
            discarded=self.discarded + (event == "discarded"),
            ends=ends,
            record_sha256=sha256,
            results=results,
        )


def stored_plan(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The plan that stands on the disk by what a ledger declared; None before the first one.

    A later plan replaces it unless it is a part of it.
    """
    current: dict[str, Any] | None = None
    for entry in entries:
        plan = entry["detail"]
        if entry["event"] == "plan" and (current is None or not covers(current, plan)):
            current = plan
    return current


def covers(plan: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a plan holds all runs of another one."""
    arms = plan.get("arms", {})
    return (
        subject_of(plan) == subject_of(other)
        and set(other.get("tasks", ())) <= set(plan.get("tasks", ()))
        and all(count <= arms.get(arm, 0) for arm, count in other.get("arms", {}).items())
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def histories(entries: Iterable[Mapping[str, Any]]) -> dict[str, History]:
    """What became of each cell, by its name in the ledger."""
    by_cell: dict[str, History] = {}
    subject = ""
    for entry in entries:
        if entry["event"] == "plan":
            subject = subject_of(entry["detail"])
        elif entry["event"] != "rebuilt":
            name = entry["cell"]
            by_cell[name] = by_cell.get(name, History(entry["event"])).after(entry, subject)
    return by_cell
