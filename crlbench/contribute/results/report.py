"""What the check of one contributed thing found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SHOWN = 12
"""Findings that the text shows."""


@dataclass(frozen=True)
class Examined:
    """A result, or the changes of a pull request, after its examination."""

    kind: str
    """``result`` or ``changes``."""
    name: str
    summary: str
    """What it is, in a few words: ``13 runs, ranked``."""
    findings: tuple[str, ...] = ()
    """What is wrong; nothing is wrong where there is none."""
    notes: tuple[str, ...] = ()
    """What a reader must know, and what could not be checked here."""
    unjudged: tuple[str, ...] = ()
    """Paths of code, which no rule judges: a person has to read them."""

    @property
    def broken(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.findings)

    def lines(self) -> Iterator[str]:
        """The report for a person, line by line."""
        yield f"{self.name}: {self._verdict} ({self.summary})"
        yield from (f"  * {finding}" for finding in self.findings[:SHOWN])
        if len(self.findings) > SHOWN:
            yield f"  * and {len(self.findings) - SHOWN} more"
        yield from (f"  not judged, for a person to read: {p}" for p in self.unjudged[:SHOWN])
        if len(self.unjudged) > SHOWN:
            yield f"  not judged: {len(self.unjudged) - SHOWN} more files of code"
        yield from (f"  note: {note}" for note in self.notes)

    @property
    def _verdict(self) -> str:
        if self.broken:
            return "refused"
        return "code is not judged by rules" if self.unjudged else "keeps every rule"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "ok": not self.broken,
            "summary": self.summary,
            "findings": list(self.findings),
            "notes": list(self.notes),
            "not_judged": list(self.unjudged),
        }
