"""A replay beside the run it repeats: what differs first, by how much, and what that means.

Equal bits prove a run wherever they were made. Where bits differ the machines decide: within one
class of hardware and software they may not, and the run is refuted; between two classes rounding
differs, and only figures can be compared, within a band (:data:`BANDS`) that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.conditions import diff, leaves
from crlbench.records import (
    DIGESTED_ITERATIONS,
    SCORE_DROP,
    IterationDigest,
    RunRecord,
    Status,
)
from crlbench.run.record import POLICY_NAME
from crlbench.run.replay import WHOLE, Trace

TENSORS = {
    "prompts": "prompt ids",
    "completions": "sampled token ids",
    "rewards": "rewards",
    "losses": "losses",
    "parameters": "parameters",
}
"""Digests of an iteration in the order in which they come to be, by what they are of."""

SAME = (
    "hardware_class", "device", "devices", "nodes", "strategy", "machine", "cpu",
    "cpu_capability", "cuda", "driver", "packages",
)
"""Names of a record's environment that a class shares; with them go :data:`SWITCHES`, the threads
and the package's own source."""
SWITCHES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")
"""Variables that choose other kernels on the same machine."""


FEW = 2
"""Completions that may always be others: a draw that lies within rounding of a boundary."""

TAUGHT = 0.5
"""Share of prompts whose completions all score alike, up to which losses are compared."""


@dataclass(frozen=True)
class Band:
    """How far apart the same iteration may be on two classes of machine; docs/trust.md measures."""

    loss: float
    """Of an optimizer step, absolute, as long as the same tokens were sampled."""
    moved_loss: float
    """The same once a draw has moved."""
    share: float
    """Of completions that may be others, beyond :data:`FEW`: it bounds mean scores and tokens."""

    def figure(self, count: int) -> float:
        """What a mean over ``count`` completions may be apart by."""
        return self.share + FEW / count


BANDS = {
    "fp32": Band(loss=0.01, moved_loss=0.1, share=0.01),
    "bf16": Band(loss=0.02, moved_loss=0.3, share=0.05),
}
"""By precision of the track, for the iterations that are digested."""


@dataclass(frozen=True)
class Difference:
    """Something that a replay made differently."""

    update: int
    """Iteration, from 1; 0: before the first."""
    tensor: str
    stored: Any
    replayed: Any
    within: bool
    """Whether another class of machine may explain it."""
    gap: float | None = None
    """How far apart, where that can be measured."""

    def __str__(self) -> str:
        where = f"update {self.update}" if self.update else "before the first update"
        gap = "" if self.gap is None else f" (apart by {self.gap:.3g})"
        return f"{where}: {self.tensor}: stored {self.stored}, replayed {self.replayed}{gap}"


@dataclass(frozen=True)
class Stored:
    """What a run left, as its record and its files have it."""

    record: RunRecord
    digests: Sequence[IterationDigest]
    vector: Callable[[str, str], np.ndarray]
    """(name of an item vector, field that refers to it) -> the vector."""


def other_class(stored: Stored, trace: Trace) -> dict[str, tuple[Any, Any]]:
    """In what the machine of a run is not of the class of this one: name -> (its, this one's)."""
    theirs = _class(stored.record.environment, stored.record.crlbench.source_tree_sha256)
    return diff(theirs, _class(trace.environment, trace.source))


def _class(environment: Mapping[str, Any], source: str) -> dict[str, Any]:
    named = {name: environment.get(name) for name in SAME}
    switches = environment.get("determinism")
    switches = switches if isinstance(switches, dict) else {}
    variables = switches.get("environment")
    variables = variables if isinstance(variables, dict) else {}
    return leaves(
        named
        | {"threads": switches.get("threads"), "source": source}
        | {name: variables.get(name) for name in SWITCHES}
    )


def differences(stored: Stored, trace: Trace, band: Band) -> list[Difference]:
    """Everything that a replay made differently, first things first."""
    found = [*_evaluation(stored, trace, 0, band)]
    made = min(len(stored.record.health["iteration"]), len(trace.health["iteration"]))
    for update in range(1, made + 1):
        found += _tensors(stored, trace, update, band)
        found += _figures(stored, trace, update, band)
        found += _evaluation(stored, trace, update, band)
    return [*found, *_ending(stored, trace, made)]


def _tensors(stored: Stored, trace: Trace, update: int, band: Band) -> Iterator[Difference]:
    """The digests of an iteration, in the order in which its tensors come to be."""
    if update > min(len(stored.digests), len(trace.digests)):
        return
    theirs, ours = stored.digests[update - 1], trace.digests[update - 1]
    for name, what in TENSORS.items():
        before, after = getattr(theirs, name), getattr(ours, name)
        if before != after and name == "losses":
            yield _losses(update, before, after, _loss_limit(stored, trace, update, band))
        elif before != after:
            # Of a digest only equality can be told; the figures say how far apart it is.
            yield Difference(update, what, before[:12], after[:12], within=name != "prompts")


