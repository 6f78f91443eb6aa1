"""``crlbench evaluate`` with a real, very small model that the tests write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.contract.record_files import read_record
from crlbench.disk.hashing import sha256_file
from crlbench.run.ledger import read
from crlbench.verdict.attempts import read_attempts
from crlbench.verdict.load import load_runs
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import SHORT, command, terse


def test_a_run_folder_holds_plan_ledger_summary_and_page(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {
        "plan.json", "ledger.jsonl", "ledger.head.json", "summary.json", "report.html", "addition",
    }
    assert finished.name == "ppo" and finished.parent.name.startswith("very-tiny@")
    assert [e["event"] for e in read(finished / "ledger.jsonl")] == ["plan", "start", "done"]
    record = read_record(finished / "addition" / "real" / "seed-00" / "record.json")
    ledger = read(finished / "ledger.jsonl")
    stored = json.loads((finished / "plan.json").read_text())["plan_hash"]
    assert record.plan_hash == stored == ledger[0]["detail"]["plan_hash"]
    assert ledger[1]["detail"]["plan_hash"] == stored
    assert ledger[2]["detail"].pop("record_sha256") == sha256_file(
        finished / "addition" / "real" / "seed-00" / "record.json"
    )
    assert ledger[2]["detail"] == {
        "record_id": record.record_id,
        "items_sha256": record.files["items.npz"].sha256,
    }
    assert record.protocol.division == "open"
    panel = {"retain/copy", "retain/arithmetic", "retain/text"}
    assert panel | {"id_audit"} <= set(record.splits)
    assert all(record.splits[name].end is not None for name in panel | {"id_audit"})
    assert record.splits["retain/text"].n == 36 and 0 < record.splits["retain/text"].start < 0.1
    assert len(record.health["audit"]) == 2 and None not in record.health["audit"]
    assert (finished / "addition" / "real" / "seed-00" / "attempt.log").exists()


@pytest.mark.slow
def test_the_same_command_again_only_prints(
    model: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert cli.main(command(model, finished.parents[2])) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == str(finished / "report.html")
    assert "addition" in captured.out and "1 done before, 0 to run" in captured.err
    assert "WARNING: open division" in captured.err and "budget.prompts = 4" in captured.err
    assert "preview: 1 seed declared; a rank needs 5, 10 or 20" in captured.err
    after = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert after == stored


def test_list_runs_knows_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "runs", "--out", str(finished.parents[2]), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["done"], row["planned"], row["model"]) == (1, 1, "very-tiny")
    assert row["folder"] == str(finished)


def test_fingerprint_of_a_run_against_its_track(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fingerprint", str(finished), "-q"]) == 0
    assert capsys.readouterr().out.strip() == finished.parents[1].name.removeprefix("mini-")
    assert cli.main(["fingerprint", str(finished), "--diff", "mini"]) == 4
    leaves = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert leaves == sorted(f"conditions.{name}" for name in SHORT)


def test_report_goes_where_it_is_told(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(finished), "--out", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.html")
    assert "<svg" in (tmp_path / "r.html").read_text()


@pytest.mark.slow
def test_more_seeds_only_add(model: Path, finished: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(finished.parents[2], tmp_path / "runs")
    (first,) = (tmp_path / "runs").rglob("seed-00/record.json")
    before = first.read_bytes()
    assert cli.main(command(model, tmp_path / "runs", "-q", "--seeds", "2")) == 0
    assert first.read_bytes() == before
    assert len([*(tmp_path / "runs").rglob("record.json")]) == 2
    (ledger,) = (tmp_path / "runs").rglob("ledger.jsonl")
    events = [entry["event"] for entry in read(ledger)]
    assert events == ["plan", "start", "done", "plan", "start", "done"]


@pytest.mark.slow
def test_out_of_time_is_incomplete_and_resumable(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command(model, tmp_path / "runs", "--max-hours", "0.0000001")) == 8
    assert "0 of 1 run done; the same command continues" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failed_run_is_recorded_and_counts(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = command(model, tmp_path / "runs", rules__truncated_share=0.01, rules__patience=1)
    assert cli.main(strict) == 7
    assert "truncated_share" in capsys.readouterr().err
    (path,) = (tmp_path / "runs").rglob("record.json")
    assert read_record(path).status.state == "failed"
    assert cli.main(strict) == 7
    (ledger,) = (tmp_path / "runs").rglob("ledger.jsonl")
    assert [e["event"] for e in read(ledger)] == ["plan", "start", "failed"]


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = terse(write_checkpoint(tmp_path / "short"), max_position_embeddings=4)
    assert cli.main(command(model, tmp_path / "runs")) == 3
    message = capsys.readouterr().err
    assert "context" in message and "Traceback" not in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_dry_run_estimates_and_writes_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(command(model, Path("runs"), "--dry-run", "--seeds", "3", "--json")) == 0
    captured = capsys.readouterr()
    assert "preview: 3 seeds declared; a rank needs 5, 10 or 20" in captured.err
    found = json.loads(captured.out)
    assert found["plans"][0]["preview"] is True and found["vanished"] == 0
    assert (found["cells"], found["missing"]) == (3, 3)
    assert found["seconds"] > 0 and found["memory_bytes"] > 10**8 and found["disk_bytes"] > 0
    assert found["calibration"][str(model)]["start_s"] > 0
    assert len(found["plans"][0]["hash"]) == 64
    assert list(tmp_path.iterdir()) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run's folder."""
    import shutil

    shutil.copytree(finished.parents[2], tmp_path / "runs")
    (record,) = (tmp_path / "runs").rglob("record.json")
    return record.parent


