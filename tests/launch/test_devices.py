"""A cell in several processes: what is refused, what is told, and that it is the same run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from crlbench import cli
from crlbench.errors import CrlbenchError, Incomplete, UsageError
from crlbench.launch.devices import Place, _remoteness, free_port
from tests.commands.test_end_to_end import cell, command, wait_for

EVALUATE = ["evaluate", "--model", "tiny-llama", "--tasks", "counting", "--seeds", "1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--devices", "0"], "--devices 0: must be at least 1"),
        (["--num-nodes", "0"], "--num-nodes 0: must be at least 1"),
        (["--strategy", "fdsp"], "Known: auto, ddp, fsdp"),
        (["--strategy", "fsdp"], "Add --devices N"),
        (["--devices", "33"], "Use at most 32 devices"),
        (["--devices", "2", "--recipe", "trpo"], "run on one device"),
        (["--devices", "2", "--num-nodes", "2", "--jobs", "2"], "Leave --jobs out"),
        (["--devices", "1", "--num-nodes", "2"], "Set NODE_RANK"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, capsys, monkeypatch, flags, said):
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    assert cli.main([*EVALUATE, "--out", str(tmp_path / "runs"), *flags]) == UsageError.exit_code
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in message
    assert not (tmp_path / "runs").exists()


def test_a_machine_is_named_by_its_environment():
    first = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert Place.of(first | {"NODE_RANK": "1"}) == Place(1, "10.0.0.1", 29500)
    for missing in (first, {"NODE_RANK": "0"}, first | {"NODE_RANK": "one"}):
        with pytest.raises(UsageError, match="NODE_RANK=1 MASTER_ADDR"):
            Place.of(missing)


def test_the_reason_is_told_before_what_follows_from_it():
    told = CrlbenchError("connection closed")
    refused = CrlbenchError("out of space")
    refused.exit_code = 6
    died = Incomplete("rank 1 was killed")
    assert sorted([told, refused, died], key=_remoteness) == [died, refused, told]


# -- real processes ----------------------------------------------------------------------------


def evaluate(out: Path, *extra: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(out, "--no-progress", *extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )


def ranks_of(process: subprocess.Popen[str]) -> dict[str, int]:
    """The processes of ranks below a command, by their RANK."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[3]
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        number = [v.split(b"=")[1].decode() for v in variables if v.startswith(b"RANK=")]
        if number and int(session) == process.pid:
            found[number[0]] = int(folder.name)
    return found


def record(out: Path) -> dict:
    return json.loads((cell(out) / "record.json").read_text())


def items(out: Path) -> dict[str, list]:
    stored = np.load(cell(out) / "items.npz")
    return {name: stored[name].tolist() for name in stored if name not in READ}


READ = ("start/retain/text", "end/retain/text")
"""Passages are scored by their probabilities, which are equal up to rounding alone."""


@pytest.mark.slow
@pytest.mark.full
def test_a_dead_rank_ends_the_others_and_one_process_goes_on(tmp_path):
    run = evaluate(tmp_path / "a", "--devices", "2")
    wait_for(lambda: list((tmp_path / "a").glob("**/ckpt/last.ckpt")), 300)
    ranks = ranks_of(run)
    assert ranks.keys() == {"0", "1"}
    os.kill(ranks["1"], signal.SIGKILL)
    killed = time.monotonic()
    _, said = run.communicate(timeout=120)
    assert time.monotonic() - killed < 30  # and not the minutes that a rank waits for another
    assert run.returncode == Incomplete.exit_code
    assert "rank 1 of 2 was killed by signal 9" in said and "Traceback" not in said
    wait_for(lambda: not ranks_of(run), 10)

    whole = evaluate(tmp_path / "b")
    last = evaluate(tmp_path / "a")
    for process in (whole, last):
        assert process.wait(timeout=300) == 0, process.stderr.read()
    assert items(tmp_path / "a") == items(tmp_path / "b")
    assert record(tmp_path / "a")["environment"]["devices"] == 1
    (ledger,) = (tmp_path / "a").rglob("ledger.jsonl")
    events = [json.loads(line)["event"] for line in ledger.read_text().splitlines()]
    assert events == ["plan", "start", "error", "resume", "done"]


@pytest.mark.slow
@pytest.mark.full
def test_two_machines_run_the_cells_of_the_first(tmp_path):
    """Two commands on one machine; that several machines can reach each other is not tested."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    both = [
        evaluate(tmp_path / "runs", "--num-nodes", "2", NODE_RANK=str(node), **place)
        for node in (0, 1)
    ]
    alone = evaluate(tmp_path / "alone")
    for process in (*both, alone):
        assert process.wait(timeout=400) == 0, process.stderr.read()
    assert items(tmp_path / "runs") == items(tmp_path / "alone")
    environment = record(tmp_path / "runs")["environment"]
    assert (environment["devices"], environment["nodes"], environment["strategy"]) == (2, 2, "ddp")
    ours, theirs = (record(tmp_path / name) for name in ("runs", "alone"))
    assert ours["fingerprint"] == theirs["fingerprint"] and ours["counts"] == theirs["counts"]