def _loss_limit(stored: Stored, trace: Trace, update: int, band: Band) -> float:
    """How far apart the losses of an iteration may be.

    Infinitely where too little was taught up to here: Adam makes a full step of a gradient that is
    all rounding, and whitening a signal, so that no two machines agree.
    """
    uniform = stored.record.health.get("uniform_groups", [])[:update]
    if any(share is None or share > TAUGHT for share in uniform):
        return math.inf
    pairs = zip(stored.digests[:update], trace.digests[:update], strict=True)
    moved = any(theirs.completions != ours.completions for theirs, ours in pairs)
    return band.moved_loss if moved else band.loss


def _losses(update: int, before: list[str], after: list[str], limit: float) -> Difference:
    if len(before) != len(after):
        return Difference(update, "number of losses", len(before), len(after), within=False)
    place = next(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    gaps = [_gap(float.fromhex(a), float.fromhex(b)) for a, b in zip(before, after, strict=True)]
    gap = max(gaps)
    name = f"losses[{place}]"
    return Difference(update, name, before[place], after[place], gap <= limit, gap)


def _figures(stored: Stored, trace: Trace, update: int, band: Band) -> Iterator[Difference]:
    """The figures of an iteration; those that the band measures must be within it."""
    record = stored.record
    rows = record.cost["completions"] // len(record.health["iteration"])
    limit = band.figure(int(rows)) if update <= DIGESTED_ITERATIONS else math.inf
    for name in sorted(record.health.keys() & trace.health.keys()):
        before = record.health[name][update - 1]
        after = trace.health[name][update - 1]
        if before == after:
            continue
        gap = None if before is None or after is None else _gap(before, after)
        if name == "tokens" and gap is not None and before:
            gap /= before
        within = name not in ("tokens", "score") or (gap is not None and gap <= limit)
        yield Difference(update, f"health.{name}", before, after, within, gap)


def _evaluation(stored: Stored, trace: Trace, update: int, band: Band) -> Iterator[Difference]:
    """The evaluation after an iteration, item by item, where the grid has one."""
    x = update * stored.record.cost["completions"] // len(stored.record.health["iteration"])
    points = {point.x: point for point in stored.record.curve}
    ours = {point.x: point for point in trace.curve}
    if x not in points or x not in ours:
        return
    ref = points[x].items_ref
    before, after = stored.vector(ref, "curve"), trace.vector(ref)
    if after is None or before.shape != after.shape:
        shape = None if after is None else after.shape
        yield Difference(update, f"items of {ref}", before.shape, shape, within=False)
    elif not np.array_equal(before, after):
        gap = abs(points[x].score - ours[x].score)
        changed = int((before != after).sum())
        within = update > DIGESTED_ITERATIONS or gap <= band.figure(before.size)
        what = f"items of {ref}, {changed} of {before.size}"
        yield Difference(update, what, points[x].score, ours[x].score, within, gap)


def _ending(stored: Stored, trace: Trace, made: int) -> Iterator[Difference]:
    """How it ended, where the replay got that far; of a whole run everything else."""
    status, ours = stored.record.status, trace.status
    reached = ours.at is not None and status.at is not None and ours.at >= status.at
    failed = status.state == "failed" and status.rule != SCORE_DROP and reached
    compared = trace.files or failed or ours.state == "failed"
    if compared and status != ours:
        yield Difference(made, "status", _said(status), _said(ours), within=False)
    if not trace.files:
        return
    for ref in sorted(trace.items):
        if ref.startswith("curve/"):
            continue
        before, after = stored.vector(ref, "splits"), trace.vector(ref)
        if after is None or not np.array_equal(before, after):
            yield Difference(made, f"items of {ref}", "its scores", "others", within=True)
    data = stored.record.model_dump(mode="json", include=set(WHOLE))
    for name, (before, after) in diff(leaves(data), leaves(dict(trace.whole))).items():
        yield Difference(made, name, before, after, within=True)
    before, after = stored.record.files.get(POLICY_NAME), trace.files[POLICY_NAME]
    if before is not None and before.sha256 != after.sha256:
        yield Difference(made, POLICY_NAME, before.sha256[:12], after.sha256[:12], within=True)


def _said(status: Status) -> str:
    return f"{status.state}{f' by {status.rule}' if status.rule else ''} at {status.at}"


def _gap(a: float, b: float) -> float:
    """The distance of two numbers; infinite where one of them is none."""
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf
