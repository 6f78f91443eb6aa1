"""``crlbench compare --designs`` as a person meets it: names, formats, refusals, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.verdict import compare_read
from tests.support.designs import INDEPENDENT, plans, write_designs
from tests.support.simulate import Plan, write_board

DESIGNS = {"tiny-llama": (2.2, INDEPENDENT), "tiny-qwen2": (0.8, INDEPENDENT)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of two designs, one of which was run with a second recipe too."""
    root = tmp_path_factory.mktemp("runs")
    board = write_designs(root, DESIGNS)
    again = [replace(plan, recipe="grpo") for plan in plans(DESIGNS)][:1]
    assert write_board(root, *again) == board
    return root


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    read = compare_read.read_entry
    monkeypatch.setattr(compare_read, "read_entry", lambda folder: read(folder, replicates=200))


def call(capsys: pytest.CaptureFixture[str], runs: Path, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["compare", *arguments, "--runs", str(runs)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_all_designs_of_a_board_in_text(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, runs, "--designs")
    assert code == 0
    for text in (
        "tiny-llama/ppo",
        "3 checkpoints",
        "i2o2",
        "Variance components of Λ_new (REML, profile intervals)",
        "Pretraining is",
        "of the variance between single checkpoints of",
        "false-discovery rate",
    ):
        assert text in out
    assert "grpo" not in out


@pytest.mark.slow
def test_the_json_has_every_number(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, runs, "--designs", "tiny-llama", "tiny-qwen2", "--json")
    found = json.loads(out)
    assert code == 0 and set(found["axes"]) == {"efficiency", "stability", "generalization"}
    designs = found["axes"]["efficiency"]["designs"]
    for row in designs["rows"]:
        values = [one["value"] for one in row["checkpoints"]]
        assert row["score"]["value"] == pytest.approx(sum(values) / 3, rel=1e-12)
        assert row["score"]["interval"] is not None and row["about"] == "the design"
    (pair,) = designs["pairs"]
    assert pair["value"] == pytest.approx(
        designs["rows"][1]["score"]["value"] - designs["rows"][0]["score"]["value"], rel=1e-9
    )
    assert {part["term"] for part in designs["spread"]["parts"]} >= {"design", "task", "seed"}
    assert 0 <= designs["spread"]["share"] <= 1


@pytest.mark.slow
def test_one_axis_and_a_folder_of_a_board(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (board,) = runs.iterdir()
    code, out, _ = call(capsys, runs, "--designs", str(board), "--axis", "stability", "--json")
    assert code == 0 and set(json.loads(out)["axes"]) == {"stability"}
    assert len(json.loads(out)["entries"]) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head"), [("d.md", "# Designs of"), ("d.html", "<!doctype html>")]
)
def test_it_writes_files(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, head: str
) -> None:
    target = tmp_path / name
    code, out, _ = call(capsys, runs, "--designs", "--out", str(target))
    text = target.read_text(encoding="utf-8")
    assert code == 0 and str(target) in out
    assert text.startswith(head) and "pretraining" in text.lower() and "i1o1" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny-llama", "--designs"), "give designs after --designs"),
        (("--designs", "tiny-lama"), "tiny-llama"),
        (("--designs", "--tasks", "addition"), "leave out --tasks"),
        (("--designs", "tiny-llama/ppo", "tiny-llama/grpo"), "with one recipe"),
    ],
)
def test_what_designs_do_not_take_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = call(capsys, runs, *arguments)
    assert code == 2 and message in error


def test_a_track_of_the_first_protocol_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_board(tmp_path, Plan(items=16, seeds=2))
    code, _, error = call(capsys, tmp_path, "--designs")
    assert code == 2 and "protocol CRL-1" in error and "crlbench compare A B" in error


def test_an_empty_folder_says_where_it_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = call(capsys, tmp_path, "--designs")
    assert code == 2 and "holds no entry" in error
