"""The scores of a record: curve, splits and pass@k against their items, and what must be there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from crlbench.contract.experience import prompts_of
from crlbench.contract.records import CurvePoint, SplitScore
from crlbench.contract.verification import Finding
from crlbench.disk.names import EPISODES, ITEMS
from crlbench.proof.facts import Facts
from crlbench.stats.measures import BLIND, PASS, PASS_SPLITS, TRAIN_GREEDY
from crlbench.stats.pass_at_k import pass_by_k

ROUNDING = 1e-12
"""Distance of two ways to add the same numbers."""
BEYOND = {
    "gold": (0.0, 1.0),
    "audit": (0.0, 1.0),
    "kl": (-math.inf, math.inf),  # an estimate from few completions may be below 0
    "kl_se": (0.0, math.inf),
}
"""What a point may say beyond a learned reward."""
START_KL = 0.01
"""Nats per completion by which rounding may move the start model from itself."""


def check_curve(facts: Facts) -> Iterator[Finding]:
    """Every point stands on the grid, and its score is the mean of its items."""
    points = facts.record.curve
    yield from facts.differs("curve", len(points), facts.evaluations, "number of evaluations")
    for j, point in enumerate(points[: facts.evaluations]):
        yield from _check_place(facts, j, point)
        yield from _check_score(facts, f"curve[{j}]", "score", point.items_ref, point.score, None)
        yield from _check_beyond(facts, j, point)
    for name in ("bytes", "tokens", "updates"):
        totals = [getattr(point, name) for point in points]
        for j, (before, after) in enumerate(zip(totals, totals[1:], strict=False), start=1):
            if after < before:
                yield facts.finding(f"curve[{j}].{name}", after, f"at least {before}", "a total")


def _check_beyond(facts: Facts, j: int, point: CurvePoint) -> Iterator[Finding]:
    """What a point says beyond a learned reward: all or nothing, alike at all points, in bounds."""
    expected = facts.record.curve[0].gold is not None
    for name, (low, high) in BEYOND.items():
        value, where = getattr(point, name), f"curve[{j}].{name}"
        if (value is not None) != expected:
            why = "every figure at every point, or none"
            yield facts.finding(where, value, "a number" if expected else None, why)
        elif value is not None and not (low <= value <= high and math.isfinite(value)):
            yield facts.finding(where, value, f"finite, {low:g} to {high:g}")
    if j == 0 and point.kl is not None and abs(point.kl) > START_KL:
        why = "the policy is the start model"
        yield facts.finding("curve[0].kl", point.kl, f"at most {START_KL} off 0", why)


def _check_place(facts: Facts, j: int, point: CurvePoint) -> Iterator[Finding]:
    budget, iterations = facts.conditions.budget, j * facts.interval
    x = iterations * budget.rows
    expected = {
        "x": x,
        "prompts": iterations * prompts_of(facts.source, budget),
        "n_items": facts.conditions.evaluation.curve_items,
        "items_ref": f"curve/{x}",
    }
    for name, value in expected.items():
        yield from facts.differs(f"curve[{j}].{name}", getattr(point, name), value)
    most = iterations * facts.most_updates
    if point.updates > most:
        yield facts.finding(f"curve[{j}].updates", point.updates, f"at most {most}")
    shape = facts.run.items(point.items_ref, f"curve[{j}].items_ref").shape
    yield from facts.differs(point.items_ref, shape, (point.n_items,), "its shape", ITEMS)


def check_splits(facts: Facts) -> Iterator[Finding]:
    """Every split that the conditions ask for, with its items and draws and their mean."""
    stored, sizes = facts.record.splits, _sizes(facts)
    yield from facts.differs("splits", sorted(stored), sorted(sizes), "splits of the conditions")
    for name in sorted(stored.keys() & sizes.keys()):
        yield from _check_split(facts, name, stored[name], sizes[name])


def _sizes(facts: Facts) -> dict[str, dict[str, Any]]:
    """Items (None: of the retain panel) and draws at the start and at the end, by split."""
    e = facts.conditions.evaluation
    fresh = {"n": e.curve_items, "start": e.end_draws, "end": e.end_draws}
    sizes: dict[str, dict[str, Any]] = {"id": fresh, "id_audit": fresh}
    sizes["id_greedy"] = fresh | {"start": 1, "end": 1}
    ends = {"n": e.end_items, "start": 1, "end": 1}
    sizes |= {name: ends for name in facts.split_digests if name not in ("train", "id")}
    others = (task for task in facts.tasks if task != facts.record.task.name)
    sizes |= {f"transfer/{task}": fresh | {"end": 1} for task in others}
    if e.pass_draws:
        many = {"start": e.pass_draws, "end": e.pass_draws}
        sizes |= {n + PASS: sizes[n] | many for n in PASS_SPLITS if n in sizes}
    if e.blind_draws and EPISODES in facts.record.files:
        sizes[BLIND] = fresh | {"start": e.blind_draws, "end": e.blind_draws}
    if facts.record.arm == "mode":
        sizes[TRAIN_GREEDY] = {"n": None, "start": 1, "end": 1}
    return sizes | {f"retain/{m}": {"n": None, "start": 1, "end": 1} for m in e.retain}


def _check_split(
    facts: Facts, name: str, split: SplitScore, sizes: dict[str, Any]
) -> Iterator[Finding]:
    field = f"splits.{name}"
    end_ref = f"end/{name}" if facts.scored_at_end else None
    yield from facts.differs(f"{field}.start_ref", split.start_ref, f"start/{name}")
    yield from facts.differs(f"{field}.end_ref", split.end_ref, end_ref)
    yield from facts.differs(f"{field}.draws", split.draws, sizes["start"])
    if sizes["n"] is not None:
        yield from facts.differs(f"{field}.n", split.n, sizes["n"])
    elif name == TRAIN_GREEDY:
        if split.n < (least := facts.conditions.budget.prompts):
            yield facts.finding(f"{field}.n", split.n, f"at least {least}")
    elif not 1 <= split.n <= facts.conditions.evaluation.retain_items:
        most = facts.conditions.evaluation.retain_items
        yield facts.finding(f"{field}.n", split.n, f"1 to {most}")
    start, end = (sizes["start"], split.n), (sizes["end"], split.n)
    yield from _check_score(facts, field, "start", split.start_ref, split.start, start)
    yield from _check_score(facts, field, "end", split.end_ref, split.end, end)


def _check_score(
    facts: Facts,
    field: str,
    name: str,
    ref: str | None,
    stored: float | None,
    shape: tuple[int, int] | None,
) -> Iterator[Finding]:
    """A stored score against the mean of its vector, and the vector's shape if one is given."""
    if ref is None or stored is None:
        yield from facts.differs(f"{field}.{name}", stored, None if ref is None else "a score")
        return
    vector = facts.run.items(ref, f"{field}.{name}_ref")
    if shape is not None:
        yield from facts.differs(ref, vector.shape, shape, "its shape", ITEMS)
    mean = float(vector.astype(np.float64).mean())
    if not abs(stored - mean) <= ROUNDING:
        yield facts.finding(f"{field}.{name}", stored, mean, f"the mean of {ref}")


