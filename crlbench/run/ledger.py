"""Appending to the attempt ledger: everything that was tried in a run folder, never taken back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from crlbench.attempts import Event, read
from crlbench.chain import linked
from crlbench.conditions import canonical_json
from crlbench.run.environment import host_hash
from crlbench.run.store import explained, make_folder


class Ledger:
    """The ledger of one run folder; the folder's lock must be held to append.

    Raises:
        ValidationError: a line is damaged or does not follow from the line before it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.entries: list[dict[str, Any]] = read(self.path)

    def append(self, event: Event, cell: str | None = None, **detail: Any) -> dict[str, Any]:
        """Add one event, flushed to the disk before this returns."""
        body = {
            "event": event,
            "cell": cell,
            "time": utc_now(),
            "host": host_hash(),
            "detail": detail,
        }
        return append_line(self.path, self.entries, body)


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
