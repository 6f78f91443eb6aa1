"""Version 1's stored runs, divided by what their start models answer greedily."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from crlbench.verdict.load import load_runs
from crlbench.verdict.novelties import find_new_items
from crlbench.verdict.run_measures import TaskItems

ARCHIVE = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-543da47d0c99"
NEW_SHARES = {
    "tiny-llama@25666175": 5.4,
    "tiny-gemma@355811c2": 4.8,
    "tiny-phi@e764dd55": 2.5,
    "tiny-qwen2@c280b0bf": 10.7,
    "tiny-deepseek@660fe2a3": 11.5,
}
"""Percent of L that the new items bring."""


def parts_of(entry: Path) -> dict[str, tuple[float, float, float]]:
    """Per task L_known and L_new of an entry, and L by plain sums over its stored curves."""
    runs = [run for run in load_runs(entry, "used") if run.arm == "real"]
    found = {}
    for task, group in groupby(runs, key=lambda run: run.task):
        items = TaskItems(list(group), {})
        novelty = find_new_items(items).novelty
        areas = []
        for run in items.runs:
            f, c = run.record.task.floor, run.record.task.ceiling
            curve = (run.curve_items().mean(axis=1) - f) / (c - f)
            start = (run.split_items("id", end=False).mean() - f) / (c - f)
            areas.append(float(((curve[1:] + curve[:-1]) / 2).mean() - start))
        found[task] = novelty.known, novelty.new, float(np.mean(areas))
    return found


@pytest.mark.parametrize("model", NEW_SHARES)
def test_the_share_of_new_items_in_what_was_learned(model: str) -> None:
    parts = parts_of(ARCHIVE / model / "ppo")
    assert len(parts) == 4
    for known, new, learned in parts.values():
        assert known + new == pytest.approx(learned, abs=1e-12)
    known, new, _ = np.sum(list(parts.values()), axis=0)
    assert round(100 * new / (known + new), 1) == NEW_SHARES[model]


@pytest.mark.slow
def test_nearly_all_of_it_was_known_before() -> None:
    entries = sorted(ARCHIVE.glob("*/ppo"))
    cells = [part for entry in entries for part in parts_of(entry).values()]
    assert len(cells) == 44
    known, new, _ = np.sum(cells, axis=0)
    assert round(100 * known / (known + new), 1) == 93.6
