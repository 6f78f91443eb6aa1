"""One model under two names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import aa
import pytest

from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import Runs, load_runs
from tests.support.simulate import Plan, write_board

REDUCED = ("--set", "budget.grid=4", "--tasks", "list-ops,addition")


def simulated(folder: Path, **changes) -> Path:
    return write_board(folder, Plan(items=16, track_version=1, **changes))


def halves(folder: Path, tmp_path: Path) -> Runs:
    return aa.two_names(load_runs(folder), tmp_path / "halves")


@pytest.mark.slow
def test_halves_of_one_models_seeds_become_two_entries(tmp_path):
    board = summarise_board(halves(simulated(tmp_path / "runs", seeds=10), tmp_path))
    assert [(e.model, e.n) for e in board.entries] == [("tiny-llama-A", 5), ("tiny-llama-B", 5)]
    found = aa.tiers(board)
    assert set(found) == {"efficiency", "stability", "generalization"}
    assert found["efficiency"] == [1, 1]
    assert aa.untold(found) == [axis for axis, numbers in found.items() if not numbers]
    told = aa.table(board, found, "python benchmarks/aa.py x")
    assert "sample efficiency (Λ)" in told and told.endswith("`python benchmarks/aa.py x`")


def test_an_axis_without_a_number_is_a_dash_and_has_not_passed(tmp_path, monkeypatch, capsys):
    folder = simulated(tmp_path, seeds=10, slope=-0.2)
    monkeypatch.setattr(sys, "argv", ["aa.py", str(folder), "--markdown"])
    assert aa.main() == 1
    said = capsys.readouterr()
    (row,) = (line for line in said.out.splitlines() if "stability" in line)
    assert row.split(" | ")[1:] == ["–", "–", "–", "–", "– |"]
    assert "stability: no tier for both" in said.err and str(folder) in said.out


@pytest.mark.parametrize("changes", [{"seeds": 5}, {"seeds": 1}])
def test_an_odd_number_of_seeds_is_refused(tmp_path, changes):
    with pytest.raises(SystemExit, match="even number of seeds"):
        halves(simulated(tmp_path / "runs", **changes), tmp_path)


@pytest.mark.slow
@pytest.mark.full
def test_a_real_model_is_told_from_itself_on_no_axis(tmp_path):
    runs = tmp_path / "runs"
    command = ("evaluate", "--model", "tiny-llama", "--track", "mini@1", "--seeds", "10")
    told = [*command, "--out", str(runs), *REDUCED]
    subprocess.run([sys.executable, "-m", "crlbench", *told], check=True, timeout=900)
    board = summarise_board(halves(runs, tmp_path))
    assert {e.n for e in board.entries} == {5}
    assert all(numbers == [1, 1] for numbers in aa.tiers(board).values())
