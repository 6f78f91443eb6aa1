"""Runs that a reward model pays: what it says against what is right, by distance from the start.

The distance d is the square root of the KL from the start model, in nats per completion. Records of
older versions store none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.contract.records import CurvePoint
from crlbench.errors import ValidationError
from crlbench.stats.over_optimisation import OverOptimisation, over_optimisation
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class PaidPoint:
    """One evaluation, means over the runs."""

    x: int
    """Completions consumed."""
    proxy: float
    """Mean score of the reward model."""
    gold: float
    audit: float
    kl: float
    """Nats per completion."""


@dataclass(frozen=True)
class PaidByModel:
    """The runs of one task of one entry."""

    task: str
    runs: int
    left_out: int
    """Runs that ended early, and so have no point at the end."""
    points: tuple[PaidPoint, ...]
    curve: OverOptimisation | None
    """The fit of gold; None where the points do not allow one."""
    lack: str = ""
    """Why there is no fit."""


def paid_by_model(task: str, runs: Sequence[Run]) -> PaidByModel | None:
    """The curve of a task's runs; None where no run stores what is right.

    Args:
        runs: of one entry and arm; those of other tasks are ignored.
    """
    curves = [run.record.curve for run in runs if run.task == task and _stores(run.record.curve)]
    if not curves:
        return None
    longest = max(len(curve) for curve in curves)
    whole = [curve for curve in curves if len(curve) == longest]
    kl, gold, audit, proxy = (
        np.array([[_number(point, name) for point in curve] for curve in whole])
        for name in ("kl", "gold", "audit", "score")
    )
    points = tuple(
        PaidPoint(point.x, *(float(column[:, j].mean()) for column in (proxy, gold, audit, kl)))
        for j, point in enumerate(whole[0])
    )
    fitted, lack = None, ""
    try:
        fitted = over_optimisation(kl, gold, "rl", f"goodhart/{task}")
    except ValidationError as error:
        lack = str(error)
    return PaidByModel(task, len(whole), len(curves) - len(whole), points, fitted, lack)


def _stores(curve: Sequence[CurvePoint]) -> bool:
    return bool(curve) and all(p.gold is not None and p.kl is not None for p in curve)


def _number(point: CurvePoint, name: str) -> float:
    value = getattr(point, name)
    return float("nan") if value is None else float(value)
