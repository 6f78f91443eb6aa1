"""SIGKILL in every stage of a chain: the same command continues, and ends with the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from tests.stages.test_chain import SMALL

MOMENTS = {
    "sft": ("artefacts", ".supervised-*"),
    "pairs": ("artefacts", ".collect-*"),
    "rm": ("artefacts", ".reward-*"),
    "policy": ("rlhf", "addition/real/seed-00/ckpt/*"),
}
"""What is there while a stage works, below the folder of the model."""
PATIENCE = 600.0


def command(out: Path) -> list[str]:
    sets = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--track", "preference", "--tasks", "addition"]
    rest = ["--recipe", "rlhf", "--smoke", "-q", "--out", str(out)]
    return [sys.executable, "-m", "crlbench", "evaluate", *where, *rest, *sets]


def record_below(out: Path) -> RunRecord:
    (path,) = out.rglob("record.json")
    return read_record(path)


def kill_when(out: Path, place: str, pattern: str) -> bool:
    """Kill the command and all its processes once a file of a pattern is there; False where it
    ended before."""
    running = subprocess.Popen(
        command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    end = time.monotonic() + PATIENCE
    while running.poll() is None and time.monotonic() < end:
        if any(out.glob(f"preference-*/*/{place}/{pattern}")):
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return True
        time.sleep(0.005)
    running.kill()
    running.wait()
    return False


@pytest.mark.slow
@pytest.mark.full
def test_a_kill_in_every_stage_changes_no_product(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(whole), check=True, capture_output=True, timeout=PATIENCE)
    for stage, (place, pattern) in MOMENTS.items():
        assert kill_when(killed, place, pattern), stage
        assert not list(killed.rglob("record.json")), stage
    subprocess.run(command(killed), check=True, capture_output=True, timeout=PATIENCE)
    expected, found = record_below(whole), record_below(killed)
    assert found.lineage == expected.lineage and found.ledger == expected.ledger
    assert found.files["policy.safetensors"] == expected.files["policy.safetensors"]
    assert not [path for path in killed.glob("preference-*/*/artefacts/.*") if path.is_dir()]
