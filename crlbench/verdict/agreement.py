"""Runs that began alike, laid beside one another: what they say of how they began must agree.

Two runs of one model, task and seed draw the same completions in their first iteration, whatever
the arm, the recipe or the learning rate: nothing was learned yet. They score the same start model
with the same draws, too. So an entry holds much that others can be asked about without a replay,
and what somebody invented or moved from another machine has to agree with what is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.conditions import PROTOCOL_NAME, protocol_name
from crlbench.contract.experience import FROZEN, own_answers, source_of
from crlbench.contract.machine import machine_class
from crlbench.contract.records import IterationDigest, RunRecord
from crlbench.contract.stored import exists
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.names import DIGESTS, ITEMS, RECORD_NAME
from crlbench.errors import CrlbenchError
from crlbench.stats.measures import GREEDY, ID, TRANSFER
from crlbench.verdict.arm_agreement import contradict_arms
from crlbench.verdict.copied_seeds import contradict_seeds
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

MOVED = 2
"""Items of an evaluation that may be scored otherwise on another machine, for each 256."""
ROUNDED = 1e-4
"""Of a score that is no 0 or 1, on two machines."""
ENOUGH = 4
"""Runs from which on the draws of another class of machine are held against those known."""

DRAWS = ("conditions.sampling.", "conditions.data.", "conditions.hardware.precision")
SCORES = ("conditions.evaluation.", "tasks.", "retain.", "track")


@dataclass(frozen=True)
class _Began:
    """How one run began."""

    run: Run

    @cached_property
    def machine(self) -> str:
        return digest(machine_class(self.run.record.environment))

    @cached_property
    def first(self) -> IterationDigest | None:
        rows = self.run.digests()
        return rows[0] if rows else None

    @cached_property
    def exact(self) -> bool:
        """Whether machines draw the same tokens, but for draws on an edge."""
        leaves = self.run.record.fingerprint.leaves
        return leaves.get("conditions.hardware.precision") == "fp32"

    @cached_property
    def divides(self) -> bool:
        """Whether the start's greedy answers decide what ranks."""
        return protocol_name(self.run.record.fingerprint.leaves) != PROTOCOL_NAME

    @cached_property
    def drawn(self) -> str:
        """What decides the draws and the rewards of the first iteration."""
        r, leaves = self.run.record, self.run.record.fingerprint.leaves
        draws = {n: v for n, v in leaves.items() if n.startswith(DRAWS)}
        per = [leaves.get(f"conditions.budget.{n}") for n in ("prompts", "completions")]
        origin = begun_from(r)
        own = [] if origin is None else [origin]
        return canonical_json([self._model, r.task.digests, r.seed.value, draws, per, *own])

    @cached_property
    def scored(self) -> str:
        """What decides the scores of the start model."""
        return self.scored_on(self.run.task)

    def scored_on(self, task: str) -> str:
        """What decides the scores of the start model on a task of the board."""
        leaves = self.run.record.fingerprint.leaves
        scores = {n: v for n, v in leaves.items() if n.startswith((*DRAWS, *SCORES))}
        return digest([self._model, task, scores])

    @property
    def _model(self) -> list[Any]:
        s = self.run.record.subject
        return [s.weights_sha256, s.quantisation, s.adapter, s.dtype, s.frame]

    @property
    def rewards(self) -> str | None:
        """A digest that others with the same draws and the same arm have."""
        return None if self.first is None else self.first.rewards


def begun_from(record: RunRecord) -> list[Any] | None:
    """What the first iteration of a run rests on beside model, task and seed; None for nothing.

    Frozen answers are read and not sampled. The last stage of a chain begins from products of
    stages: chains with the same ones begin alike.
    """
    source = source_of(record.algo.config)
    if record.lineage is None:
        return [source] if source in FROZEN else None
    products = {stage.name: stage.sha256 for stage in record.lineage}
    last = record.algo.config["stages"][-1]
    read = {name: last[name] for name in ("start", "reward", "data") if name in last}
    begun = [source, {name: products.get(value, value) for name, value in read.items()}]
    file = own_answers(record.fingerprint.leaves)
    return begun if file is None else [*begun, file.sha256]