@pytest.mark.slow
@pytest.mark.parametrize("damaging", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_what_follows_from_the_record_is_written_again(
    model: Path,
    copied: Path,
    damaging: Callable[[Path], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = [copied / name for name in ("curve.csv", "config.toml", "env.json")]
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        damaging(path)
    assert cli.main(command(model, copied.parents[5], "-q")) == 0
    said = capsys.readouterr().err
    assert all(f"{path} was " in said for path in paths)
    assert [path.read_bytes() for path in paths] == contents
    ledger = read(copied.parents[2] / "ledger.jsonl")
    events = [entry["cell"] for entry in ledger if entry["event"] == "rebuilt"]
    assert events == [f"addition/real/seed-00/{path.name}" for path in paths]
    assert read_attempts(copied.parents[2]).discarded == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["items.npz", "digests.jsonl", "samples.jsonl.zst", "policy.safetensors", "record.json"],
)
def test_what_follows_from_nothing_is_refused_by_name(
    model: Path, copied: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / name
    path.write_bytes(path.read_bytes()[:-2])
    assert cli.main(command(model, copied.parents[5], "-q")) == 3
    said = capsys.readouterr().err
    assert str(path) in said and "--repeat" in said and "--fresh" not in said


def test_smoke_takes_as_many_seeds_as_it_is_asked_for(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["evaluate", "--model", str(model), "--tasks", "addition"]
    config = tmp_path / "plan.toml"
    for flags, text, seeds in (
        (["--smoke", "--seeds", "2"], "seeds = 20\n", 2),
        (["--smoke"], "seeds = 20\n", 1),
        ([], "seeds = 20\nsmoke = true\n", 20),
        ([], "smoke = true\n", 1),
    ):
        config.write_text(text)
        more = ["--config", str(config), "--out", str(tmp_path / "runs"), "--print-config"]
        assert cli.main([*asked, *flags, *more]) == 0
        assert tomllib.loads(capsys.readouterr().out)["seeds"] == seeds


@pytest.mark.slow
def test_a_vanished_run_counts_as_failed_until_it_is_repeated(
    model: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    shutil.copytree(finished.parents[2], tmp_path / "runs")
    (path,) = (tmp_path / "runs").rglob("record.json")
    before, home = read_record(path), path.parents[3]
    shutil.rmtree(path.parent)
    assert cli.main(command(model, tmp_path / "runs")) == 7
    said = capsys.readouterr().err
    assert "the record is missing (ppo addition real seed-00)" in said
    assert "--repeat" in said and "1 run vanished, counted as failed" in said
    assert not path.exists() and len(read(home / "ledger.jsonl")) == 3
    assert cli.main(command(model, tmp_path / "runs", "--dry-run")) == 0
    captured = capsys.readouterr()
    assert "vanished" in captured.out and "the record is missing" in captured.err
    assert cli.main(command(model, tmp_path / "runs", "-q", "--repeat")) == 0
    assert read_record(path).files["items.npz"] == before.files["items.npz"]
    attempts = read_attempts(home)
    assert attempts is not None and attempts.repeated == (("addition", "real", 0),)
    runs = load_runs(home)
    assert attempts.redrawn == () and attempts.unknown(runs) == ()
    attempts.check(runs)


@pytest.mark.slow
def test_fresh_discards_and_says_so_in_the_ledger(
    model: Path, finished: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(finished.parents[2], tmp_path / "runs")
    (record,) = (tmp_path / "runs").rglob("record.json")
    whole = read_record(record)
    record.write_text(record.read_text()[:200])
    assert cli.main(command(model, tmp_path / "runs", "-q")) == 3
    assert cli.main(command(model, tmp_path / "runs", "-q", "--fresh")) == 0
    again = read_record(record)
    assert again.model_dump(exclude={"volatile"}) == whole.model_dump(exclude={"volatile"})
    (ledger,) = (tmp_path / "runs").rglob("ledger.jsonl")
    events = [entry["event"] for entry in read(ledger)]
    assert events == ["plan", "start", "done", "discarded", "start", "done"]
