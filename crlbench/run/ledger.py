"""The attempt ledger: an append-only chain of everything that was tried in a run folder.

One JSON line per event; each carries the hash of the line before it, so that a removed or
changed attempt shows. A line torn by ``kill -9`` was never read by anyone and is cut off.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Literal

from crlbench.conditions import canonical_json, digest
from crlbench.errors import ValidationError
from crlbench.run.environment import host_hash
from crlbench.run.store import explained, make_folder

Event = Literal[
    "plan", "start", "resume", "done", "failed", "error", "interrupted", "lost", "discarded"
]
"""``failed`` is a run that broke a stability rule, ``error`` a wrong input or machine."""
GENESIS = "0" * 64


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


def read(path: Path | str) -> list[dict[str, Any]]:
    """The verified entries of a ledger; an absent file is an empty ledger.

    Raises:
        ValidationError: the chain is broken; says at which line.
    """
    path = Path(path)
    if not path.exists():
        return []
    entries: list[dict[str, Any]] = []
    previous = GENESIS
    whole = path.read_bytes().rpartition(b"\n")[0]
    for number, line in enumerate(whole.splitlines(), start=1):
        entry = _parsed(line)
        body = {key: value for key, value in entry.items() if key != "hash"}
        sound = entry.get("previous") == previous and entry.get("n") == number - 1
        if not sound or entry.get("hash") != digest(body):
            raise ValidationError(
                f"{path}:{number}: the attempt ledger was changed or damaged: this line does not "
                "follow from the one before. Restore the file, or repeat the command with "
                "--fresh to discard this run folder's cells and their ledger."
            )
        entries.append(entry)
        previous = entry["hash"]
    return entries


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
