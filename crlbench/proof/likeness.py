"""A replay beside the run it repeats: what differs first, by how much, and what that means.

Equal bits prove a run wherever they were made. Where bits differ the machines decide: within one
class of hardware and software they may not, and the run is refuted. Between two classes rounding
differs, and a run must keep to a band (:mod:`crlbench.proof.bands`). What the band allows is
decided by the replay's own figures and by the checkout, never by a figure of the run that is
examined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.conditions import PROTOCOL_NAME, diff, leaves, protocol_name
from crlbench.contract.dynamics import EPISODE_STATS
from crlbench.contract.machine import machine_class
from crlbench.contract.records import (
    BEYOND,
    DIGESTED_ITERATIONS,
    SCORE_DROP,
    CurvePoint,
    IterationDigest,
    RunRecord,
)
from crlbench.disk.names import POLICY_NAME
from crlbench.proof.bands import FEW, LATER, LEARNED_REWARD, OF_STEP, UNTAUGHT_LOSS, Band
from crlbench.proof.facts import describe_status
from crlbench.proof.replay import WHOLE, Trace
from crlbench.proof.start_answers import START, start_within
from crlbench.stats.measures import GREEDY, ID, unit
from crlbench.stats.needs import LEAST_NEW
from crlbench.stats.novelty import is_right

TENSORS = {
    "prompts": "prompt ids",
    "completions": "sampled token ids",
    "rewards": "rewards",
    "losses": "losses",
    "parameters": "parameters",
}
"""Digests of an iteration in the order in which they come to be, by what they are of."""

OF_TOKENS = (
    "score", "reward", "audit", "length", "length_right", "length_wrong", "truncated",
    "truncated_right", "truncated_wrong", "repetition", "repetition_right", "repetition_wrong",
    "group_variance", "uniform_groups", "tokens", "bytes", *EPISODE_STATS,
)
"""Figures that follow from the sampled tokens alone: no machine rounds them otherwise."""

TAUGHT = 0.5
"""Share of the replay's prompts whose completions all score alike, up to which two machines learn
the same: Adam makes a full step of a gradient that is all rounding."""

MIN_HEADROOM = 0.2
"""Least headroom for Λ, as in the report: less counts as this much."""


KL_ROUNDING = 1e-3
"""Nats per completion by which another machine may find another KL of the same completions."""


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
    why: str = ""
    """A clause, where it is not plain why no machine explains it."""

    def __str__(self) -> str:
        where = f"update {self.update}" if self.update else "before the first update"
        gap = "" if self.gap is None else f" (apart by {self.gap:.3g})"
        why = f"; {self.why}" if self.why else ""
        return f"{where}: {self.tensor}: stored {self.stored}, replayed {self.replayed}{gap}{why}"


@dataclass(frozen=True)
class Stored:
    """What a run left, as its record and its files have it."""

    record: RunRecord
    digests: Sequence[IterationDigest]
    vector: Callable[[str, str], np.ndarray]
    """(name of an item vector, field that refers to it) -> the vector."""


def other_class(stored: Stored, trace: Trace) -> dict[str, tuple[Any, Any]]:
    """Names in which the class of a run's machine differs from this one's -> (its, this one's).

    A run that was continued elsewhere is of the class on which it was begun: there its digests
    were made.
    """
    record = stored.record
    theirs = machine_class(record.environment, record.crlbench.source_tree_sha256)
    return diff(theirs, machine_class(trace.environment, trace.source))


def differences(
    stored: Stored, trace: Trace, band: Band, rows: int, learned: bool = False
) -> list[Difference]:
    """Everything that a replay made differently, first things first.

    Args:
        stored: the run that is examined.
        trace: what the replay made.
        band: of the precision.
        rows: completions of an iteration, by the conditions.
        learned: whether the task pays by a reward model, which rounds as machines do.
    """
    return [*_Beside(stored, trace, band, rows, learned).all()]


class _Beside:
    """A run and its replay, laid beside one another iteration by iteration."""

    def __init__(
        self, stored: Stored, trace: Trace, band: Band, rows: int, learned: bool
    ) -> None:
        self.stored, self.trace, self.band, self.rows = stored, trace, band, rows
        self.learned = learned
        theirs, ours = stored.record.health, trace.health
        self.iterations = min(len(theirs["iteration"]), len(ours["iteration"]))
        self.with_digests = min(len(stored.digests), len(trace.digests), self.iterations)
        self.other_tokens = [
            a.completions != b.completions
            for a, b in zip(stored.digests, trace.digests, strict=False)
        ]
        """Whether other tokens were sampled, by digested iteration."""

    def all(self) -> Iterator[Difference]:
        yield from self._start()
        yield from self._stages()
        yield from self._evaluation(0)
        for update in range(1, self.iterations + 1):
            if update <= self.with_digests:
                yield from self._tensors(update)
            yield from self._figures(update)
            yield from self._evaluation(update)
        yield from self._ending()

    # What the replay itself says of how far two machines may be apart.

    def _differ_before(self, update: int) -> bool:
        """Whether weights may be others, beyond rounding, before an iteration begins."""
        if update == 1 or update > DIGESTED_ITERATIONS + 1:
            return update > 1
        if self.band.learned_draw is None:
            return True
        return any(self.other_tokens[: update - 1]) or not self._learned_enough(update - 1)

    def _learned_enough(self, update: int) -> bool:
        """Whether every iteration of the replay up to one had enough to learn from."""
        uniform = self.trace.health.get("uniform_groups", [])[:update]
        return all(share is not None and share <= TAUGHT for share in uniform)

    def _may_move(self, update: int) -> bool:
        """Whether a draw of the replay lay so near an edge that rounding explains another."""
        limit = self.band.draw if update == 1 else self.band.learned_draw
        if limit is None or self._differ_before(update):
            return True
        closest = self.trace.closest[update - 1] if update <= len(self.trace.closest) else None
        return closest is not None and closest <= limit

    def _strict(self, update: int) -> bool:
        """Whether an iteration had the same tokens, from weights that are the same to rounding."""
        same = update <= self.with_digests and not self.other_tokens[update - 1]
        return same and not self._differ_before(update) and self._learned_enough(update)

    def _round_otherwise(self, update: int) -> bool:
        """Whether any number up to an iteration shows that the machines round differently."""
        pairs = zip(self.stored.digests[:update], self.trace.digests[:update], strict=False)
        return any(a.losses != b.losses for a, b in pairs) or any(
            column[:update] != self.trace.health[name][:update]
            for name, column in self.stored.record.health.items()
            if name in self.trace.health and name not in OF_TOKENS
        )

    def _start(self) -> Iterator[Difference]:
        """What the start model answers, where a replay of the first iterations asked it."""
        if not self.trace.files:
            for ref in sorted(self.trace.items):
                if ref.startswith(START):
                    yield from self._end(ref, 0)

    def _stages(self) -> Iterator[Difference]:
        """What stages of a chain left and consumed. Machines of two classes round otherwise, and
        a stage that was counted by no earlier version is not asked."""
        same = not other_class(self.stored, self.trace)
        ours = {stage.name: stage for stage in self.trace.lineage}
        for stage in self.stored.record.lineage or ():
            made = ours.get(stage.name)
            parts: dict[str, tuple[Any, Any]] = {"sha256": (stage.sha256, made and made.sha256)}
            if stage.ledger is not None:
                parts["ledger"] = (stage.ledger, made and made.ledger)
            measured = {} if made is None else diff(dict(stage.facts), dict(made.facts))
            parts |= {f"facts.{name}": pair for name, pair in measured.items()}
            for name, (before, after) in parts.items():
                if before != after:
                    within = not same and made is not None
                    if name == "facts.score":
                        within = within and self._score_within(before, after)
                    yield Difference(0, f"lineage.{stage.name}.{name}", *_short(before, after),
                                     within)  # fmt: skip

    def _score_within(self, before: Any, after: Any) -> bool:
        """Whether two machines may score what a stage left so far apart."""
        items = self.stored.record.fingerprint.leaves["conditions.evaluation.curve_items"]
        numbers = all(type(one) in (int, float) for one in (before, after))
        return numbers and _gap(before, after) <= self.band.later(items)

    # The parts of an iteration.

    def _tensors(self, update: int) -> Iterator[Difference]:
        """The digests of an iteration, in the order in which its tensors come to be."""
        theirs, ours = self.stored.digests[update - 1], self.trace.digests[update - 1]
        for name, what in TENSORS.items():
            before, after = getattr(theirs, name), getattr(ours, name)
            if before == after:
                continue
            if name == "losses":
                yield self._losses(update, before, after)
                continue
            why = getattr(self, f"_why_{name}")(update)
            yield Difference(update, what, before[:12], after[:12], within=not why, why=why)

    def _why_prompts(self, update: int) -> str:
        return "prompts are drawn alike on every machine"

    def _why_completions(self, update: int) -> str:
        if self._may_move(update):
            return ""
        return "no draw of the replay lies near enough to the edge of its token"

    def _why_rewards(self, update: int) -> str:
        rounds = self.learned and self.stored.record.arm in PAID_BY_TASK
        if self.other_tokens[update - 1] or rounds:
            return ""
        return "the same completions are paid the same on every machine"

    def _why_parameters(self, update: int) -> str:
        if self._round_otherwise(min(update + 1, self.iterations)):
            return ""
        return "every loss and figure is equal to the last digit"

    def _losses(self, update: int, before: list[str], after: list[str]) -> Difference:
        if len(before) != len(after):
            return Difference(update, "number of losses", len(before), len(after), within=False)
        pairs = list(zip(before, after, strict=True))
        place = next(i for i, (a, b) in enumerate(pairs) if a != b)
        gaps = [_gap(float.fromhex(a), float.fromhex(b)) for a, b in pairs]
        limits = [self._loss_limit(update, float.fromhex(b)) for _, b in pairs]
        name = f"losses[{place}]"
        within = all(gap <= limit for gap, limit in zip(gaps, limits, strict=True))
        return Difference(update, name, before[place], after[place], within, max(gaps))

    def _loss_limit(self, update: int, ours: float) -> float:
        size = max(1.0, abs(ours)) if math.isfinite(ours) else 1.0
        if not self._learned_enough(update):
            return UNTAUGHT_LOSS
        same = self.band.draw is None or not self._differ_before(update)
        strict = same and not any(self.other_tokens[:update])
        return (self.band.loss if strict else self.band.moved_loss) * size

    def _figures(self, update: int) -> Iterator[Difference]:
        """The figures of an iteration, all that both sides have."""
        record, trace = self.stored.record, self.trace
        for name in sorted(record.health.keys() & trace.health.keys()):
            before, after = record.health[name][update - 1], trace.health[name][update - 1]
            if before == after:
                continue
            gap = None if before is None or after is None else _gap(before, after)
            within = self._figure_within(update, name, gap, after)
            yield Difference(update, f"health.{name}", before, after, within, gap)

    def _figure_within(
        self, update: int, name: str, gap: float | None, ours: float | int | None
    ) -> bool:
        size = max(1.0, abs(ours)) if ours is not None else 1.0
        same_tokens = update <= self.with_digests and not self.other_tokens[update - 1]
        if same_tokens and name in OF_TOKENS:
            limit = LEARNED_REWARD if self.learned else 0.0
            return gap is not None and gap <= limit * size
        if self._strict(update):
            limit = self.band.step if name in OF_STEP else self.band.figure
            return gap is not None and gap <= limit * size
        early = update <= DIGESTED_ITERATIONS
        if name == "score" and early:
            limit = self.band.mean(self.rows)
        elif name == "tokens":
            limit = self.band.mean(self.rows) if early else self.band.tokens
        elif name in LATER and not early:
            limit = LATER[name] * self.band.later(self.rows)
        else:
            return True
        return gap is not None and gap <= limit * size

    def _evaluation(self, update: int) -> Iterator[Difference]:
        """The evaluation after an iteration, item by item, where the grid has one."""
        x = update * self.rows
        points = {point.x: point for point in self.stored.record.curve}
        ours = {point.x: point for point in self.trace.curve}
        if x not in ours:
            return
        if x not in points:
            yield Difference(update, f"curve at x = {x}", None, ours[x].score, within=False)
            return
        ref = points[x].items_ref
        before, after = self.stored.vector(ref, "curve"), self.trace.vector(ours[x].items_ref)
        if after is None or before.shape != after.shape:
            shape = None if after is None else after.shape
            yield Difference(update, f"items of {ref}", before.shape, shape, within=False)
        elif not np.array_equal(before, after):
            gap, changed = abs(points[x].score - ours[x].score), int((before != after).sum())
            within = self._evaluation_within(update, before, gap, changed)
            what = f"items of {ref}, {changed} of {before.size}"
            yield Difference(update, what, points[x].score, ours[x].score, within, gap)
        else:
            yield from _beyond(update, points[x], ours[x])
        yield from self._spent(update, list(points).index(x), list(ours).index(x))

    def _spent(self, update: int, place: int, ours: int) -> Iterator[Difference]:
        """What a chain's last stage had consumed until an evaluation."""
        ledger = self.stored.record.ledger
        if ledger is None or not place < len(ledger.points):
            return
        before = ledger.points[place]
        after = self.trace.spent[ours] if ours < len(self.trace.spent) else None
        if before != after:
            within = after is not None and bool(other_class(self.stored, self.trace))
            yield Difference(update, f"ledger.points[{place}]", *_short(before, after), within)

    def _evaluation_within(
        self, update: int, items: np.ndarray, gap: float, changed: int
    ) -> bool:
        if update > DIGESTED_ITERATIONS:
            return gap <= self.band.later(items.size)
        if self._differ_before(update + 1):
            return gap <= self.band.mean(items.size)
        return self.learned or changed <= FEW

    # How it ended.

    def _ending(self) -> Iterator[Difference]:
        """How it ended, where the replay got that far; of a whole run everything else."""
        yield from self._status()
        if not self.trace.files:
            return
        yield from self._compare_captured()
        for ref in sorted(self.trace.items):
            if not ref.startswith("curve/"):
                yield from self._end(ref, self.iterations)
        data = self.stored.record.model_dump(mode="json", include=set(WHOLE))
        for name, (before, after) in diff(leaves(data), leaves(dict(self.trace.whole))).items():
            yield Difference(self.iterations, name, before, after, within=not name.endswith("_ref"))
        before, after = self.stored.record.files.get(POLICY_NAME), self.trace.files[POLICY_NAME]
        if before is not None and before.sha256 != after.sha256:
            why = self._why_parameters(self.iterations)
            pair = before.sha256[:12], after.sha256[:12]
            yield Difference(self.iterations, POLICY_NAME, *pair, within=not why, why=why)

    def _status(self) -> Iterator[Difference]:
        status, ours = self.stored.record.status, self.trace.status
        late = ours.at is not None and status.at is not None and ours.at >= status.at
        broke = status.state == "failed" and status.rule != SCORE_DROP and late
        if (self.trace.files or broke or ours.state == "failed") and status != ours:
            # The score decides this rule at the end, and two machines may lie on its two sides.
            by_score = {status.rule, ours.rule} == {None, SCORE_DROP} and status.at == ours.at
            pair = describe_status(status), describe_status(ours)
            yield Difference(self.iterations, "status", *pair, within=by_score)

    def _compare_captured(self) -> Iterator[Difference]:
        record = self.stored.record
        start = self.trace.whole["splits"]["id"]["start"]
        bounds = record.task.floor, record.task.ceiling
        before, after = (
            captured(curve, start, *bounds) for curve in (record.curve, self.trace.curve)
        )
        if before is not None and after is not None and before != after:
            gap = abs(before - after)
            within = gap <= self.band.captured
            yield Difference(self.iterations, "captured (Λ)", before, after, within, gap)
        if protocol_name(record.fingerprint.leaves) != PROTOCOL_NAME:
            before, after = captured_new(self.stored, self.trace)
            if before is not None and after is not None and before != after:
                gap = abs(before - after)
                within = gap <= self.band.captured_new
                yield Difference(self.iterations, "captured (Λ_new)", before, after, within, gap)

    def _end(self, ref: str, update: int) -> Iterator[Difference]:
        """The items of a split at one end."""
        before, after = self.stored.vector(ref, "splits"), self.trace.vector(ref)
        if after is None or before.shape != after.shape:
            shape = None if after is None else after.shape
            yield Difference(update, f"items of {ref}", before.shape, shape, within=False)
            return
        if np.array_equal(before, after):
            return
        a, b = before.astype(np.float64), after.astype(np.float64)
        gap, changed = abs(float(a.mean() - b.mean())), int((before != after).sum())
        if ref.startswith(START):
            within = start_within(ref, before, after, self.band, _known(self.stored, self.trace))
        else:
            within = gap <= self.band.end + FEW / before.size
        what = f"items of {ref}, {changed} of {before.size}"
        yield Difference(update, what, float(a.mean()), float(b.mean()), within, gap)


def captured(
    curve: Sequence[CurvePoint], start: float, floor: float, ceiling: float
) -> float | None:
    """Λ of one run; None where its curve has one point.

    Args:
        curve: the evaluations.
        start: score of the start model.
        floor, ceiling: of the task.
    """
    x = np.array([point.x for point in curve], dtype=np.float64)
    if len(x) < 2 or not ceiling > floor:
        return None
    u = (np.array([point.score for point in curve]) - floor) / (ceiling - floor)
    head = (start - floor) / (ceiling - floor)
    return float((np.trapezoid(u, x) / x[-1] - head) / max(1.0 - head, MIN_HEADROOM))


def captured_new(stored: Stored, trace: Trace) -> tuple[float | None, float | None]:
    """Λ_new of a stored run and of a replay to its end, over the items that are new to the
    replay's start model; None for too few of them.

    It ranks under protocol CRL-2: right answers that move between known and new items on a later
    curve leave every mean as it is.
    """
    known, start = _known(stored, trace), trace.vector(START + ID)
    if known is None or start is None or (~known).sum() < LEAST_NEW:
        return None, None
    record, score = stored.record, float(start[:, ~known].mean())
    bounds = record.task.floor, record.task.ceiling
    before = _on(~known, record.curve, lambda ref: stored.vector(ref, "curve"))
    after = _on(~known, trace.curve, trace.vector)
    return captured(before, score, *bounds), captured(after, score, *bounds)


def _known(stored: Stored, trace: Trace) -> np.ndarray | None:
    """(N,) bool: what the replay's start model answers rightly when greedy."""
    greedy, task = trace.vector(START + GREEDY), stored.record.task
    if greedy is None:
        return None
    return is_right(np.asarray(unit(greedy[0], task.floor, task.ceiling)))


def _on(
    chosen: np.ndarray, curve: Sequence[CurvePoint], vector: Callable[[str], np.ndarray | None]
) -> list[CurvePoint]:
    """The evaluations of a curve on some of its items; none where one has other items."""
    vectors = [vector(point.items_ref) for point in curve]
    if any(one is None or one.shape != chosen.shape for one in vectors):
        return []
    return [
        point.model_copy(update={"score": float(one[chosen].mean(dtype=np.float64))})
        for point, one in zip(curve, vectors, strict=True)
        if one is not None
    ]


def _short(before: Any, after: Any) -> tuple[str, str]:
    """Two values as a line shows them: long ones by their beginning."""
    return f"{before!s:.60}", f"{after!s:.60}"


def _gap(a: float, b: float) -> float:
    """The distance of two numbers; infinite where one of them is none."""
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


def _beyond(update: int, stored: CurvePoint, replayed: CurvePoint) -> Iterator[Difference]:
    """What a point says beyond a learned reward, of completions that are paid the same.

    A record of a version that stored none of it is not asked.
    """
    for name in BEYOND:
        before, after = getattr(stored, name), getattr(replayed, name)
        if before is None or before == after:
            continue
        gap = None if after is None else abs(before - after)
        within = gap is not None and name in ("kl", "kl_se") and gap <= KL_ROUNDING
        yield Difference(update, f"{name} at x = {stored.x}", before, after, within, gap)