def check_passes(facts: Facts) -> Iterator[Finding]:
    """pass@k is what the stored draws give."""
    stored = facts.record.pass_at_k or {}
    splits = [n for n in PASS_SPLITS if n + PASS in facts.record.splits]
    yield from facts.differs("pass_at_k", sorted(stored), sorted(splits), "splits of many draws")
    for name in [n for n in splits if n in stored]:
        split = facts.record.splits[name + PASS]
        bounds = [facts.leaf(f"bounds.{name}.{end}") for end in ("floor", "ceiling")]
        for side, ref in (("start", split.start_ref), ("end", split.end_ref)):
            vector = None if ref is None else facts.run.items(ref, f"splits.{name}{PASS}")
            expected = pass_by_k(vector, *bounds)
            given = getattr(stored[name], side)
            if not _alike(given, expected):
                yield facts.finding(f"pass_at_k.{name}.{side}", given, expected, f"the draws {ref}")


def _alike(stored: dict[str, float] | None, expected: dict[str, float] | None) -> bool:
    if stored is None or expected is None:
        return stored is expected
    return stored.keys() == expected.keys() and all(
        abs(stored[k] - expected[k]) <= ROUNDING for k in expected
    )


def check_vectors(facts: Facts) -> Iterator[Finding]:
    """No vector is stored that no score refers to."""
    record = facts.record
    used = {point.items_ref for point in record.curve}
    for split in record.splits.values():
        used |= {ref for ref in (split.start_ref, split.end_ref) if ref is not None}
    extra = sorted(set(facts.run.vector_names) - used)
    yield from facts.differs("vectors", extra, [], "no score refers to them", ITEMS)
