"""A stored plan and its ledger, held against the forms that crlbench writes.

Reading them for a report asks only for what it uses (:mod:`crlbench.contract.attempts`). A result
that is kept for ever holds nothing else: no field, text or time that no run could have written.
What a plan says twice must be the same, its seeds are derived, and all plans of one folder are of
one board, model and recipe.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import faults
from crlbench.contract.attempts import LEDGER_NAME, MAX_REASON
from crlbench.contract.conditions import fingerprint, leaves
from crlbench.contract.records import StoredPlan
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import PLAN_NAME
from crlbench.proof.facts import board_tasks
from crlbench.proof.forms import SKEW_S, Hash, Host, Strict
from crlbench.seeding import seed_value

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
SHARED = ("protocol", "track", "track_version", "fingerprint", "control")
"""Fields that name the folder of a run, so that all its plans share them."""
NAMED = {"model": ("name", "revision8"), "recipe": ("name",)}
"""Fields of model and recipe that all plans of a folder share; the others may have changed."""
MAX_CONFIG = 2**14
"""Characters of a recipe's configuration; the longest of the bundled ones has some 1,000."""
_HEX = re.compile(r"[0-9a-f]{8}")


class _Begin(Strict):
    plan_hash: Hash
    attempt: Attempt
    reason: NotRequired[Reason]
    checkpoint: NotRequired[Hash]


class _End(Strict):
    record_id: Hash
    record_sha256: NotRequired[Hash]
    items_sha256: Hash
    reason: NotRequired[Reason]
    found: NotRequired[Literal[True]]


class _Stop(Strict):
    reason: NotRequired[Reason]


class _File(Strict):
    reason: NotRequired[Reason]
    kept: NotRequired[KeptName]


class _Line(Strict):
    event: str
    cell: CellName | None
    time: Moment
    host: Host
    detail: dict[str, Any]
    n: int
    previous: Hash
    hash: Hash


_PLAN = TypeAdapter(StoredPlan)
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


def audit_plan(
    name: str, plan: Mapping[str, Any], file: str = PLAN_NAME, where: str = ""
) -> Iterator[Finding]:
    """A plan has the fields of one, no other, and each follows from its conditions.

    Args:
        name: Name of the entry, for findings.
        file, where: File and line that state the plan.
    """
    try:
        _PLAN.validate_json(canonical_json(plan), strict=True)
    except PydanticError as error:
        yield from _misfits(name, file, where, error)
        return
    except ValueError as error:
        yield Finding(name, file, where, "a number that JSON has not", "numbers", str(error))
        return
    for field, (stored, expected) in _facts(plan).items():
        if stored != expected:
            yield Finding(name, file, where + field, stored, expected, "by its other fields")


def _audit_declared(
    name: str, where: str, plan: Mapping[str, Any], stored: Mapping[str, Any]
) -> Iterator[Finding]:
    """A plan that a ledger declared is sound and belongs to the folder of the stored one."""
    problems = [*audit_plan(name, plan, LEDGER_NAME, where)]
    yield from problems
    if problems:
        return
    for field in SHARED:
        if plan[field] != stored.get(field):
            expected = stored.get(field)
            yield Finding(name, LEDGER_NAME, where + field, plan[field], expected, PLAN_NAME)
    for group, fields in NAMED.items():
        beside = stored.get(group)
        for field in fields:
            expected = beside.get(field) if isinstance(beside, dict) else None
            if plan[group][field] != expected:
                label = f"{where}{group}.{field}"
                yield Finding(name, LEDGER_NAME, label, plan[group][field], expected, PLAN_NAME)


def _home_of(plan: Mapping[str, Any]) -> str:
    """``<model>@<revision>/<recipe>``, with which a ledger begins the name of every cell."""
    model, recipe = plan.get("model"), plan.get("recipe")
    if not isinstance(model, dict) or not isinstance(recipe, dict):
        return ""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "--", str(model.get("name")))
    return f"{slug}@{model.get('revision8')}/{recipe.get('name')}"


