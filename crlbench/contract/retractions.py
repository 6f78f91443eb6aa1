"""The public log of results that were taken back: ``leaderboard/retractions.jsonl``.

A result is never rewritten. A line of this log, linked to the line before it
(:mod:`crlbench.disk.linked_lines`), names the records that no longer count, the day, the reason
and the person. The entry stays readable and does not rank. For personal data the files of an entry
are removed, and the line stays: a tombstone, with the digest of what was there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from crlbench.base.explain import explain
from crlbench.disk.hashing import canonical_json
from crlbench.disk.line_ends import BOM, remedy
from crlbench.disk.linked_lines import MAX_BYTES, follows, parsed
from crlbench.disk.reading import read_bytes
from crlbench.errors import ValidationError

RETRACTIONS_NAME = "retractions.jsonl"
COMMAND = "crlbench leaderboard retract"
"""What writes a line."""
ENTRY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._+@=,:-]*(?:/[A-Za-z0-9][A-Za-z0-9._+@=,:-]*){2}$"
MAX_REASON = 500
LEADERBOARD_ABOVE = 3
"""Index among an entry's parents of the folder above the results, which has the retractions."""


def _a_day(text: str) -> str:
    """A day that the calendar has."""
    date.fromisoformat(text)
    return text


class Retraction(BaseModel):
    """One line: an entry, or some of its records, that no longer count."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    entry: str = Field(pattern=ENTRY_PATTERN, max_length=300)
    """``<board>/<model>@<revision>/<recipe>``, below the results."""
    records: Literal["all"] | Annotated[
        list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]], Field(min_length=1)
    ]
    """Ids of records; ``all`` means those added later too."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_a_day)]
    """UTC."""
    reason: str = Field(min_length=1, max_length=MAX_REASON)
    by: str = Field(min_length=1, max_length=100)
    """GitHub handle of the person who retracts."""
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the submitted files on that day; every new line has it."""
    removed: Literal["personal data"] | None = None
    """Why the files of the entry were removed; None where they stay."""
    n: int = Field(ge=0)
    previous: str
    hash: str

    @property
    def is_whole(self) -> bool:
        """Whether it takes back the entry, and all that is added later."""
        return self.records == "all"

    def sentence(self, records: int = 0) -> str:
        """The line for people: ``Retracted on 2026-11-22 by @someone (3 of 52 records): ...``.

        Args:
            records: how many records the entry has; unused where the line takes back all.
        """
        what = "" if self.records == "all" else f" ({len(self.records)} of {records} records)"
        if self.removed is not None:
            what = f", its files removed ({self.removed})"
        return f"Retracted on {self.date} by {self.by}{what}: {self.reason}"

    def stored(self) -> dict[str, Any]:
        """Its fields as the log has them: absent at their default."""
        return self.model_dump(mode="json", exclude_none=True)

    def line(self) -> bytes:
        """Its bytes in the log."""
        return f"{canonical_json(self.stored())}\n".encode()


def leaderboard_above(entry: Path) -> Path | None:
    """The folder that has the retractions of an entry; None where it stands too high for one.

    Args:
        entry: ``<board>/<model>/<recipe>`` below the results.
    """
    above = entry.absolute().parents
    return above[LEADERBOARD_ABOVE] if len(above) > LEADERBOARD_ABOVE else None


def read_retractions(folder: Path) -> tuple[Retraction, ...]:
    """The retractions of a leaderboard, oldest first; none where there is no file.

    Args:
        folder: that holds ``retractions.jsonl`` and the results: ``leaderboard``.

    Raises:
        ValidationError: a line is none, or does not follow from the line before it.
        EnvironmentUnfit: it may not be read.
    """
    path = folder / RETRACTIONS_NAME
    if not os.path.lexists(path):
        return ()
    return parse_retractions(read_bytes(path, MAX_BYTES, links=False), path)


def parse_retractions(content: bytes, path: Path) -> tuple[Retraction, ...]:
    """The retractions in a file's bytes; ``path`` is its name for messages.

    Raises:
        ValidationError: a line is none, or does not follow from the line before it.
    """
    entries: list[dict[str, Any]] = []
    retractions = []
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        entry, where = parsed(line), f"{path}:{number}"
        if not line.endswith(b"\n") or not follows(entry, entries):
            has_mark = line.startswith(BOM) and follows(parsed(line.removeprefix(BOM)), entries)
            raise ValidationError(
                f"{where}: changed or damaged: this line does not follow from the one before. "
                + (remedy(path, BOM) if has_mark else f"Restore the file; {COMMAND} adds a line.")
            )
        try:
            retractions.append(Retraction.model_validate(entry))
        except pydantic.ValidationError as error:
            raise ValidationError(explain(error, where)) from None
        entries.append(entry)
    return tuple(retractions)


def concerning(
    retractions: Iterable[Retraction], entry: str, records: Collection[str]
) -> list[Retraction]:
    """Those that take back an entry, or any of the given records of it."""
    return [
        line
        for line in retractions
        if line.entry == entry
        and (line.records == "all" or not set(line.records).isdisjoint(records))
    ]


def taken_back(retractions: Sequence[Retraction], entry: str) -> Retraction | None:
    """The line that takes back an entry as a whole: the one that removed its files, else the
    first; None where the entry counts."""
    lines = [line for line in retractions if line.entry == entry and line.is_whole]
    return next((line for line in lines if line.removed), lines[0] if lines else None)


def tombstone(entry: Path) -> Retraction | None:
    """What is left of an entry whose files were removed; None where none were.

    Args:
        entry: the folder that the entry had, or has.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`read_retractions`.
    """
    leaderboard = leaderboard_above(entry)
    if leaderboard is None:
        return None
    line = taken_back(read_retractions(leaderboard), "/".join(entry.absolute().parts[-3:]))
    return line if line is not None and line.removed else None
