"""Which badge a stored result has: what those who keep the leaderboard have proven of it.

``recomputed``: every number follows from what is stored. ``replayed``: the first updates were made
again, to the last bit. ``replayed within a band``: they were made again by two witnesses, and each
came as near as another class of machine may. ``reproduced``: a whole seed was, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.contract.verification import PROOFS, UNCHECKED, Badge, Proof, read_verifications
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.verdict.runs import Run

WITNESSES = 2
"""Replays within a band that count as one proof. A band cannot tell an honest run from one that
was made to keep to it on one machine, so that a single replay grants nothing."""


@dataclass(frozen=True)
class Badges:
    """The verifications of one entry, oldest first."""

    lines: Sequence[Mapping[str, Any]]

    def of_run(self, record_id: str) -> Proof | None:
        """The strongest badge of a record; None where it has none, or was refuted since.

        What refuted it is outweighed by equal bits alone, and not by a band.
        """
        run_lines = [
            line
            for line in self.lines
            if line["record_id"] == record_id and line["outcome"] != UNCHECKED
        ]
        last = {line["kind"]: line["outcome"] for line in run_lines if line["outcome"] != "within"}
        if "mismatch" in last.values():
            return None
        equal = {line["kind"] for line in run_lines if line["outcome"] == "equal"}
        proofs: list[Proof] = [proof for proof in PROOFS if proof in equal]
        if len({_witness(line) for line in run_lines if line["outcome"] == "within"}) >= WITNESSES:
            proofs.append("replayed within a band")
        return max(proofs, key=PROOFS.index, default=None)

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
        by_cell = {(r.record.task.name, r.record.arm, r.record.seed.index): r for r in runs}
        best: dict[tuple[str, str], int] = {}
        for cell in cells:
            badge = self.of_run(by_cell[cell].record.record_id) if cell in by_cell else None
            if badge is None:
                return False
            best[cell[:2]] = max(best.get(cell[:2], 0), PROOFS.index(badge))
        return all(rank > PROOFS.index("recomputed") for rank in best.values())

    def of_entry(self, runs: Iterable[Run]) -> Proof | None:
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
            best[group] = max(best.get(group, 0), PROOFS.index(badge))
        return PROOFS[min(best.values())] if best else None


def _witness(line: Mapping[str, Any]) -> str:
    """Who made a replay, and on which class of machine: the same twice says nothing new."""
    return canonical_json([line.get("by"), line.get("machine")])


def read_badges(folder: Path) -> Badges:
    """The badges of the entry whose plan is in ``folder``.

    Raises:
        ValidationError: its ``verification.jsonl`` was changed.
        EnvironmentUnfit: it may not be read.
    """
    return Badges(read_verifications(folder / VERIFICATION_NAME))
