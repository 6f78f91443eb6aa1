"""What will run: the plan of a declaration, its hash, its folders, and which cells are missing.

A plan is declared before the first update and cited by every record, so that choosing seeds
or stopping early shows. It names one model, one recipe and one fingerprint; its cells are the
product of tasks, arms and a prefix of the seed indices. A finished cell is recognised by its
valid ``record.json``, so a plan may be started any number of times.

The machine and the way to use it (:class:`Execution`) stand in every cell and in no plan: equal
plans have equal hashes wherever they run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from crlbench.contract.arms import Arm, seeds_of
from crlbench.contract.conditions import PROTOCOL, Conditions, Track, fingerprint
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell, RunRecord
from crlbench.contract.stored import REDO_RUN, damaged
from crlbench.disk import line_ends
from crlbench.disk.hashing import canonical_json, digest, sha256_file
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.run.environment import source_digest
from crlbench.run.store import read_json, write_json
from crlbench.seeding import seed_value

LOG_NAME = "attempt.log"
ARTEFACTS = "artefacts"
"""Folder beside the recipes of a model: what stages of chains left."""

_REWRITE_PLAN = "Repeat the command that made these runs: it writes the plan of the ledger again."

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
    """Name that the catalogue resolves: an entry, a local folder or ``org/name@revision``."""
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
    plan_file = read_json(plan.path, _REWRITE_PLAN)
    try:
        body = {key: value for key, value in plan_file.items() if key != "plan_hash"}
        sound = plan_file["plan_hash"] == digest(body)
        same = {part: plan_file[part] == plan.body[part] for part in ("model", "recipe")}
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


def end_of(record: RunRecord) -> Literal["done", "failed"]:
    """How a run with a record ended, as a ledger and a launcher call it."""
    return "failed" if record.status.state == "failed" else "done"


def check_record(cell: Cell) -> RunRecord:
    """The record of a finished cell, with its hash, its identity and its files checked.

    Raises:
        ValidationError: names the file that is damaged, missing or of another run.
    """
    folder = Path(cell.folder)
    record = read_record(folder / RECORD_NAME, own=True)
    identity = [record.fingerprint.hash, record.algo.config, record.task.name, record.arm]
    plan_identity = [cell.fingerprint, cell.recipe_config, cell.task, cell.arm]
    if identity != plan_identity or record.seed.index != cell.seed_index:
        why = f"it is the record of another run than {label(cell)}"
        raise damaged(folder / RECORD_NAME, why)
    _check_hardware(cell, record)
    for name, file_digest in record.files.items():
        if not (folder / name).is_file():
            raise damaged(folder / name, f"missing, though {RECORD_NAME} names it")
        if sha256_file(folder / name) != file_digest.sha256:
            repair = line_ends.rewritten_file(folder / name, file_digest.sha256) or REDO_RUN
            raise damaged(folder / name, f"its sha256 is not the one in {RECORD_NAME}", repair)
    return record


def _check_hardware(cell: Cell, record: RunRecord) -> None:
    """Refuse to count a run on a processor as one on an accelerator, or the reverse."""
    hardware = record.environment.get("hardware_class")
    if hardware is not None and (hardware == "cpu") != (cell.device == "cpu"):
        raise ValidationError(
            f"{Path(cell.folder) / RECORD_NAME} was made on another class of hardware ({hardware}) "
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
        cell for number, cell in enumerate(cells) if (number + number // turn) % count == index - 1
    ]


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe as a plan names it."""

    name: str
    config: Mapping[str, Any]
    """All of it, as plain data."""
    file: Path | None = None
    """The person's own Python file that it comes from."""

    @property
    def stated(self) -> dict[str, Any]:
        """Its part of the plan, with the digest of its file: two texts of a file never mix."""
        made_by = {} if self.file is None else {"file_sha256": sha256_file(self.file)}
        return {"name": self.name, "config": json.loads(canonical_json(self.config))} | made_by


