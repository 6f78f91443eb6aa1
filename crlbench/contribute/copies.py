"""Runs that are another run's under a new name.

Two runs of different entries in models/, tasks or seeds never measure the same: their curves differ
in some of thousands of items, and their digests in the weights. Two recipes may, where the part in
which they differ never acts, and so may two arms where no reward is ever paid: runs of one model,
task and seed are not compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.errors import CrlbenchError
from crlbench.report.load import Run, load_runs


@dataclass(frozen=True)
class _Seen:
    """One run of a known entry."""

    name: str
    drawn: tuple[Any, ...]
    """What decides its draws: two runs that share it may measure the same."""


@dataclass
class Known:
    """The runs of all entries by what they measured."""

    _by_mark: dict[str, list[_Seen]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[Path] = field(default_factory=list)
    """Entries that could not be read; their own examination says why."""

    @classmethod
    def of(cls, entries: Iterable[Path]) -> Known:
        """All runs of submitted entries."""
        known = cls()
        for entry in entries:
            try:
                runs = load_runs(entry, files="used")
                marked = [(run, list(marks(run))) for run in runs]
            except CrlbenchError:
                known.unreadable.append(entry)
                continue
            for run, own in marked:
                seen = _Seen(f"{entry}: {run.name}", _drawn(run))
                for mark in own:
                    known._by_mark[mark].append(seen)
        return known

    def like(self, run: Run) -> list[str]:
        """The runs that measured the same as this one, and cannot have."""
        found = {
            seen.name: None
            for mark in marks(run)
            for seen in self._by_mark.get(mark, ())
            if seen.drawn != _drawn(run)
        }
        return list(found)


def marks(run: Run) -> Iterator[str]:
    """What of a run no other run has: its digests, and its curve where that says anything."""
    yield f"digests {run.record.digest_root}"
    curve = run.curve_items()
    if len(curve) > 1 and np.ptp(curve) > 0:
        yield f"curve {hashlib.sha256(np.ascontiguousarray(curve).tobytes()).hexdigest()}"


def _drawn(run: Run) -> tuple[Any, ...]:
    r = run.record
    return (r.subject.slug, r.task.name, r.seed.index)
