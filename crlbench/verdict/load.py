"""Load stored runs from a folder; nothing is believed without a check.

:func:`load_runs` takes a single cell folder, a run folder (one model and recipe) or a board
folder (several models) and returns every run below it, packed ones (``runs.tar.zst``) too. Each
file is compared with the digest that its record states.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from crlbench.contract.attempts import plan_hash
from crlbench.contract.conditions import fingerprint
from crlbench.contract.record_files import read_record
from crlbench.contract.records import FileDigest, Fingerprint, RunRecord
from crlbench.contract.stored import check_file, exists, json_object
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import ITEMS, PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED, members
from crlbench.errors import UsageError, ValidationError
from crlbench.verdict.runs import Run

ALIKE = ("crlbench", "protocol", "subject", "task", "algo", "environment")
"""Parts that records in order have in common, and that are kept once."""

Files = Literal["all", "used"]
"""Which files are compared with their digests: all of a run at once, or each when it is read."""


@dataclass(frozen=True)
class Runs:
    """Every run below a folder, ordered by model, recipe, arm, task and seed."""

    folder: Path
    runs: tuple[Run, ...]
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Content of each ``plan.json`` by its folder, relative to ``folder``."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def plan_of(self, run: Run) -> dict[str, Any]:
        """The plan above a run; empty where the folder was loaded without one."""
        for parent in run.folder.relative_to(self.folder).parents:
            if parent.as_posix() in self.plans:
                return self.plans[parent.as_posix()]
        return {}


def load_runs(folder: str | Path, files: Files = "all") -> Runs:
    """Every run below ``folder``, checked; those of several boards too.

    Args:
        files: ``all`` compares every file that a record lists with its digest at once; ``used``
            leaves those alone that nothing reads, weights above all.

    Raises:
        UsageError: the folder does not exist or holds no run.
        ValidationError: a file is malformed or differs from its digest (file and field named).
        EnvironmentUnfit: a file may not be read.
    """
    root = Path(folder)
    if root.is_file() and root.name == RECORD_NAME:
        root = root.parent
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}. Give the folder of a run (below runs/).")
    records, plans = _find_files(root)
    if not records:
        raise UsageError(
            f"{root}: no {RECORD_NAME} below it, so no run has finished there yet. "
            "Give the folder of a run (below runs/), or run `crlbench evaluate` first."
        )
    fingerprints: dict[str, Fingerprint] = {}
    equal_parts: dict[str, Any] = {}
    with no_collection():
        loaded = [_load_run(path, files, fingerprints, equal_parts) for path in records]
    runs = tuple(sorted(loaded, key=lambda run: run.order))
    _refuse_duplicates(runs)
    bodies = {path.parent.relative_to(root).as_posix(): _read_plan(path) for path in plans}
    return Runs(root, runs, bodies)


def _find_files(root: Path) -> tuple[list[Path], list[Path]]:
    """The records and the plans below a folder, in order; links to folders are not followed."""
    records, plans = [], []
    for folder, _, names in os.walk(root):
        records += [Path(folder, RECORD_NAME)] if RECORD_NAME in names else []
        records += packed_records(Path(folder, PACKED)) if PACKED in names else []
        plans += [Path(folder, PLAN_NAME)] if PLAN_NAME in names else []
    return sorted(records), sorted(plans)


def packed_records(archive: Path) -> list[Path]:
    """Paths of the records in a packed result, as :func:`~crlbench.contract.stored.read_bytes`
    takes them."""
    return [archive / name for name in members(archive) if name.endswith(f"/{RECORD_NAME}")]


@contextmanager
def no_collection() -> Iterator[None]:
    """Spare the garbage collector thousands of records that all stay: it would walk them anew
    whenever their number has grown by a quarter."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_cell(folder: Path) -> Run | None:
    """The one run stored in ``folder``, checked; None where it has not finished.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`load_runs`.
    """
    path = folder / RECORD_NAME
    return _load_run(path, "all", {}, {}) if path.is_file() else None


def _load_run(
    path: Path, files: Files, fingerprints: dict[str, Fingerprint], equal_parts: dict[str, Any]
) -> Run:
    run = Run(_sharing(read_record(path), path, fingerprints, equal_parts), path.parent)
    _check_files(run, files)
    return run


def _sharing(
    record: RunRecord, path: Path, fingerprints: dict[str, Fingerprint], equal_parts: dict[str, Any]
) -> RunRecord:
    """The record with the one copy of its conditions, which have the hash that it states.

    Args:
        equal_parts: parts of the record before, which most records of an entry share.
    """
    run_print = record.fingerprint
    text = canonical_json([run_print.hash, run_print.leaves])
    if text not in fingerprints:
        if run_print.hash != fingerprint(run_print.leaves):
            raise ValidationError(
                f"{path}: fingerprint.hash: {run_print.hash!r:.40} does not belong to the leaves, "
                f"whose hash is {fingerprint(run_print.leaves)}"
            )
        fingerprints[text] = run_print
    parts: dict[str, Any] = {"fingerprint": fingerprints[text]}
    for name in ALIKE:
        part = getattr(record, name)
        if equal_parts.get(name) == part:
            parts[name] = equal_parts[name]
        else:
            equal_parts[name] = part
    return _slim(record.model_copy(update=parts))


def _slim(record: RunRecord) -> RunRecord:
    """The same, where parts that were given whole share the note of which fields were given."""
    for part in (*record.curve, *record.splits.values(), *record.files.values()):
        whole = _fields(type(part))
        if part.model_fields_set == whole:
            object.__setattr__(part, "__pydantic_fields_set__", whole)
    return record


@lru_cache
def _fields(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)


def _check_files(run: Run, files: Files) -> None:
    """The item vectors must be there; a copied result may leave other files behind."""
    record_path = run.folder / RECORD_NAME
    if ITEMS not in run.record.files:
        raise ValidationError(f"{record_path}: files: {ITEMS} is not listed")
    for name, file_digest in sorted(run.record.files.items()):
        if _leads_outside(run.folder, name):
            raise ValidationError(f"{record_path}: files: {name!r} points outside the folder")
        if files == "all" or name == ITEMS:
            _check_file(run.folder / name, file_digest, files)


def _leads_outside(folder: Path, name: str) -> bool:
    """Whether a name is no path below the folder, or passes a link on its way there."""
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
        return True
    above = name.split("/")[:-1]
    return any(os.path.islink(folder.joinpath(*above[: i + 1])) for i in range(len(above)))


def _check_file(path: Path, file_digest: FileDigest, files: Files) -> None:
    if not exists(path):
        if path.name == ITEMS:
            raise ValidationError(f"{path}: missing, but {RECORD_NAME}: files lists it")
    elif files == "all":
        check_file(path, file_digest)


def _read_plan(path: Path) -> dict[str, Any]:
    """A stored plan; one that states its hash must have it."""
    plan = json_object(path)
    if plan.get("plan_hash") not in (None, plan_hash(plan)):
        raise ValidationError(
            f"{path}: plan_hash: does not belong to the content; the plan was changed after it "
            "was declared"
        )
    return plan


def _refuse_duplicates(runs: tuple[Run, ...]) -> None:
    """Refuse a run that stands in two folders; under other conditions it is another run."""
    by_cell: dict[tuple[Any, ...], Run] = {}
    for second in runs:
        first = by_cell.setdefault((*second.order, second.record.fingerprint.hash), second)
        if first is not second:
            raise ValidationError(
                f"{second.folder / RECORD_NAME}: the same run ({second.name}) is also stored in "
                f"{first.folder}; keep one of the two"
            )
