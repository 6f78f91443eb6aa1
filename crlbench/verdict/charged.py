"""Λ over charged FLOPs (Λ_F) of the runs of a task, from stored ledgers and item vectors.

A chain is evaluated where a stage has left the policy that the last stage begins from, and then
on the grid of the last stage. x is what all stages had been charged until then. The policy between
its stage and the last one is the one of the curve's first point, so these items stand for both. Of
a policy that a later stage trained on, only its mean score is stored.

From a failure on u is 0, or the start's where that is less, as in Λ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crlbench.contract.charges import Charges, Coefficients
from crlbench.contract.records import RunRecord, StageRecord
from crlbench.contract.spending import before_last, has_failed
from crlbench.stats.charged_area import charged_weights
from crlbench.stats.measures import ID, ItemTable, captured, fallen, unit
from crlbench.verdict.run_measures import TaskItems

Charge = Literal["flops", "labels"]
"""What entries of chains are laid over, beside completions."""
BUDGET = "conditions.preference.flops"
"""Leaf of a fingerprint: B_F in forward tokens of the policy, on boards that rank by Λ_F."""


@dataclass(frozen=True)
class Charged:
    """Λ_F of the runs of a task, and what it is resampled by."""

    table: ItemTable | None
    """None with a ``reason``."""
    lam: np.ndarray
    """(n,) Λ_F of each seed; empty with a ``reason``."""
    reason: str | None
    """Why there is no Λ_F, as a clause."""


def ranks_charged(leaves: Mapping[str, Any]) -> bool:
    """Whether a board ranks by Λ_F."""
    return BUDGET in leaves


def find_charged(items: TaskItems) -> Charged | None:
    """Λ_F of the runs of a task; None where the board has no budget of FLOPs."""
    if not ranks_charged(items.runs[0].record.fingerprint.leaves):
        return None
    learned, heads, plain = [], [], items.table
    for i, run in enumerate(items.runs):
        if not _is_counted(run.record):
            return Charged(None, np.empty(0), f"{run.name} has no whole ledger of charges")
        start = unit(items.splits[ID].starts[i], *items.bounds[i])
        weights, vectors = _points(items, i, np.asarray(start))
        learned.append(weights[0] * start + weights[1:] @ vectors - start)
        heads.append(start)
    final = None if plain is None else plain.final
    floor, ceiling = items.bounds[0]
    table = ItemTable(np.stack(learned), np.stack(heads), final, ceiling - floor)
    lam = captured(table.learned.mean(axis=1), table.head.mean(axis=1))
    return Charged(table, np.asarray(lam), None)


def _is_counted(record: RunRecord) -> bool:
    """Whether every stage that ended well has a ledger, and its score is one."""
    lineage = record.lineage
    if lineage is None or before_last(lineage) is None:
        return False
    if not all(_is_score(stage.facts.get("score", 0.0)) for stage in lineage):
        return False
    if has_failed(lineage):
        return True
    return record.ledger is not None and len(record.ledger.points) == len(record.curve)


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _points(items: TaskItems, i: int, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(J + 1,) weights of the start and of J evaluations, and (J, N) what these scored in u."""
    run, curve = items.runs[i], items.whole[i]
    record, bounds = run.record, items.bounds[i]
    measured = np.asarray(unit(items.curves[i][: curve.measured], *bounds))
    stages = list(_stages(record))
    upstream = stages[-1][1] if stages else 0
    ledger = record.ledger
    spent, rows = [], []
    for stage, total in stages:
        if stage.name in _path(record):
            own = stage.name == _path(record)[0]
            score = stage.facts.get("score", 0.0)
            rows.append(measured[0] if own else np.full_like(start, unit(score, *bounds)))
            spent.append(total)
    flops = [0] if ledger is None else [charges.flops for charges in ledger.spent]
    spent += [upstream + value for value in flops[: curve.measured]]
    rows += [*measured]
    end = upstream + (0 if ledger is None else ledger.total.flops)
    if record.status.state == "failed":
        spent.append(end)
        rows.append(fallen(start))
    budget = end if record.status.state == "partial" else charged_budget(record)
    return charged_weights(spent, max(budget, 1)), np.stack(rows)


def charged_budget(record: RunRecord) -> int:
    """B_F in FLOPs: so many forward tokens of the policy; 0 where nothing was run."""
    policy = next(iter(_policies(record)), None)
    tokens = record.fingerprint.leaves[BUDGET]
    return 0 if policy is None else tokens * (policy.token + policy.head)


def _policies(record: RunRecord) -> Iterator[Coefficients]:
    for ledger in (record.ledger, *(stage.ledger for stage in record.lineage or ())):
        if ledger is not None and "policy" in ledger.coefficients:
            yield ledger.coefficients["policy"]


def _stages(record: RunRecord, charge: Charge = "flops") -> Iterator[tuple[StageRecord, int]]:
    """The stages that left something, each with what all stages were charged until its end."""
    total = 0
    for stage in record.lineage or ():
        if stage.ledger is not None:
            total += getattr(stage.ledger.total, charge)
            yield stage, total


def charged_curve(
    record: RunRecord, measured: Sequence[float], charge: Charge
) -> tuple[list[int], list[float]] | None:
    """What a run had been charged at each of its evaluations, and the mean u of each: of the
    policies that stages left on the way, and of the curve.

    Args:
        measured: u at the points of the curve that were measured.

    Returns:
        None of a record without a whole ledger.
    """
    if not _is_counted(record):
        return None
    bounds = record.task.floor, record.task.ceiling
    spent, values, upstream, path = [], [], 0, _path(record)
    for stage, upstream in _stages(record, charge):
        if stage.name in path:
            own = stage.name == path[0]
            score = measured[0] if own else float(unit(stage.facts.get("score", 0.0), *bounds))
            spent.append(upstream)
            values.append(score)
    ledger = record.ledger
    points = [Charges()] if ledger is None else ledger.spent[: len(measured)]
    spent += [upstream + getattr(one, charge) for one in points]
    return spent, [*values, *measured[: len(points)]]


def _path(record: RunRecord) -> list[str]:
    """The stages through which the measured policy came, the last one of them first; those of a run
    whose stages failed are none: its start model is measured."""
    if has_failed(record.lineage or ()):
        return []
    tables = {str(table.get("name")): table for table in record.algo.config.get("stages", ())}
    names, at = [], list(tables.values())[-1].get("start") if tables else None
    while at in tables and at not in names:
        names.append(str(at))
        at = tables[at].get("start")
    return names
