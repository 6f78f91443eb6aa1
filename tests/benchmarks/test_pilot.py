"""The pilot's rule, on records that are there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pilot
import pytest

PANEL = pilot.DESIGNS["small"].panel


def record_of(end: float) -> dict:
    """What the rule reads of a record."""
    return {
        "task": {"floor": 0.0, "ceiling": 1.0},
        "splits": {"id": {"start": 0.1, "end": end}},
        "status": {"state": "completed"},
    }


def keep(records: Path, rate: str, ends: tuple[float | None, ...]) -> None:
    """A record of each model of the panel that has an end here; all start at 0.1."""
    for model, end in zip(PANEL, ends, strict=True):
        if end is None:
            continue
        path = records / "small" / rate / model / "sequences-real-seed-00.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record_of(end)))


def table(
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
    track: str = "small",
) -> list[str]:
    command = ["pilot.py", "--track", track, "--records", str(records), *flags]
    monkeypatch.setattr(sys, "argv", command)
    pilot.main()
    return capsys.readouterr().out.splitlines()


def test_the_family_that_gains_least_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, "1e-4", (0.7, 0.6, 0.5))
    keep(tmp_path, "3e-4", (0.9, 0.9, 0.4))
    keep(tmp_path, "1e-3", (0.5, 0.5, 0.5))
    *_, last, winner = table(tmp_path, monkeypatch, capsys)
    assert last == "| 1e-3 | +0.400 | +0.400 | +0.400 | +0.400 |"
    assert winner == "winner: optimization.learning_rate=1e-4", "a tie goes to the smaller value"


def test_runs_that_cannot_change_the_winner_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, "1e-4", (0.7, 0.6, 0.5))
    keep(tmp_path, "3e-4", (0.9, 0.6, 0.9))
    keep(tmp_path, "1e-3", (None, 0.6, None))
    assert table(tmp_path, monkeypatch, capsys, "--decide") == [
        "| 1e-4 | +0.600 | +0.500 | +0.400 | +0.400 |",
        "| 3e-4 | +0.800 | +0.500 | +0.800 | +0.500 |",
        "| 1e-3 | - | +0.500 | - | at most +0.500 |",
        "winner: optimization.learning_rate=3e-4",
    ]


def test_each_kind_of_chain_has_a_winner_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    design = pilot.DESIGNS["preference"]
    best = {"rlhf": "1e-4", "rlvr": "3e-4", "sft-dpo": "3e-6", "iterative-dpo": "3e-6"}
    for choice in design.choices:
        ((_, rates),) = choice.grid.items()
        for rate in rates:
            options = argparse.Namespace(records=tmp_path, track="preference")
            for model in design.panel:
                paths = pilot.places(options, design, choice.recipes, rate, model)
                assert len(paths) == len(choice.recipes) * len(design.tasks)
                for (recipe, _), path in paths.items():
                    end = 0.9 if best.get(recipe, "1e-5") == rate else 0.5
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(record_of(end)))
    winners = [
        line
        for line in table(tmp_path, monkeypatch, capsys, track="preference")
        if line.startswith("winner")
    ]
    assert winners == [
        "winner: preference.policy_learning_rate=1e-4",
        "winner: preference.preference_learning_rate=3e-6",
        "winner: preference.imitation_learning_rate=1e-5",
    ]
