"""What one plan is asked for, and the plan and the cells that follow from it.

The machine and the way to use it (:class:`Execution`) stand in every cell and in no plan: equal
plans have equal hashes wherever they run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from crlbench.contract.attempts import PLACEBO_SEEDS
from crlbench.contract.conditions import PROTOCOL
from crlbench.contract.records import Cell
from crlbench.disk.hashing import canonical_json, digest, sha256_file
from crlbench.run.environment import source_digest
from crlbench.run.plan import Arm, Board, Contender, Plan
from crlbench.seeding import seed_value


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
    """To train on, a part of ``board.tasks``."""
    arms: Sequence[Arm]
    """``real`` and, if wanted, ``placebo`` (first three seed indices only)."""
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
        most: dict[Arm, int] = {"real": self.seeds, "placebo": min(self.seeds, PLACEBO_SEEDS)}
        return {arm: most[arm] for arm in self.arms}

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
            "seeds": {task: [_seed(task, index) for index in self._indices] for task in self.tasks},
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
        }


def start_key(contender: Contender, device: str) -> str:
    """Names the start scores of a model beside its runs.

    The folder above says the weights, the tasks and the conditions; what else a score depends on
    is the rest of the entry (its frame, its end tokens), the code, and the kind of device.
    """
    made_by = [contender.entry_sha256, source_digest(), device]
    return digest(made_by)[:12]


def _seed(task: str, index: int) -> dict[str, int]:
    return {"index": index, "value": seed_value(PROTOCOL, task, index)}
