"""Runs from Python are those of ``crlbench evaluate``: folders, plans, records, messages."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas
import pytest

import crlbench
from crlbench import cli
from crlbench.contract.record_files import read_record
from crlbench.errors import Incomplete, UsageError, ValidationError
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import SHORT, command, terse


def call(model: Path | str, out: Path, **more: Any) -> pandas.DataFrame:
    """The call that does what ``tests.support.commands.command`` types."""
    settings = SHORT | more.pop("set", {})
    return crlbench.evaluate(model, tasks=["addition"], seeds=1, out=out, set=settings, **more)


def names(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if "tfevents" not in name}


@pytest.mark.slow
def test_a_run_is_that_of_the_command(
    model: Path, finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    with ThreadPoolExecutor(1) as other_thread:
        found = other_thread.submit(call, model, runs, quiet=True).result()
    assert capfd.readouterr().out == ""
    home = runs / finished.relative_to(finished.parents[2])
    assert names(runs) == names(finished.parents[2])
    record = Path("addition") / "real" / "seed-00" / "record.json"
    assert read_record(home / record).record_id == read_record(finished / record).record_id
    assert (home / "plan.json").read_bytes() == (finished / "plan.json").read_bytes()
    assert list(found["entry"]) == ["/".join(finished.parts[-2:])] * 3
    assert list(found["axis"]) == ["efficiency", "stability", "generalization"]


@pytest.mark.slow
def test_either_continues_what_the_other_finished(
    model: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(finished.parents[2], runs)
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    found = call(model, runs)
    captured = capsys.readouterr()
    assert "1 done before, 0 to run" in captured.err and captured.out == ""
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before
    pandas.testing.assert_frame_equal(found, crlbench.results(runs))


@pytest.mark.slow
def test_a_dry_run_has_the_plan_of_the_command_and_writes_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(command(model, Path("runs"), "--dry-run", "--json")) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    found = call(model, Path("runs"), dry_run=True)
    assert found.attrs["estimate"]["plans"] == [plan] and found.attrs["estimate"]["seconds"] > 0
    assert list(found["plan_hash"]) == [plan["hash"]] and list(found["state"]) == ["absent"]
    assert found["board"][0] == f"mini-{plan['fingerprint']}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_runs_that_are_missing_are_an_error_and_are_continued(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Incomplete, match="0 of 1 run done; the same command continues"):
        call(model, tmp_path, max_hours=1e-7)


@pytest.mark.slow
def test_a_failed_run_is_a_result(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {"rules.truncated_share": 0.01, "rules.patience": 1}
    found = call(model, tmp_path, set=rules)
    assert list(found["failed"]) == [1, 1, 1]
    assert "1 run failed the stability rules" in capsys.readouterr().err


@pytest.mark.slow
def test_errors_are_those_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = terse(write_checkpoint(tmp_path / "short"), max_position_embeddings=4)
    for kind, code, name in ((ValidationError, 3, short), (UsageError, 2, Path("tiny-lama"))):
        with pytest.raises(kind) as error:
            call(name, tmp_path / "runs")
        capsys.readouterr()
        assert cli.main(command(name, tmp_path / "runs")) == code
        assert capsys.readouterr().err.endswith(f"crlbench: {error.value}\n")
    for wrong, message in (
        ({"seed": 3}, "unknown setting 'seed'. Did you mean seeds"),
        ({"jobs": "many"}, "--jobs many: a whole number from 1, or auto"),
        ({"print_config": True}, "unknown setting 'print_config'"),
    ):
        with pytest.raises(UsageError, match=message):
            call("tiny-llama", tmp_path / "runs", **wrong)


@pytest.mark.slow
def test_only_what_differs_from_the_defaults_is_typed(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('model = "tiny-llama"\ntasks = "addition"\nseeds = 2\n')
    found = crlbench.evaluate("tiny-llama", config=config, out=tmp_path / "runs", dry_run=True)
    assert list(found["seed"]) == [0, 1] and set(found["task"]) == {"addition"}
    smoke = crlbench.evaluate("tiny-llama", smoke=True, out=tmp_path / "runs", dry_run=True)
    assert list(smoke["seed"]) == [0, 0]
