"""The main job as a user meets it: the command, its files, its repetitions and interruptions."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from crlbench import cli
from crlbench.contract.records import RunRecord
from tests.support.clock import cpu_seconds

SHORT = (
    "budget.prompts=8",
    "budget.completions=4",
    "budget.grid=4",
    "budget.iterations_per_point=2",
    "evaluation.curve_items=32",
    "evaluation.end_items=16",
    "evaluation.end_draws=2",
)
"""A run of eight iterations that keeps everything else of the track."""
FULL = bool(os.environ.get("CRLBENCH_FULL"))


def command(out: Path, *extra: str) -> list[str]:
    settings = [part for setting in SHORT for part in ("--set", setting)]
    return [
        *(sys.executable, "-m", "crlbench", "evaluate", "--model", "tiny-llama"),
        *("--tasks", "counting", "--seeds", "1", "--out", str(out), *settings, *extra),
    ]


def evaluate(out: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *extra), capture_output=True, text=True, timeout=300)


def start(out: Path, *extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(out, *extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def cell(out: Path) -> Path:
    (folder,) = out.glob("mini-*/tiny-llama@*/ppo/counting/real/seed-00")
    return folder


def stable(out: Path) -> dict:
    """The record without what may differ between two runs of one command."""
    record = json.loads((cell(out) / "record.json").read_text())
    del record["volatile"]
    return record


def wait_for(path_of, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path_of():
        assert time.monotonic() < deadline, "the run did not get there"
        time.sleep(0.02)


def workers_of(parent: int) -> list[int]:
    """Processes whose parent is ``parent``."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """One uninterrupted run, the yardstick for the others."""
    out = tmp_path_factory.mktemp("whole") / "runs"
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as said:
        code = cli.main(command(out)[3:])
    assert code == 0, said.getvalue()
    (out / "stdout.txt").write_text(printed.getvalue())
    (out / "stderr.txt").write_text(said.getvalue())
    return out


def test_the_command_ends_with_the_report(finished):
    lines = (finished / "stdout.txt").read_text().strip().splitlines()
    report = Path(lines[-1].split(": ")[-1].strip())
    assert report.name.endswith(".html") and report.exists()
    assert "<svg" in report.read_text() and "http://" not in report.read_text().split("<svg")[0]
    assert "open division" in (finished / "stderr.txt").read_text()


def test_the_record_is_valid_and_agrees_with_its_vectors(finished):
    record = RunRecord.model_validate_json((cell(finished) / "record.json").read_text())
    assert record.record_id == record.content_id()
    assert record.status.state == "completed" and record.protocol.division == "open"
    assert [point.x for point in record.curve] == [0, 64, 128, 192, 256]
    with np.load(cell(finished) / "items.npz", allow_pickle=False) as vectors:
        means = {name: vectors[name].mean(dtype=np.float64) for name in vectors}
    for point in record.curve:
        assert means[point.items_ref] == pytest.approx(point.score, abs=1e-12)
    for split in record.splits.values():
        assert means[split.start_ref] == pytest.approx(split.start, abs=1e-12)
        assert means[split.end_ref] == pytest.approx(split.end, abs=1e-12)
    assert {"id", "id_greedy", "hard", "format", "train_fixed", "transfer/addition"} <= set(
        record.splits
    )
    assert record.health["iteration"] == list(range(1, 9))
    assert record.environment["packages"]["torch"].startswith("2.13")


def test_what_stands_in_the_folder(finished):
    names = {path.name for path in cell(finished).iterdir()}
    assert {
        *("record.json", "curve.csv", "items.npz", "digests.jsonl", "samples.jsonl.zst"),
        *("config.toml", "env.json", "tb", "attempt.log", "policy.safetensors"),
    } <= names
    assert "ckpt" not in names
    run = cell(finished).parents[2]
    assert {"plan.json", "ledger.jsonl", "summary.json"} <= {p.name for p in run.iterdir()}


def test_the_same_command_again_changes_nothing(finished):
    before = (cell(finished) / "record.json").read_bytes()
    assert cli.main(command(finished)[3:]) == 0
    assert (cell(finished) / "record.json").read_bytes() == before


@pytest.mark.slow
def test_the_same_command_elsewhere_gives_the_identical_record(finished, tmp_path):
    assert evaluate(tmp_path / "runs", "--jobs", "2").returncode == 0
    assert stable(tmp_path / "runs") == stable(finished)


@pytest.mark.slow
def test_a_killed_run_continues_to_the_identical_record(finished, tmp_path):
    out = tmp_path / "runs"
    process = start(out)
    wait_for(lambda: list(out.glob("mini-*/*/ppo/counting/real/seed-00/ckpt/last.ckpt")))
    workers = workers_of(process.pid)
    assert workers
    process.kill()
    process.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)
    assert not (cell(out) / "record.json").exists()
    done = evaluate(out)
    assert done.returncode == 0, done.stderr
    assert stable(out) == stable(finished)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("moment", range(20 if FULL else 1))
def test_killed_at_any_moment(finished, tmp_path, moment):
    out = tmp_path / "runs"
    process = start(out)
    time.sleep(random.Random(moment).uniform(0.5, 20.0))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = evaluate(out)
    assert done.returncode == 0, done.stderr
    assert stable(out) == stable(finished)
    assert not list(out.rglob(".*.tmp"))


@pytest.mark.slow
def test_ctrl_c_is_resumable(finished, tmp_path):
    out = tmp_path / "runs"
    process = start(out)
    wait_for(lambda: list(out.glob("mini-*/*/ppo/counting/real/seed-00/ckpt/last.ckpt")))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors and "same command" in errors
    assert not (cell(out) / "record.json").exists()
    assert evaluate(out).returncode == 0
    assert stable(out) == stable(finished)


@pytest.mark.slow
def test_a_second_run_on_the_folder_says_who_holds_it(tmp_path):
    out = tmp_path / "runs"
    process = start(out)
    try:
        wait_for(lambda: list(out.glob("mini-*/*/ppo/.lock")) and workers_of(process.pid))
        second = evaluate(out)
        assert second.returncode == 6
        assert f"process {process.pid}" in second.stderr and "Traceback" not in second.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_damaged_record_is_named(finished, tmp_path):
    out = tmp_path / "runs"
    import shutil

    shutil.copytree(finished, out)
    path = cell(out) / "record.json"
    path.write_text(path.read_text()[:500])
    done = evaluate(out)
    assert done.returncode == 3
    assert "record.json" in done.stderr and "--repeat" in done.stderr
    assert "Traceback" not in done.stderr and "--fresh" not in done.stderr
    shutil.rmtree(cell(out))  # what the message says
    assert evaluate(out, "--repeat").returncode == 0
    assert stable(out) == stable(finished)


@pytest.mark.slow
def test_smoke_is_quick(tmp_path):
    begun = cpu_seconds()
    done = subprocess.run(
        [*(sys.executable, "-m", "crlbench", "evaluate", "--model", "tiny-llama"),
         *("--smoke", "--out", str(tmp_path))],
        capture_output=True, text=True, timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert cpu_seconds() - begun < 30
    records = [json.loads(p.read_text()) for p in tmp_path.rglob("record.json")]
    assert len(records) == 2 and all(r["status"]["state"] == "partial" for r in records)