@dataclass(frozen=True)
class Execution:
    """Where the cells run, and how; the fields of a :class:`~crlbench.contract.records.Cell`."""

    catalog: Sequence[str] = ()
    """Extra catalogue folders, for the workers."""
    device: str = "cpu"
    devices: int = 1
    """How many train a cell together, on each machine."""
    nodes: int = 1
    """Machines that train a cell together."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How they hold the weights."""
    loggers: Sequence[str] = ("tensorboard",)
    answers: str | None = None
    """File of a person's own answers, which the control of the board names by its digest."""

    @property
    def of_cell(self) -> dict[str, Any]:
        """The same as fields of a cell."""
        return vars(self) | {"catalog": tuple(self.catalog), "loggers": tuple(self.loggers)}


@dataclass(frozen=True)
class Declaration:
    """One model under one recipe on a board: what is to run."""

    board: Board
    """Conditions and tasks shared by everything compared."""
    contender: Contender
    recipe: NamedRecipe
    tasks: Sequence[str]
    """Tasks to train on, a part of ``board.tasks``."""
    arms: Sequence[Arm]
    """``real`` and, if wanted, control arms (first three seed indices only)."""
    seeds: int
    """Number n of seed indices, always the prefix 0..n-1."""
    out: Path | str
    """Folder that holds all runs."""
    execution: Execution = Execution()

    def plan(self) -> Plan:
        """The plan with all its cells; nothing is written."""
        body = self._of_board | self._of_runs
        return Plan(body, self._home / self.recipe.name, tuple(self._cells(body)))

    @cached_property
    def _counts(self) -> dict[Arm, int]:
        """Number of seeds by arm."""
        return {arm: seeds_of(arm, self.seeds) for arm in self.arms}

    @property
    def _indices(self) -> range:
        return range(max(self._counts.values()))

    @property
    def _home(self) -> Path:
        """The folder of the model on its board."""
        return Path(self.out) / self.board.folder / self.contender.folder

    @property
    def _of_board(self) -> dict[str, Any]:
        """The part of the body that all plans on the board share."""
        board = self.board
        return {
            "schema_version": 1,
            "protocol": PROTOCOL,
            "track": board.track.id,
            "track_version": board.track.version,
            "division": board.division,
            "partial": board.partial,
            "fingerprint": board.fingerprint,
            "control": json.loads(canonical_json(board.control)),
            "board_tasks": list(board.tasks),
        }

    @property
    def _of_runs(self) -> dict[str, Any]:
        """The part of the body that says what is trained, on what and how often."""
        return {
            "model": self.contender.stated,
            "recipe": self.recipe.stated,
            "tasks": list(self.tasks),
            "arms": self._counts,
            "seeds": {
                task: [{"index": i, "value": seed_value(PROTOCOL, task, i)} for i in self._indices]
                for task in self.tasks
            },
        }

    def _cells(self, body: dict[str, Any]) -> Iterator[Cell]:
        """By seed, arm and task: whoever stops early has all tasks at the same seeds."""
        shared = self._shared(body)
        for index in self._indices:
            for arm, count in self._counts.items():
                for task in self.tasks if index < count else ():
                    place = self._home / self.recipe.name / task / arm / f"seed-{index:02d}"
                    yield Cell(**shared, task=task, arm=arm, seed_index=index, folder=str(place))

    def _shared(self, body: dict[str, Any]) -> dict[str, Any]:
        """The fields that all cells have alike: what the plan says, and how they run."""
        on_board = ("track", "track_version", "division", "partial", "fingerprint", "control")
        recipe, file = body["recipe"], self.recipe.file
        start = self._home / "start" / start_key(self.contender, self.execution.device)
        return {
            **{name: body[name] for name in on_board},
            "plan_hash": digest(body),
            "tasks": self.board.tasks,
            "conditions": self.board.conditions.model_dump(mode="json"),
            "model": self.contender.name,
            "entry_sha256": self.contender.entry_sha256,
            "start_folder": str(start),
            "recipe": recipe["name"],
            "recipe_config": recipe["config"],
            "recipe_file": None if file is None else str(file),
            "recipe_sha256": recipe.get("file_sha256"),
            **self.execution.of_cell,
            **({"artefacts": str(self._home / ARTEFACTS)} if "stages" in recipe["config"] else {}),
        }


def start_key(contender: Contender, device: str) -> str:
    """Names the start scores of a model beside its runs.

    The folder above says the weights, the tasks and the conditions; what else a score depends on
    is the rest of the entry (its frame, its end tokens), the code, and the kind of device.
    """
    made_by = [contender.entry_sha256, source_digest(), device]
    return digest(made_by)[:12]
