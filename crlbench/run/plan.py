"""What will run: the plan, its hash, its folders, and which of its cells are missing.

A plan is declared before the first update and cited by every record, so that choosing seeds
or stopping early shows. It names one model, one recipe and one fingerprint; its cells are the
product of tasks, arms and a prefix of the seed indices. A finished cell is recognised by its
valid ``record.json``, so a plan may be started any number of times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crlbench.contract.conditions import Conditions, Track, fingerprint
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell, RunRecord
from crlbench.contract.stored import REDO_RUN, damaged
from crlbench.disk import line_ends
from crlbench.disk.hashing import digest
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.run.store import file_digests, read_json, write_json

LOG_NAME = "attempt.log"

_REWRITE_PLAN = "Repeat the command that made these runs: it writes the plan of the ledger again."

Arm = Literal["real", "placebo"]
State = Literal["done", "started", "absent"]


@dataclass(frozen=True)
class Board:
    """What all runs of a comparison share: a track's conditions, possibly changed."""

    track: Track
    conditions: Conditions
    tasks: tuple[str, ...]
    control: dict[str, Any]
    division: Literal["closed", "open"]
    partial: bool = False

    @property
    def fingerprint(self) -> str:
        """The 12 hexadecimal digits that name the board."""
        return fingerprint(self.control)

    @property
    def folder(self) -> str:
        """``<track>-<fp12>``."""
        return f"{self.track.id}-{self.fingerprint}"


@dataclass(frozen=True)
class Contender:
    """A model as a plan names it."""

    name: str
    """As the catalogue resolves it: entry name, local folder or ``org/name@revision``."""
    slug: str
    """Short name for folders and tables."""
    revision8: str
    """First 8 hex digits of the revision, or of the weights' digest."""
    entry_sha256: str

    @property
    def stated(self) -> dict[str, str]:
        """Its part of the plan."""
        return {
            "name": self.slug,
            "revision8": self.revision8,
            "entry_sha256": self.entry_sha256,
        }

    @property
    def folder(self) -> str:
        """``<model>@<rev8>``, safe as a folder name."""
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '--', self.slug)}@{self.revision8}"


@dataclass(frozen=True)
class Plan:
    """One model x recipe on a board: its canonical body, its folder and all its cells."""

    body: dict[str, Any]
    folder: Path
    cells: tuple[Cell, ...]

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical body."""
        return digest(self.body)

    @property
    def path(self) -> Path:
        """Where the plan is written before the first update."""
        return self.folder / PLAN_NAME

    @property
    def stored(self) -> dict[str, Any]:
        """The body with its hash, as the disk and the ledger have it."""
        return self.body | {"plan_hash": self.hash}

    def write(self) -> None:
        """Store ``plan.json``."""
        write_json(self.path, self.stored)


def label(cell: Cell) -> str:
    """``model@rev8/recipe/task/arm/seed-03``, for people and ledgers."""
    return "/".join(Path(cell.folder).parts[-5:])


def check_folder(plan: Plan) -> None:
    """Refuse a run folder whose stored plan is of another subject or recipe.

    Raises:
        ValidationError: the stored plan is damaged, or names another model entry or another
            configuration of the recipe: mixing them would overwrite results silently.
    """
    if not plan.path.exists():
        return
    stored = read_json(plan.path, _REWRITE_PLAN)
    try:
        body = {key: value for key, value in stored.items() if key != "plan_hash"}
        sound = stored["plan_hash"] == digest(body)
        same = {part: stored[part] == plan.body[part] for part in ("model", "recipe")}
    except (AttributeError, KeyError, TypeError):
        sound, same = False, {}
    if not sound:
        raise damaged(plan.path, "its content does not match its own hash", _REWRITE_PLAN)
    for part, equal in same.items():
        if not equal:
            raise ValidationError(
                f"{plan.folder} holds runs of another version of this {part} "
                f"({plan.body[part]['name']}): the entry or its configuration has changed since. "
                "Choose another folder with --out, or discard those runs with --fresh."
            )


def state(cell: Cell) -> State:
    """Whether a cell is done, was started, or is absent.

    Raises:
        ValidationError: ``record.json`` or a file it names is damaged or of another run.
    """
    if stored_record(cell) is not None:
        return "done"
    return "started" if (Path(cell.folder) / "ckpt" / "last.ckpt").exists() else "absent"


def stored_record(cell: Cell) -> RunRecord | None:
    """The record of a cell, checked as :func:`check_record` does; None where there is none.

    Raises:
        ValidationError: as :func:`check_record`.
    """
    return check_record(cell) if (Path(cell.folder) / RECORD_NAME).exists() else None


def check_record(cell: Cell) -> RunRecord:
    """The record of a finished cell, with its hash, its identity and its files checked.

    Raises:
        ValidationError: names the file that is damaged, missing or of another run.
    """
    folder = Path(cell.folder)
    record = read_record(folder / RECORD_NAME, own=True)
    found = [record.fingerprint.hash, record.algo.config, record.task.name, record.arm]
    wanted = [cell.fingerprint, cell.recipe_config, cell.task, cell.arm]
    if found != wanted or record.seed.index != cell.seed_index:
        why = f"it is the record of another run than {label(cell)}"
        raise damaged(folder / RECORD_NAME, why)
    _check_hardware(cell, record)
    for name, stored in record.files.items():
        if not (folder / name).is_file():
            raise damaged(folder / name, f"missing, though {RECORD_NAME} names it")
        if file_digests(folder, [name])[name]["sha256"] != stored.sha256:
            repair = line_ends.rewritten_file(folder / name, stored.sha256) or REDO_RUN
            raise damaged(folder / name, f"its sha256 is not the one in {RECORD_NAME}", repair)
    return record


def _check_hardware(cell: Cell, record: RunRecord) -> None:
    """Refuse to count a run on a processor as one on an accelerator, or the reverse."""
    stored = record.environment.get("hardware_class")
    if stored is not None and (stored == "cpu") != (cell.device == "cpu"):
        raise ValidationError(
            f"{Path(cell.folder) / RECORD_NAME} was made on another class of hardware ({stored}) "
            f"than --device {cell.device}, and runs on both never mix. Use another --out, or the "
            "--device it was made on."
        )


def of_shard(cells: Sequence[Cell], shard: tuple[int, int] | None) -> list[Cell]:
    """The cells of shard (i, N), 1 <= i <= N, so that shards are alike.

    Every N-th cell; tasks follow one another in turn, so after each common multiple of N and
    their number the turn moves on by one. More seeds never move a cell to another shard.
    """
    if shard is None:
        return list(cells)
    index, count = shard
    turn = math.lcm(count, len({cell.task for cell in cells}))
    return [
        cell
        for number, cell in enumerate(cells)
        if (number + number // turn) % count == index - 1
    ]
