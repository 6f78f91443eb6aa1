"""Attempt ledgers as runs write them, chained and without waiting for the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crlbench.contract.attempts import LEDGER_NAME, plan_hash
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS


def second(number: int) -> str:
    """The time of an event that needs none: its number, in seconds of a day."""
    return f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"


class Writer:
    """Appends to the ledger that it began; every event takes a second."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER_NAME
        self.previous, self.number, self.plan = GENESIS, 0, ""

    def __call__(self, event: str, name: str | None = None, **detail: Any) -> Writer:
        if event == "plan":
            self.plan = plan_hash(detail)
        if event in ("start", "resume"):
            detail = {"plan_hash": self.plan} | detail
        body = {
            "n": self.number,
            "event": event,
            "cell": name,
            "time": second(self.number),
            "host": "h",
            "detail": detail,
            "previous": self.previous,
        }
        self.previous, self.number = digest(body), self.number + 1
        with open(self.path, "a") as file:
            file.write(canonical_json(body | {"hash": self.previous}) + "\n")
        return self
