"""What is damaged or gone in a run folder and follows from other files is made again from them.

The plan follows from the ledger; ``curve.csv``, ``config.toml`` and ``env.json`` of a run from its
record, and they are written only where they get the digest that the record states. A ledger
follows from nothing: what can be read of it is kept, and the new one says that it was begun anew.
What no file can give back is refused by whoever reads it.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import (
    LEDGER_NAME,
    Event,
    declarations,
    histories,
    plan_hash,
    salvaged,
    sound_lines,
    stored_plan,
    subject_of,
)
from crlbench.contract.record_files import read_record
from crlbench.contract.records import BEYOND, CURVE_COLUMNS, Cell, CurvePoint, RunRecord
from crlbench.disk.hashing import canonical_json, sha256_bytes, sha256_file
from crlbench.disk.names import ITEMS, PLAN_NAME, RECORD_NAME
from crlbench.disk.toml import dump_toml
from crlbench.errors import ValidationError
from crlbench.run import environment
from crlbench.run.ledger import Ledger, head_of, stated_head, write_head
from crlbench.run.plan import Plan, check_folder, end_of
from crlbench.run.store import explained, read_json, write_bytes, write_json

_DECIDED = (
    "model",
    "recipe",
    "task",
    "arm",
    "seed_index",
    "track",
    "track_version",
    "division",
    "partial",
    "fingerprint",
    "plan_hash",
    "conditions",
    "recipe_config",
)


def curve_csv(curve: Sequence[CurvePoint]) -> bytes:
    """The curve as a table for spreadsheets."""
    text = io.StringIO()
    more = [name for name in BEYOND if any(getattr(p, name) is not None for p in curve)]
    columns = [*CURVE_COLUMNS, *more]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(point.model_dump() for point in curve)
    return text.getvalue().encode()


def config_toml(cell: Cell) -> bytes:
    """Everything that was decided for this run, to read and to diff."""
    data = cell.model_dump(mode="json")
    return dump_toml({name: data[name] for name in _DECIDED}).encode()


def environment_json(machine: Mapping[str, Any]) -> bytes:
    """What a run was made on, with all installed packages."""
    content = dict(machine) | {"packages": environment.packages()}
    return (canonical_json(content) + "\n").encode()


Events = list[tuple[Event, str | None, dict[str, Any]]]


def mend(plan: Plan) -> list[str]:
    """Mend the folder of a plan, whose lock must be held; a sentence for each file that was."""
    sentences = [*_mend_ledger(plan)]
    ledger = Ledger(plan.folder / LEDGER_NAME)
    if write_head(ledger):
        sentences.append(f"{head_of(ledger.path)} was damaged and written again from the ledger")
    sentences += _mend_plan(plan, ledger)
    for cell in plan.cells:
        sentences += _mend_run(plan, cell, ledger)
    return sentences


# -- the ledger --------------------------------------------------------------------------------


def _mend_ledger(plan: Plan) -> Iterator[str]:
    path = plan.folder / LEDGER_NAME
    if path.exists():
        try:
            missing = _without_attempt(plan, Ledger(path))
            if not missing:
                return
            reason = f"it knows no attempt of {missing}, and its head file is gone or damaged"
        except ValidationError as error:
            reason = str(error).removeprefix(f"{path}:").split(". ")[0].strip()
        if not path.is_file():
            return
        content = path.read_bytes()
        copy = _set_aside(path, content)
        detail = {"reason": reason[:200], "kept": copy.name}
        sound, plans = sound_lines(content), salvaged(content)
        yield (
            f"WARNING: {path} was damaged ({reason}). It is kept as {copy.name}, and a new one is "
            "begun from what can be read, which says so: these runs never rank unless you restore "
            "the old one."
        )
    elif any(_traces(plan)):
        reason = "the ledger was gone beside " + " and ".join(_traces(plan))
        detail, sound, plans = {"reason": reason}, [], []
        yield (
            f"WARNING: {path}: {reason}. A new one is begun from them, which says so: these runs "
            "never rank unless you restore the old one."
        )
    else:
        return
    events: Events = [("rebuilt", LEDGER_NAME, detail)]
    hashes = {plan_line.plan_hash for plan_line in declarations(sound)}
    for body in [*plans, *_sound_plan(plan)]:
        if body["plan_hash"] not in hashes:
            hashes.add(body["plan_hash"])
            events.append(("plan", None, body))
    events += _ends(plan, {name for name, history in histories(sound).items() if history.ended})
    Ledger.begin(path, sound, events)


def _without_attempt(plan: Plan, ledger: Ledger) -> str:
    """The records of which a ledger knows no attempt, where nothing states how it ends; else "".

    Where that is stated the ledger is whole, and they were made elsewhere.
    """
    if stated_head(head_of(ledger.path)) is not None:
        return ""
    cells = histories(ledger.entries)
    names = ("/".join(path.parent.parts[-5:]) for path in _records(plan))
    missing = [name for name in names if name not in cells]
    return "" if not missing else missing[0] if len(missing) == 1 else f"{len(missing)} records"


def _traces(plan: Plan) -> Iterator[str]:
    """What stands in a folder only where a ledger stood as well."""
    if head_of(plan.folder / LEDGER_NAME).exists():
        yield head_of(plan.folder / LEDGER_NAME).name
    if plan.path.exists():
        yield PLAN_NAME
    if count := sum(1 for _ in _records(plan)):
        yield "1 record" if count == 1 else f"{count} records"


def _records(plan: Plan) -> list[Path]:
    return sorted(plan.folder.glob(f"*/*/seed-*/{RECORD_NAME}"))


def _ends(plan: Plan, cells: set[str]) -> Iterator[tuple[Event, str | None, dict[str, Any]]]:
    """How the runs ended of which a record stands and a new ledger knows nothing."""
    for path in _records(plan):
        name = "/".join(path.parent.parts[-5:])
        try:
            record = read_record(path, own=True)
        except ValidationError:
            continue  # refused by name when the runs are read
        if name not in cells:
            yield end_of(record), name, identity(path, record) | {"found": True}


def identity(path: Path, record: RunRecord) -> dict[str, Any]:
    """What ties the end of a run to its record and its item vectors.

    Another record cannot stand in its place, and a repetition shows whether it is another draw.
    """
    items = record.files.get(ITEMS)
    digests = {"record_id": record.record_id, "record_sha256": sha256_file(path)}
    return digests | ({} if items is None else {"items_sha256": items.sha256})


# -- the plan ----------------------------------------------------------------------------------


def _mend_plan(plan: Plan, ledger: Ledger) -> Iterator[str]:
    """Write the plan again that the ledger declared, where another thing or none stands there."""
    ledger_plan = stored_plan(ledger.entries)
    if not plan.path.exists():
        if ledger_plan is not None:
            write_json(plan.path, ledger_plan)
        return
    reason = _plan_fault(plan, ledger_plan)
    if reason is None:
        return
    copy = _move_aside(
        plan, ledger, "discarded" if ledger_plan is None else "rebuilt", reason=reason
    )
    if ledger_plan is None:
        yield f"{plan.path} was damaged ({reason}) and is kept as {copy.name}"
        return
    write_json(plan.path, ledger_plan)
    yield (
        f"{plan.path} was damaged ({reason}) and written again from the ledger; it is kept as "
        f"{copy.name}"
    )


def _plan_fault(plan: Plan, ledger_plan: dict[str, Any] | None) -> str | None:
    """Why the stored plan is not one of this folder; None where it may be."""
    try:
        body = read_json(plan.path)
        if body["plan_hash"] != plan_hash(body):
            return "its content does not match its own hash"
        foreign = ledger_plan is not None and subject_of(body) != subject_of(ledger_plan)
    except (ValidationError, AttributeError, KeyError, TypeError):
        return "it is no plan"
    return "it is of another model or recipe than the ledger says" if foreign else None


def _sound_plan(plan: Plan) -> list[dict[str, Any]]:
    """The plan on the disk, where it is sound and of the same model and recipe."""
    try:
        check_folder(plan)
    except ValidationError:
        return []
    return [read_json(plan.path)] if plan.path.exists() else []


def set_plan_aside(plan: Plan, ledger: Ledger) -> None:
    """Rename a stored plan that is of another entry or recipe."""
    try:
        check_folder(plan)
    except ValidationError:
        _move_aside(plan, ledger, "discarded")


def _move_aside(plan: Plan, ledger: Ledger, event: Event, **detail: str) -> Path:
    """Rename a stored plan that is of no use; the ledger says so first."""
    copy = _aside(plan.path)
    ledger.append(event, PLAN_NAME, **detail, kept=copy.name)
    with explained(copy):
        os.replace(plan.path, copy)
    return copy


# -- what follows from a record ------------------------------------------------------------------


def _mend_run(plan: Plan, cell: Cell, ledger: Ledger) -> Iterator[str]:
    folder = Path(cell.folder)
    if not (folder / RECORD_NAME).is_file():
        return
    try:
        record = read_record(folder / RECORD_NAME, own=True)
    except ValidationError:
        return  # refused by name when the runs are read
    for name, candidates in _derivations(plan, cell, record).items():
        digest, path = record.files.get(name), folder / name
        if digest is None or path.is_file() and sha256_file(path) == digest.sha256:
            continue
        state = "damaged" if path.exists() else "gone"
        content = next((c for c in candidates() if sha256_bytes(c) == digest.sha256), None)
        if content is None or path.is_dir():
            continue
        where = path.relative_to(plan.folder).as_posix()
        ledger.append("rebuilt", where, reason=f"it was {state}")
        write_bytes(path, content)
        yield f"{path} was {state}, and written again from {RECORD_NAME}"


def _derivations(
    plan: Plan, cell: Cell, record: RunRecord
) -> dict[str, Callable[[], Iterable[bytes]]]:
    """What each file may have held; one of another run of the folder may be the same."""
    own_cell = cell.model_copy(update={"plan_hash": record.plan_hash})
    return {
        "curve.csv": lambda: [curve_csv(record.curve)],
        "config.toml": lambda: [config_toml(own_cell)],
        "env.json": lambda: itertools.chain(
            [environment_json(record.environment)],
            (path.read_bytes() for path in plan.folder.glob("*/*/seed-*/env.json")),
        ),
    }


# -- what is kept --------------------------------------------------------------------------------


def _set_aside(path: Path, content: bytes) -> Path:
    """Keep a copy of a damaged file, once."""
    copies = path.parent.glob(f"{path.stem}.damaged-*{path.suffix}")
    same = (copy for copy in sorted(copies) if copy.read_bytes() == content)
    return next(same, None) or write_bytes(_aside(path), content)


def _aside(path: Path) -> Path:
    """The first free ``<name>.damaged-N``, beside a file that is of no use."""
    names = (path.with_name(f"{path.stem}.damaged-{n}{path.suffix}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())
