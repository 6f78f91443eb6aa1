"""The checkpoint of an unfinished run, and the statement beside it that it is read back with.

``ckpt/last.json`` states the length and the SHA-256 of ``ckpt/last.ckpt``, and cites the line of
the ledger with which the attempt began that wrote it. It is replaced before the checkpoint is and
keeps the digest of the one that stands there, so that a kill between the two leaves a checkpoint
that is known. A run goes on from no other: one that is damaged, of another run or without a
statement is worth nothing, and the run begins again, which gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError

from crlbench.contract.attempts import LEDGER_NAME, attempt_hashes, read
from crlbench.contract.records import Cell, Sha256
from crlbench.disk.hashing import sha256_file
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.run.plan import label
from crlbench.run.store import write_json

FOLDER = "ckpt"
CHECKPOINT_NAME = "last.ckpt"
STATEMENT_NAME = "last.json"


class Worthless(Exception):  # noqa: N818  (the run begins again: nothing has failed)
    """A checkpoint that no run may go on from; says why, after its name."""


class Checkpoint(BaseModel):
    """A checkpoint as it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    iteration: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: Sha256


class Statement(BaseModel):
    """The content of :data:`STATEMENT_NAME`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    attempt: Sha256
    """The hash of the ledger's line with which the attempt began; zeros without a ledger."""
    checkpoints: Annotated[list[Checkpoint], Field(min_length=1, max_length=2)]
    """The one that is about to stand there, and the one that it replaces."""


def path_of(cell: Cell) -> Path:
    """Where the checkpoint of a cell stands."""
    return Path(cell.folder) / FOLDER / CHECKPOINT_NAME


def attempts_of(cell: Cell) -> tuple[str, ...]:
    """The hashes of the ledger's lines whose checkpoints a cell may go on from, oldest first."""
    return known_attempts(cell, read(Path(cell.folder).parents[2] / LEDGER_NAME))


def known_attempts(cell: Cell, entries: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """As :func:`attempts_of`, by the lines themselves."""
    return attempt_hashes(entries, label(cell)) or (GENESIS,)


def standing(path: Path, attempts: Iterable[str]) -> Checkpoint | None:
    """What is known of the checkpoint at ``path``; None where there is none.

    Raises:
        Worthless: it is not as it was written, or was not written by one of ``attempts``.
    """
    if not path.exists():
        return None
    statement = _read_statement(path)
    if statement.attempt not in attempts:
        raise Worthless(f"{path} belongs to no attempt that the ledger knows since the run began")
    size = path.stat().st_size
    candidates = [entry for entry in statement.checkpoints if entry.bytes == size]
    if not candidates:
        written = " or ".join(str(entry.bytes) for entry in statement.checkpoints)
        raise Worthless(f"{path} has {size} bytes, and {written} were written")
    digest = sha256_file(path)
    match = next((entry for entry in candidates if entry.sha256 == digest), None)
    if match is None:
        raise Worthless(f"{path} was changed since it was written (its sha256 is another)")
    return match


def _read_statement(path: Path) -> Statement:
    statement = path.with_name(STATEMENT_NAME)
    if not statement.exists():
        raise Worthless(f"{path} has no digest beside it ({STATEMENT_NAME})")
    try:
        return Statement.model_validate(json_value(read_bytes(statement, 2**16)))
    except (Malformed, PydanticError):
        raise Worthless(f"{statement} is damaged, so that {path} cannot be checked") from None


@dataclass
class Stating:
    """States every checkpoint of an attempt before it takes its place.

    Args:
        attempt: The hash of the ledger's line with which the attempt began.
        before: The checkpoint that stands there.
    """

    attempt: str
    before: Checkpoint | None = field(default=None)

    def __call__(self, temporary: Path, place: Path, iteration: int) -> None:
        """State the file ``temporary``, which is about to be renamed to ``place``."""
        checkpoint = Checkpoint(
            iteration=iteration, bytes=temporary.stat().st_size, sha256=sha256_file(temporary)
        )
        former = [] if self.before is None else [self.before]
        statement = Statement(attempt=self.attempt, checkpoints=[checkpoint, *former])
        write_json(place.with_name(STATEMENT_NAME), statement.model_dump())
        self.before = checkpoint
