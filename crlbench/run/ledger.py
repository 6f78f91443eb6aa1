"""Appending to the attempt ledger: everything that was tried in a run folder, never taken back.

A chain shows that a line was changed or is missing in the middle, and cannot show that the last
ones are. ``ledger.head.json`` states how many lines there are and the hash of the last one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import REPAIR, Event, read
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import linked
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import ValidationError
from crlbench.run.environment import host_hash
from crlbench.run.store import explained, make_folder, write_bytes, write_json


class Ledger:
    """The ledger of one run folder; the folder's lock must be held to append.

    Raises:
        ValidationError: a line is damaged or does not follow from the line before it, or lines
            are missing at the end.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.entries: list[dict[str, Any]] = read(self.path)
        _check_end(self.path, self.entries)

    def append(self, event: Event, cell: str | None = None, **detail: Any) -> dict[str, Any]:
        """Add one event, flushed to the disk before this returns."""
        entry = append_line(self.path, self.entries, _event(event, cell, detail))
        write_json(head_of(self.path), _head(self.entries))
        return entry

    @staticmethod
    def begin(
        path: Path, entries: list[dict[str, Any]], events: list[tuple[Event, str | None, dict]]
    ) -> Ledger:
        """Put a new ledger in the place of ``path`` at once: sound lines, and events after them."""
        entries = list(entries)
        for event in events:
            entries.append(linked(entries, _event(*event)))
        with explained(path):  # it states the ledger that goes
            head_of(path).unlink(missing_ok=True)
        write_bytes(path, "".join(canonical_json(entry) + "\n" for entry in entries).encode())
        write_json(head_of(path), _head(entries))
        return Ledger(path)


def head_of(path: Path) -> Path:
    """The file that states how the ledger at ``path`` ends."""
    return path.with_suffix(".head.json")


def _event(event: Event, cell: str | None, detail: dict[str, Any]) -> dict[str, Any]:
    where = {"time": utc_now(), "host": host_hash()}
    return {"event": event, "cell": cell, **where, "detail": detail}


def _head(entries: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"lines": len(entries), "hash": entries[-1]["hash"]}
    return body | {"sha256": digest(body)}


def write_head(ledger: Ledger) -> bool:
    """State how a ledger ends, where that is not stated; whether a damaged statement stood there.

    It follows from the ledger, whose own chain holds.
    """
    path = head_of(ledger.path)
    if not ledger.entries:
        return False
    damaged = path.exists() and stated_head(path) is None
    if stated_head(path) != _head(ledger.entries):
        write_json(path, _head(ledger.entries))
    return damaged


def stated_head(path: Path) -> dict[str, Any] | None:
    """What a head says; None where it is damaged, or absent."""
    if not path.exists():
        return None
    try:
        head = json_value(read_bytes(path, 2**16))
        body = {"lines": head["lines"], "hash": head["hash"]}
        sound = head["sha256"] == digest(body) and type(body["lines"]) is int
    except (Malformed, KeyError, TypeError, ValueError):
        return None
    return head if sound and body["lines"] > 0 else None


def _check_end(path: Path, entries: list[dict[str, Any]]) -> None:
    """Refuse a ledger that is not the one whose end was stated; it may have grown since.

    A ledger of an earlier version has no head, and a damaged head states nothing.
    """
    head = stated_head(head_of(path))
    if head is None:
        return
    lines = head["lines"]
    if len(entries) < lines:
        raise ValidationError(
            f"{path}: the attempt ledger has {len(entries)} lines, and {lines} were written: the "
            f"last ones are gone. {REPAIR}"
        )
    if entries[lines - 1]["hash"] != head["hash"]:
        raise ValidationError(
            f"{path}: the attempt ledger is not the one that was written here: line {lines} is "
            f"another. {REPAIR}"
        )


def utc_now() -> str:
    """The time in UTC, ISO 8601, in seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append_line(path: Path, entries: list[dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
    """Add ``body`` as the line after ``entries`` to a chained file, flushed to the disk.

    Raises:
        EnvironmentUnfit: it cannot be written.
    """
    entry = linked(entries, body)
    make_folder(path.parent)
    with explained(path), open(path, "ab") as file:
        _cut_torn_line(path, file)
        file.write((canonical_json(entry) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    entries.append(entry)
    return entry


def _cut_torn_line(path: Path, file: Any) -> None:
    if file.seek(0, os.SEEK_END):
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
