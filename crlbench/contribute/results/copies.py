"""Runs that are another run's under a new name.

Two runs of different entries in models/, tasks or seeds never measure the same: their curves differ
in some of thousands of items, and their digests in the weights. Neither do two arms of a cell,
unless no completion, or every one, was right: then both are paid alike. So are the real arm and a
mode arm whose start model answers all training prompts rightly when greedy. Two recipes may, where
the part in which they differ never acts: runs of one model, task, seed and arm are not compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.contract.records import DIGESTED_ITERATIONS
from crlbench.errors import CrlbenchError
from crlbench.verdict.arm_agreement import must_differ
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

PARTING_ITERATIONS = 10
"""Fewer updates may move no sampled token, so that both arms of a cell have one curve."""
UNTRAINED = hashlib.sha256().hexdigest()
"""Root of the digests of a run without an iteration."""


@dataclass(frozen=True)
class _KnownRun:
    """One run of a known entry."""

    name: str
    cell: tuple[Any, ...]
    """What decides its draws."""
    arm: str
    may_equal_arm: bool
    """Whether the other arm of its cell may measure the same: it was paid the same for all that
    the mark is of, or had too few iterations for the curves to part."""

    agrees: bool
    """Of a mode arm: whether agreement with its start model may be what labels pay."""
    unpaid: bool
    """Whether nothing was paid in all that the mark is of: then every arm measures the same."""

    def may_equal(self, other: _KnownRun) -> bool:
        """Whether two runs can have measured the same."""
        same_arm = self.arm == other.arm or (self.may_equal_arm and other.may_equal_arm)
        same_arm = same_arm or (self.unpaid and other.unpaid)
        if {self.arm, other.arm} == {"real", "mode"}:
            same_arm = same_arm or self.agrees or other.agrees
        return self.cell == other.cell and same_arm


@dataclass
class Known:
    """The runs of all entries by what they measured."""

    _by_mark: dict[str, list[_KnownRun]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[Path] = field(default_factory=list)
    """Entries that could not be read; their own examination says why."""

    @classmethod
    def of(cls, entries: Iterable[Path]) -> Known:
        """All runs of submitted entries."""
        known = cls()
        for entry in entries:
            try:
                runs = load_runs(entry, files="used")
                pairs = [(mark, _describe(run, mark, entry)) for run in runs for mark in marks(run)]
            except CrlbenchError:
                known.unreadable.append(entry)
                continue
            for mark, one in pairs:
                known._by_mark[mark].append(one)
        return known

    def like(self, run: Run) -> list[str]:
        """The runs that measured the same as this one, and cannot have."""
        names = {
            other.name: None
            for mark in marks(run)
            for other in self._by_mark.get(mark, ())
            if not other.may_equal(_describe(run, mark))
        }
        return list(names)


def marks(run: Run) -> Iterator[str]:
    """What of a run no other run has: its digests, and its curve where that says anything. A run
    whose chain ended in an earlier stage has neither."""
    if run.record.digest_root != UNTRAINED:
        yield f"digests {run.record.digest_root}"
    curve = run.curve_items()
    if len(curve) > 1 and np.ptp(curve) > 0:
        yield f"curve {hashlib.sha256(np.ascontiguousarray(curve).tobytes()).hexdigest()}"


def _describe(run: Run, mark: str, entry: Path | None = None) -> _KnownRun:
    r = run.record
    scores = r.health.get("score", [])
    of_digests = mark.startswith("digests")
    rewards = scores[:DIGESTED_ITERATIONS] if of_digests else scores
    paid = r.health.get("reward", [])[: len(rewards)]
    early = not of_digests and len(scores) < PARTING_ITERATIONS
    return _KnownRun(
        name=f"{entry}: {run.name}",
        cell=(r.subject.spec, r.task.name, r.seed.index),
        arm=r.arm,
        may_equal_arm=early or all(score in (0.0, 1.0) for score in rewards),
        agrees=r.arm == "mode" and not must_differ(r, len(rewards)),
        unpaid=bool(paid) and not any(paid),
    )
