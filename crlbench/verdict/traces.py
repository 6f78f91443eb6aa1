"""Dynamics of an arm over the budget: one line and one band per figure, for the study's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from crlbench.verdict.alarms import series
from crlbench.verdict.run_curve import completions_per_iteration, full_curve
from crlbench.verdict.runs import Run
from crlbench.verdict.study_runs import Cells

MOST_POINTS = 60
"""A longer trace is binned: means averaged, the band kept whole."""

HELD_OUT = "held_out"
"""Score on the held-out curve; every other figure is a name of ``crlbench.contract.dynamics``."""


@dataclass(frozen=True)
class Trace:
    """One figure of one arm."""

    key: str
    """The sign of the arm in figures: ``base``, ``A``, ``B``, ..."""
    label: str
    points: tuple[tuple[float, float, float, float], ...]
    """(completions consumed, mean over seeds, lowest seed, highest seed)."""


def trace(key: str, label: str, cells: Cells, name: str) -> Trace:
    """Each seed is the mean of its tasks; the band reaches from the lowest to the highest seed.

    Args:
        cells: the runs to draw, one per task and seed.
        name: :data:`HELD_OUT` or a name of ``crlbench.contract.dynamics.ALL_STATS``.
    """
    seeds: dict[int, dict[float, list[float]]] = {}
    for (_, index), run in sorted(cells.items()):
        for x, value in _points(run, name):
            seeds.setdefault(index, {}).setdefault(x, []).append(value)
    columns: dict[float, list[float]] = {}
    for points in seeds.values():
        for x, values in points.items():
            columns.setdefault(x, []).append(fmean(values))
    rows = [(x, fmean(c), min(c), max(c)) for x, c in sorted(columns.items())]
    return Trace(key, label, tuple(_bin(rows)))


def _points(run: Run, name: str) -> list[tuple[float, float]]:
    if name == HELD_OUT:
        curve = full_curve(run)
        return list(zip(map(float, curve.x), curve.score, strict=True))
    rows = completions_per_iteration(run.record) or 1
    values = series(run.record.health, name)
    return [(float(iteration * rows), value) for iteration, value in values]


def _bin(
    rows: Sequence[tuple[float, float, float, float]],
) -> list[tuple[float, float, float, float]]:
    size = -(-len(rows) // MOST_POINTS)
    if size <= 1:
        return list(rows)
    bins = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [
        (part[-1][0], fmean(r[1] for r in part), min(r[2] for r in part), max(r[3] for r in part))
        for part in bins
    ]
