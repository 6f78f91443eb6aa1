"""A submitted ledger, held against the forms that crlbench writes.

Reading them for a report asks only for what it uses (:mod:`crlbench.contract.attempts`). A result
that is kept for ever holds nothing else: no field, text or time that no run could have written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as PydanticError
from typing_extensions import TypedDict

from crlbench.base.explain import faults
from crlbench.contract.attempts import LEDGER_NAME, MAX_REASON
from crlbench.contract.verification import Finding
from crlbench.disk.names import PLAN_NAME
from crlbench.proof.forms import SKEW_S, Hash, Host
from crlbench.proof.plan import audit_declared, home_of

Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]
CellName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+@=,:/-]+$", max_length=300)]
Reason = Annotated[str, Field(pattern=r"^[\P{C}\n\t]*$", max_length=MAX_REASON)]
KeptName = Annotated[str, Field(pattern=r"^(?:plan|ledger)\.damaged-\d{1,4}\.jsonl?$")]
Attempt = Annotated[int, Field(ge=1, le=100_000)]

KEPT = (PLAN_NAME, LEDGER_NAME)
DERIVED = ("curve.csv", "config.toml", "env.json")
"""Files of a run that follow from its record."""
START = re.compile(r"[0-9a-f]{12}/[a-z0-9_-]{1,100}\.npz")
"""A file with scores of the start model."""

_FORM = ConfigDict(extra="forbid", strict=True)


class _Begin(TypedDict):
    __pydantic_config__ = _FORM  # type: ignore[misc]

    plan_hash: Hash
    attempt: Attempt
    reason: NotRequired[Reason]
    checkpoint: NotRequired[Hash]


class _End(TypedDict):
    __pydantic_config__ = _FORM  # type: ignore[misc]

    record_id: Hash
    record_sha256: NotRequired[Hash]
    items_sha256: Hash
    reason: NotRequired[Reason]
    found: NotRequired[Literal[True]]


class _Stop(TypedDict):
    __pydantic_config__ = _FORM  # type: ignore[misc]

    reason: NotRequired[Reason]


class _File(TypedDict):
    __pydantic_config__ = _FORM  # type: ignore[misc]

    reason: NotRequired[Reason]
    kept: NotRequired[KeptName]


class _Line(TypedDict):
    __pydantic_config__ = _FORM  # type: ignore[misc]

    event: str
    cell: CellName | None
    time: Moment
    host: Host
    detail: dict[str, Any]
    n: int
    previous: Hash
    hash: Hash


_LINE = TypeAdapter(_Line)
_BEGIN, _END, _STOP = TypeAdapter(_Begin), TypeAdapter(_End), TypeAdapter(_Stop)
_FILE = TypeAdapter(_File)
_DETAILS: dict[str, TypeAdapter[Any]] = {
    "start": _BEGIN,
    "resume": _BEGIN,
    "done": _END,
    "failed": _END,
    "error": _STOP,
    "interrupted": _STOP,
    "lost": _STOP,
    "discarded": _FILE,
    "rebuilt": _FILE,
}


def audit_ledger(
    name: str, entries: list[dict[str, Any]], plan: Mapping[str, Any]
) -> Iterator[Finding]:
    """Every line is an event as a run writes it, at a time that is real, past and in order.

    Args:
        name: of the entry, for findings.
        entries: of the ledger, whose chain holds.
        plan: that stands beside it.
    """
    before, now = "", time.time() + SKEW_S
    cells, home = _cells(entries), home_of(plan)
    for number, entry in enumerate(entries, start=1):
        where, detail = f"line {number}: ", entry["detail"]
        faults = list(_faults(name, LEDGER_NAME, where, _LINE, entry))
        if entry["event"] == "plan":
            faults += audit_declared(name, f"{where}detail.", detail, plan)
        else:
            form = _DETAILS[entry["event"]]
            faults += _faults(name, LEDGER_NAME, f"{where}detail.", form, detail)
            faults += _named(name, where, entry, cells, home)
        yield from faults
        if not faults:
            yield from _moment(name, where, entry["time"], before, now)
            before = max(before, entry["time"])


def _cells(entries: list[dict[str, Any]]) -> set[str]:
    """``task/arm/seed-00`` of every cell that a plan of the ledger declares."""
    found = set()
    for plan in (entry["detail"] for entry in entries if entry["event"] == "plan"):
        for task in plan.get("tasks", ()):
            for arm, count in plan.get("arms", {}).items():
                found |= {f"{task}/{arm}/seed-{index:02d}" for index in range(count)}
    return found


def _named(
    name: str, where: str, entry: Mapping[str, Any], cells: set[str], home: str
) -> Iterator[Finding]:
    """An event is of a cell that was planned, or of a file that the folder keeps."""
    cell, event = str(entry["cell"]), entry["event"]
    above, _, last = cell.rpartition("/")
    if event == "rebuilt":
        kept = cell in KEPT or START.fullmatch(cell) is not None
        known, expected = kept or (above in cells and last in DERIVED), "a file of a run"
    elif event == "discarded" and cell in KEPT:
        return
    else:
        known, expected = cell in {f"{home}/{own}" for own in cells}, f"a planned cell of {home}"
    if not known:
        yield Finding(name, LEDGER_NAME, f"{where}cell", cell, expected)


def _faults(
    name: str, file: str, where: str, form: TypeAdapter[Any], value: Any
) -> Iterator[Finding]:
    try:
        form.validate_python(value)
    except PydanticError as error:
        for fault in faults(error):
            yield Finding(name, file, where + fault.field, fault.given, fault.said)


def _moment(name: str, where: str, stated: str, before: str, now: float) -> Iterator[Finding]:
    field = f"{where}time"
    try:
        moment = seconds(stated)
    except ValueError:
        yield Finding(name, LEDGER_NAME, field, stated, "a time of the calendar")
        return
    if moment > now:
        yield Finding(name, LEDGER_NAME, field, stated, "a time that is past")
    elif before and moment < seconds(before) - SKEW_S:
        yield Finding(name, LEDGER_NAME, field, stated, f"at or after {before}", "of lines before")


def seconds(stated: str) -> float:
    """Seconds since 1970 of a time such as ``2026-11-24T18:19:13Z``.

    Raises:
        ValueError: no time of the calendar.
    """
    return datetime.strptime(stated, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
