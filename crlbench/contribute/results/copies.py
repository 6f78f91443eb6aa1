"""Runs that are another run's under a new name.

Two runs of different entries in models/, tasks or seeds never measure the same: their curves differ
in some of thousands of items, and their digests in the weights. Neither do two arms of a cell,
unless no completion, or every one, was right: then both are paid alike. So are the real arm and a
mode arm whose start model answers all training prompts rightly when greedy. Two recipes may, where
the part in which they differ never acts: runs of one model, task, seed and arm are not compared.

Somebody who changes a bit changes the digest of a whole curve. So three things are compared one by
one, between runs whose weights have different digests, or of different tasks or seeds: the sampled
tokens of each digested iteration, the weights after it, and the answers of the start model.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.contract.records import DIGESTED_ITERATIONS
from crlbench.disk.hashing import canonical_json
from crlbench.errors import CrlbenchError
from crlbench.verdict.arm_agreement import must_differ
from crlbench.verdict.copied_seeds import own_digests
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

PARTING_ITERATIONS = 10
"""Fewer updates may move no sampled token, so that both arms of a cell have one curve."""
SAME_DRAWS = 0.995
"""Share of equal draws above which two starts are of the same weights. The largest of all pairs of
stored models is .91, of a model and one that was trained from it."""
LEAST_DRAWS = 1000
"""Draws that are enough to tell."""
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


@dataclass(frozen=True)
class _Drawn:
    """An iteration of a known run."""

    name: str
    cell: tuple[str, str, int]
    """What decides its draws: weights, task, seed."""
    iteration: int


@dataclass(frozen=True)
class _Start:
    """What one start model answered to one task's items and to those of the other tasks."""

    name: str
    weights: str
    draws: Mapping[str, np.ndarray]
    """(draws, N) scores by split; of one item all draws are of one question."""

    def share_equal(self, other: _Start) -> float | None:
        """Share of draws in which two starts are equal; None where too few can tell.

        Items on which all draws of a start are alike are left out: two models may be sure of the
        same answer.
        """
        equal = total = 0
        for split in self.draws.keys() & other.draws.keys():
            a, b = self.draws[split], other.draws[split]
            if a.shape == b.shape:
                unsure = (np.ptp(a, axis=0) > 0) & (np.ptp(b, axis=0) > 0)
                total += int(unsure.sum()) * len(a)
                equal += int((a[:, unsure] == b[:, unsure]).sum())
        return equal / total if total >= LEAST_DRAWS else None


@dataclass
class Known:
    """The runs of all entries by what they measured."""

    _by_mark: dict[str, list[_KnownRun]] = field(default_factory=lambda: defaultdict(list))
    _by_digest: dict[tuple[str, str], list[_Drawn]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _starts: dict[tuple[str, str], list[_Start]] = field(default_factory=lambda: defaultdict(list))
    """Start models by board and task, each once."""
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
                starts = [(_place(run), _start_of(run, entry)) for run in _one_per_task(runs)]
            except CrlbenchError:
                known.unreadable.append(entry)
                continue
            for mark, one in pairs:
                known._by_mark[mark].append(one)
            with suppress(CrlbenchError):
                for digest, drawn in [pair for run in runs for pair in _drawn_by(run, entry)]:
                    known._by_digest[digest].append(drawn)
            for place, start in starts:
                if all(start.weights != other.weights for other in known._starts[place]):
                    known._starts[place].append(start)
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

    def faults(self, run: Run) -> Iterator[str]:
        """What a run has in common with those of other weights, tasks or seeds; clauses."""
        yield from (f"the same measurements as {name}" for name in self.like(run))
        yield from self._same_digests(run)
        yield from self._same_starts(run)

    def _same_digests(self, run: Run) -> Iterator[str]:
        """The first iteration whose tokens or weights another run has."""
        for digest, own in _drawn_by(run):
            for other in self._by_digest.get(digest, ()):
                if other.cell != own.cell:
                    yield f"the same {digest[0]} of iteration {own.iteration} as {other.name}"
                    return

    def _same_starts(self, run: Run) -> Iterator[str]:
        own = _start_of(run)
        for other in self._starts.get(_place(run), ()):
            share = None if other.weights == own.weights else own.share_equal(other)
            if share is not None and share > SAME_DRAWS:
                yield (
                    f"{share:.2%} of the start's unsure draws equal those of {other.name}, whose "
                    "weights have another digest"
                )


def _one_per_task(runs: Iterable[Run]) -> list[Run]:
    return list({run.task: run for run in runs}.values())


def _place(run: Run) -> tuple[str, str]:
    """What decides the draws of a start model, but for the model."""
    return run.record.fingerprint.hash, run.task


def _weights(run: Run) -> str:
    return canonical_json(run.record.subject.weights_sha256)


def _drawn_by(run: Run, entry: Path | None = None) -> Iterator[tuple[tuple[str, str], _Drawn]]:
    """A run's digests that no other weights, task or seed can have, by name and value."""
    cell = (_weights(run), run.task, run.record.seed.value)
    for iteration, name, value in own_digests(run):
        yield (name, value), _Drawn(f"{entry}: {run.name}", cell, iteration)


def _start_of(run: Run, entry: Path | None = None) -> _Start:
    draws = {
        name: run.items(split.start_ref, f"splits.{name}.start_ref")
        for name, split in run.record.splits.items()
        if split.draws > 1
    }
    draws = {name: vector for name, vector in draws.items() if vector.ndim == 2}
    return _Start(f"{entry}: {run.name}", _weights(run), draws)


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
