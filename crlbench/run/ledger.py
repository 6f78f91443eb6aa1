"""Appending to the attempt ledger: everything that was tried in a run folder, never taken back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from crlbench.attempts import GENESIS, Event, read
from crlbench.conditions import canonical_json, digest
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
            "n": len(self.entries),
            "event": event,
            "cell": cell,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": host_hash(),
            "detail": detail,
            "previous": self.entries[-1]["hash"] if self.entries else GENESIS,
        }
        entry = body | {"hash": digest(body)}
        make_folder(self.path.parent)
        with explained(self.path), open(self.path, "ab") as file:
            self._cut_torn_line(file)
            file.write((canonical_json(entry) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)
        return entry

    def _cut_torn_line(self, file: Any) -> None:
        if file.seek(0, os.SEEK_END):
            content = self.path.read_bytes()
            if not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
