"""The curve and the splits of a record against their item vectors and the evaluation grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crlbench.contract.records import CurvePoint, SplitScore
from crlbench.contract.verification import Finding
from crlbench.disk.names import ITEMS
from crlbench.proof.facts import Facts

ROUNDING = 1e-12
"""Distance of two ways to add the same numbers."""


def check_curve(facts: Facts) -> Iterator[Finding]:
    """Every point stands on the grid, and its score is the mean of its items."""
    points = facts.record.curve
    yield from facts.differs("curve", len(points), facts.evaluations, "number of evaluations")
    for j, point in enumerate(points[: facts.evaluations]):
        yield from _check_place(facts, j, point)
        yield from _check_score(facts, f"curve[{j}]", "score", point.items_ref, point.score, None)
    for name in ("bytes", "tokens", "updates"):
        totals = [getattr(point, name) for point in points]
        for j, (before, after) in enumerate(zip(totals, totals[1:], strict=False), start=1):
            if after < before:
                yield facts.finding(f"curve[{j}].{name}", after, f"at least {before}", "a total")


def _check_place(facts: Facts, j: int, point: CurvePoint) -> Iterator[Finding]:
    budget, iterations = facts.conditions.budget, j * facts.interval
    x = iterations * budget.rows
    expected = {
        "x": x,
        "prompts": iterations * budget.prompts,
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
    sizes = {"id": fresh, "id_audit": fresh, "id_greedy": fresh | {"start": 1, "end": 1}}
    ends = {"n": e.end_items, "start": 1, "end": 1}
    sizes |= {name: ends for name in facts.split_digests if name not in ("train", "id")}
    others = (task for task in facts.tasks if task != facts.record.task.name)
    sizes |= {f"transfer/{task}": fresh | {"end": 1} for task in others}
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


def check_vectors(facts: Facts) -> Iterator[Finding]:
    """No vector is stored that no score refers to."""
    record = facts.record
    used = {point.items_ref for point in record.curve}
    for split in record.splits.values():
        used |= {ref for ref in (split.start_ref, split.end_ref) if ref is not None}
    extra = sorted(set(facts.run.vector_names) - used)
    yield from facts.differs("vectors", extra, [], "no score refers to them", ITEMS)
