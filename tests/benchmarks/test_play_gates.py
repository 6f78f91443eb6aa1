"""The gates of a track of episodes, on stored entries: what fails is said, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import play_gates
import pytest
from play_gates import Cell, cells_of, gates

from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
FIRST = RESULTS / "play-57bfeefe8b29"
"""`play`, version 1, of which docs/pilot.md tells the gates."""


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], Cell]:
    loaded = load_runs(FIRST, "used")
    found = {}
    for entry in summarise_board(loaded, replicates=200).entries:
        own = [run for run in loaded.runs if (run.model, run.arm) == (entry.model, "real")]
        found |= {(cell.model, cell.task.task): cell for cell in cells_of(entry, own)}
    return found


def failing(cell: Cell) -> list[str]:
    return [name for name, _, _, holds in gates(cell) if holds is False]


def test_one_model_fails_on_one_task(cells: dict[tuple[str, str], Cell]) -> None:
    failed = {key: failing(cell) for key, cell in cells.items() if failing(cell)}
    assert failed == {("tiny-mistral-play", "relay-sum"): ["gain"]}
    assert len(cells) == 8


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ({"sound": 0.59}, "turns without a fault"),
        ({"new": 63}, "new items"),
        ({"blind": 0.9}, "start, exchanged observations"),
        ({"kept": 0.41}, "kept with exchanged observations"),
    ],
)
def test_each_gate_catches_what_it_is_for(
    cells: dict[tuple[str, str], Cell], change: dict[str, float], gate: str
) -> None:
    cell = cells["tiny-llama-play", "relay-sum"]
    assert failing(cell) == []
    assert failing(replace(cell, **change)) == [gate]


def test_a_gain_whose_interval_reaches_0_fails(cells: dict[tuple[str, str], Cell]) -> None:
    cell = cells["tiny-llama-play", "relay-sum"]
    unsure = replace(cell.task.gain, interval=replace(cell.task.gain.interval, low=-0.01))
    assert failing(replace(cell, task=replace(cell.task, gain=unsure))) == ["gain"]


def test_the_table_has_every_gate_of_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    play_gates.main([FIRST])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 8 * 6 + 4
    assert sum("Λ of the placebo arm" in line for line in lines) == 4
    failed = [line.split(" | ")[:3] for line in lines if "**no**" in line]
    assert failed == [["| tiny-mistral-play", "relay-sum", "gain"]]
    assert sum(line.endswith("| decided before |") for line in lines) == 8
