"""What a check of a result finds, and the file that says which results were checked.

``verification.jsonl`` stands beside a plan and is written by those who keep a leaderboard, never by
those who submit: one chained line (:mod:`crlbench.disk.linked_lines`) for each verification of a
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from crlbench.disk.linked_lines import follows, parsed, whole_lines
from crlbench.errors import ValidationError

Badge = Literal["recomputed", "replayed", "reproduced"]
BADGES: tuple[Badge, ...] = get_args(Badge)
"""All badges, from the weakest proof to the strongest."""

Proof = Literal["recomputed", "replayed within a band", "replayed", "reproduced"]
"""What a badge says to a reader: equal bits and a band are two different things."""
PROOFS: tuple[Proof, ...] = get_args(Proof)
"""All proofs, from the weakest to the strongest."""

Outcome = Literal["equal", "within", "mismatch"]
"""Equal to the last bit, within the band of another class of machine, or neither."""
UNCHECKED = "unchecked"
"""Somebody tried and could not tell; the line says ``why``. It is no badge and refutes nothing."""
OUTCOMES: tuple[str, ...] = (*get_args(Outcome), UNCHECKED)

SHOWN = 90
"""Characters of a value that a sentence shows."""


@dataclass(frozen=True)
class Finding:
    """A value of a result that is not what it must be."""

    run: str
    """``model/recipe/task/arm/seed-03``, or an entry's ``model/recipe``."""
    file: str
    field: str
    stored: Any
    expected: Any
    """What was computed again, or what the conditions ask for."""
    why: str = ""
    """A clause that explains it where the two values do not."""

    def __str__(self) -> str:
        more = f" ({self.why})" if self.why else ""
        return (
            f"{self.run}/{self.file}: {self.field}: stored {_cut(self.stored)}, "
            f"expected {_cut(self.expected)}{more}"
        )


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def read_verifications(path: Path) -> list[dict[str, Any]]:
    """The lines of a ``verification.jsonl``, oldest first; none where there is no file.

    Raises:
        ValidationError: a line is none, or does not follow from the line before it.
        EnvironmentUnfit: it may not be read.
    """
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(whole_lines(path), start=1):
        entry = parsed(line)
        if not follows(entry, entries) or not _is_verification(entry):
            raise ValidationError(
                f"{path}:{number}: changed or damaged: this line is no verification that follows "
                "from the one before. Restore the file."
            )
        entries.append(entry)
    return entries


def _is_verification(entry: Mapping[str, Any]) -> bool:
    texts = all(isinstance(entry.get(name), str) for name in ("record_id", "run", "by", "date"))
    return texts and entry.get("kind") in BADGES and entry.get("outcome") in OUTCOMES
