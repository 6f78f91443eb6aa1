"""The present board of mini as it is stored: its headline by plain sums from the stored answers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

BOARD = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-a8d2d33fcaa9"
FEWEST = 64
"""New items that a task needs."""


def lam_new(run: Run) -> float | None:
    """Λ_new of one run; None for too few new items."""
    floor, ceiling = run.record.task.floor, run.record.task.ceiling
    greedy, start = (run.split_items(name, end=False) for name in ("id_greedy", "id"))
    new = greedy[0] < ceiling
    if new.sum() < FEWEST:
        return None
    head = (start[:, new].mean() - floor) / (ceiling - floor)
    # From a failure on nothing is solved, or as little as at the start.
    points = np.full(21, min(0.0, head))
    curve = run.curve_items()[:, new].mean(axis=1)
    points[: len(curve)] = (curve - floor) / (ceiling - floor)
    area = sum((a + b) / 2 for a, b in zip(points, points[1:], strict=False)) / 20
    return float((area - head) / max(1 - head, 0.2))


def trimmed(values: list[float]) -> float:
    cut = len(values) // 4
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


@pytest.mark.slow
def test_the_headline_of_every_design_by_plain_sums() -> None:
    runs = load_runs(BOARD, "used")
    seeds: dict[tuple[str | None, str], dict[str, list[float | None]]] = defaultdict(dict)
    for run in runs.runs:
        if run.arm == "real" and run.recipe == "ppo":
            subject = run.record.subject
            tasks = seeds[subject.slug, subject.checkpoint]
            tasks.setdefault(run.task, []).append(lam_new(run))
    designs = summarise_board(runs, replicates=50).rankings["ppo"]["efficiency"].designs
    assert designs is not None and len(designs.rows) == 8
    for row in designs.rows:
        values = []
        for checkpoint in row.checkpoints:
            tasks = seeds[row.display_name, checkpoint.label]
            assert len(tasks) == 8
            if any(None in found for found in tasks.values()):
                assert checkpoint.value is None
                continue
            values.append(float(np.mean([trimmed(found) for found in tasks.values()])))
            assert checkpoint.value == pytest.approx(values[-1], abs=1e-12)
        assert len(values) == (1 if row.display_name == "tiny2-gemma" else 3)
        assert row.score.value == pytest.approx(np.mean(values), abs=1e-12)