@dataclass
class Peers:
    """Runs that are known, by how they began."""

    _drawn: dict[str, list[_Began]] = field(default_factory=lambda: defaultdict(list))
    _scored: dict[str, _Began] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Path]) -> Peers:
        """The runs of submitted entries; one that cannot be read is left to its examination."""
        peers = cls()
        for entry in entries:
            try:
                for run in load_runs(entry, files="used").runs:
                    peers.add(run)
            except CrlbenchError:
                continue
        return peers

    def add(self, run: Run) -> None:
        """Know a run.

        Raises:
            ValidationError: one of its files is damaged.
        """
        if not exists(run.folder / DIGESTS) or not exists(run.folder / ITEMS):
            return
        began = _Began(run)
        self._drawn[began.drawn].append(began)
        self._scored.setdefault(began.scored, began)

    def disagreements(self, runs: Iterable[Run]) -> Iterator[Finding]:
        """Where runs contradict one another, or those known.

        Raises:
            ValidationError: a file is damaged.
        """
        begun_runs = [_Began(run) for run in runs if exists(run.folder / DIGESTS)]
        yield from _check_counts(begun_runs)
        by_draws: dict[str, list[_Began]] = defaultdict(list)
        starts: dict[str, _Began] = {}
        elsewhere: list[bool] = []
        for began in begun_runs:
            others = [*by_draws[began.drawn], *self._others(began)]
            for other in others:
                if findings := [*_draws(began, other)]:
                    yield from findings[:1]
                    break
            far = [o for o in others if o.machine != began.machine and began.exact]
            elsewhere += [_same_tokens(began, other) for other in far[:1]]
            start = starts.setdefault(began.scored, self._scored.get(began.scored, began))
            if start.run.folder != began.run.folder:
                yield from _starts(began, start)
            by_draws[began.drawn].append(began)
        for began in begun_runs:
            yield from self._transfers(began, starts)
        yield from contradict_arms(began.run for began in begun_runs)
        yield from contradict_seeds(began.run for began in begun_runs)
        if len(elsewhere) >= ENOUGH and 2 * sum(elsewhere) < len(elsewhere):
            name, count = begun_runs[0].run.name, elsewhere.count(False)
            why = "the first draws of runs that began alike, made on other machines"
            expected = "the same for most of them"
            yield Finding(name, DIGESTS, "completions", f"others in {count} runs", expected, why)

    def _transfers(self, began: _Began, starts: Mapping[str, _Began]) -> Iterator[Finding]:
        """The start model's scores on another task are the ID scores of the runs of that task."""
        for name in began.run.record.splits:
            if not name.startswith(TRANSFER):
                continue
            scored = began.scored_on(name.removeprefix(TRANSFER))
            other = starts.get(scored, self._scored.get(scored))
            if other is None or ID not in other.run.record.splits:
                continue
            if (found := _contradiction(began, name, other, ID)) is not None:
                yield found
                return

    def _others(self, began: _Began) -> list[_Began]:
        others = self._drawn.get(began.drawn, ())
        return [other for other in others if other.run.folder != began.run.folder]


def _check_counts(starts: Iterable[_Began]) -> Iterator[Finding]:
    """The same tokens are as many: of one digest there is one count."""
    counts: dict[str, tuple[Any, Run]] = {}
    for began in starts:
        tokens = began.run.record.health.get("tokens", [])
        for row, length in zip(began.run.digests() or (), tokens, strict=False):
            first_length, run = counts.setdefault(row.completions, (length, began.run))
            if first_length != length:
                field = f"completions of iteration {row.iteration}"
                lengths = f"{length} tokens here, {first_length} in {run.name}"
                why = f"{lengths}: one of the digests is invented"
                digest = row.completions[:12]
                yield Finding(began.run.name, DIGESTS, field, digest, "a digest of its own", why)
                return


def _draws(one: _Began, other: _Began) -> Iterator[Finding]:
    """Prompts agree everywhere, draws and rewards within a class of machine."""
    a, b = one.first, other.first
    if a is None or b is None:
        return
    names = ["prompts"]
    if one.machine == other.machine:
        names += ["completions"]
    # Another scale of rewards is another leaf of the draws; an arm has rewards of its own.
    if _same_tokens(one, other) and _paid_alike(one.run.arm, other.run.arm):
        names += ["rewards"] if one.machine == other.machine else []
    for name in names:
        if getattr(a, name) != getattr(b, name):
            why = f"{other.run.name} began alike: the same model, task, seed and draws"
            digest, expected = getattr(a, name)[:12], getattr(b, name)[:12]
            yield Finding(one.run.name, DIGESTS, f"{name} of iteration 1", digest, expected, why)


def _paid_alike(one: str, other: str) -> bool:
    return one == other or {one, other} <= set(PAID_BY_TASK)


def _same_tokens(one: _Began, other: _Began) -> bool:
    a, b = one.first, other.first
    return a is not None and b is not None and a.completions == b.completions


def _starts(one: _Began, other: _Began) -> Iterator[Finding]:
    """The start model has one score a split, whatever was trained afterwards."""
    other_splits = other.run.record.splits
    for name in one.run.record.splits:
        if name in other_splits and (found := _contradiction(one, name, other, name)) is not None:
            yield found
            return


def _contradiction(one: _Began, name: str, other: _Began, other_name: str) -> Finding | None:
    """Why two splits cannot be the scores of one start model; None where they can."""
    split, other_split = one.run.record.splits[name], other.run.record.splits[other_name]
    a, b = (
        began.run.items(stored.start_ref, f"splits.{named}.start_ref").astype(np.float64)
        for began, named, stored in ((one, name, split), (other, other_name, other_split))
    )
    changes = a.size if a.shape != b.shape else int((np.abs(a - b) > ROUNDED).sum())
    most_changes = MOVED * max(1, a.size // 256) if one.exact else a.size // 10
    if name == GREEDY and one.divides and one.machine == other.machine:
        most_changes = 0
    if changes <= most_changes:
        return None
    where = "" if name == other_name else f"{other_split.start_ref} of "
    why = f"{changes} of {a.size} items are others than in {where}{other.run.name}"
    field = f"splits.{name}.start"
    return Finding(one.run.name, RECORD_NAME, field, split.start, other_split.start, why)
