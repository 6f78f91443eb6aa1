"""Which badge a stored result has: what those who keep the leaderboard have proven of it.

``recomputed``: every number follows from what is stored. ``replayed``: the first updates were made
again. ``reproduced``: a whole seed was, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.report.load import Run
from crlbench.verification import (
    BADGES,
    UNCHECKED,
    VERIFICATION_NAME,
    Badge,
    read_verifications,
)


@dataclass(frozen=True)
class Badges:
    """The verifications of one entry, oldest first."""

    lines: Sequence[Mapping[str, Any]]

    def of_run(self, record_id: str) -> Badge | None:
        """The strongest badge of a record; None where it has none, or was refuted since."""
        last = {
            line["kind"]: line["outcome"]
            for line in self.lines
            if line["record_id"] == record_id and line["outcome"] != UNCHECKED
        }
        if "mismatch" in last.values():
            return None
        return max(last, key=BADGES.index, default=None)

    def last(self, record_id: str, kind: Badge) -> str | None:
        """How the last verification of a kind ended; None without one."""
        return next(
            (
                line["outcome"]
                for line in reversed(self.lines)
                if line["record_id"] == record_id
                and line["kind"] == kind
                and line["outcome"] != UNCHECKED
            ),
            None,
        )

    def tells(self, record_id: str, kinds: Iterable[Badge]) -> bool:
        """Whether a record was verified in one of these ways, with whatever outcome."""
        return any(self.last(record_id, kind) is not None for kind in kinds)

    def cover(self, runs: Iterable[Run], cells: Iterable[tuple[str, str, int]]) -> bool:
        """Whether runs were verified as an entry is: all recomputed, and of each task and arm one
        replayed.

        Args:
            runs: of the entry.
            cells: (task, arm, seed index) of those that are asked for.
        """
        stored = {(r.record.task.name, r.record.arm, r.record.seed.index): r for r in runs}
        best: dict[tuple[str, str], int] = {}
        for cell in cells:
            badge = self.of_run(stored[cell].record.record_id) if cell in stored else None
            if badge is None:
                return False
            best[cell[:2]] = max(best.get(cell[:2], 0), BADGES.index(badge))
        return all(rank > BADGES.index("recomputed") for rank in best.values())

    def of_entry(self, runs: Iterable[Run]) -> Badge | None:
        """The badge of all runs of an entry.

        Every run must be recomputed at least; beyond that one seed of every task and arm counts
        for the others of it.
        """
        best: dict[tuple[str, str], int] = {}
        for run in runs:
            badge = self.of_run(run.record.record_id)
            if badge is None:
                return None
            group = (run.record.task.name, run.record.arm)
            best[group] = max(best.get(group, 0), BADGES.index(badge))
        return BADGES[min(best.values())] if best else None


def read_badges(folder: Path) -> Badges:
    """The badges of the entry whose plan is in ``folder``.

    Raises:
        ValidationError: its ``verification.jsonl`` was changed.
        EnvironmentUnfit: it may not be read.
    """
    return Badges(read_verifications(folder / VERIFICATION_NAME))