def _facts(plan: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What a plan says and what it must say, by field."""
    control, tasks = plan["control"], plan["tasks"]
    config, revision = plan["recipe"]["config"], plan["model"]["revision8"]
    most = max(plan["arms"].values(), default=0)
    seeds = {task: _seeds(plan["protocol"], task, most) for task in tasks}
    return {
        "fingerprint": (plan["fingerprint"], fingerprint(control)),
        "protocol": (plan["protocol"], control.get("protocol")),
        "track": (plan["track"], control.get("track")),
        "track_version": (plan["track_version"], control.get("track_version")),
        "board_tasks": (sorted(plan["board_tasks"]), board_tasks(control)),
        "tasks": (len(tasks), len({*tasks} & {*plan["board_tasks"]})),
        "seeds": (plan["seeds"], seeds),
        "model.revision8": (_HEX.fullmatch(revision) is not None, True),
        "recipe.config": (len(canonical_json(leaves(config))) <= MAX_CONFIG, True),
    }


def _seeds(protocol: int, task: str, count: int) -> list[dict[str, int]]:
    return [{"index": i, "value": seed_value(protocol, task, i)} for i in range(count)]


def audit_ledger(
    name: str, entries: list[dict[str, Any]], plan: Mapping[str, Any]
) -> Iterator[Finding]:
    """Every line is an event as a run writes it, at a time that is real, past and in order.

    Args:
        name: Name of the entry, for findings.
        entries: Lines of the ledger, whose chain holds.
        plan: The plan that stands beside it.
    """
    before, now = "", time.time() + SKEW_S
    cells, home = _cells(entries), _home_of(plan)
    for number, entry in enumerate(entries, start=1):
        where, detail = f"line {number}: ", entry["detail"]
        problems = list(_check_form(name, where, _LINE, entry))
        if entry["event"] == "plan":
            problems += _audit_declared(name, f"{where}detail.", detail, plan)
        else:
            form = _DETAILS[entry["event"]]
            problems += _check_form(name, f"{where}detail.", form, detail)
            problems += _check_cell(name, where, entry, cells, home)
        yield from problems
        if not problems:
            yield from _check_moment(name, where, entry["time"], before, now)
            before = max(before, entry["time"])


def _cells(entries: list[dict[str, Any]]) -> set[str]:
    """``task/arm/seed-00`` of every cell that a plan of the ledger declares."""
    cells = set()
    for plan in (entry["detail"] for entry in entries if entry["event"] == "plan"):
        for task in plan.get("tasks", ()):
            for arm, count in plan.get("arms", {}).items():
                cells |= {f"{task}/{arm}/seed-{index:02d}" for index in range(count)}
    return cells


def _check_cell(
    name: str, where: str, entry: Mapping[str, Any], cells: set[str], home: str
) -> Iterator[Finding]:
    """An event is of a cell that was planned, or of a file that the folder keeps."""
    cell, event = str(entry["cell"]), entry["event"]
    above, _, last = cell.rpartition("/")
    if event == "rebuilt":
        beside = cell in KEPT or START.fullmatch(cell) is not None
        fits, expected = beside or (above in cells and last in DERIVED), "a file of a run"
    elif event == "discarded" and cell in KEPT:
        return
    else:
        fits, expected = cell in {f"{home}/{one}" for one in cells}, f"a planned cell of {home}"
    if not fits:
        yield Finding(name, LEDGER_NAME, f"{where}cell", cell, expected)


def _check_form(name: str, where: str, form: TypeAdapter[Any], value: Any) -> Iterator[Finding]:
    try:
        form.validate_python(value)
    except PydanticError as error:
        yield from _misfits(name, LEDGER_NAME, where, error)


def _misfits(name: str, file: str, where: str, error: PydanticError) -> Iterator[Finding]:
    for fault in faults(error):
        yield Finding(name, file, where + fault.field, fault.given, fault.said)


def _check_moment(name: str, where: str, stated: str, before: str, now: float) -> Iterator[Finding]:
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
