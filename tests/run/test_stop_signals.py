"""A signal to the whole process group, as schedulers and `timeout` send it, ends a command well."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from crlbench.contract.attempts import read
from tests.support import disturb

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(900)
def test_sigterm_to_the_group_ends_each_cell_with_its_checkpoint(tmp_path: Path) -> None:
    job = disturb.jobs(tmp_path)["tiny"]
    place = disturb.Place(tmp_path / "place")
    run = place.start(job)
    while run.poll() is None and len([*place.out.rglob("last.ckpt")]) < 2:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGTERM)
    assert run.wait(disturb.LIMIT_S) == 130, place.said()
    assert len([*place.out.rglob("last.ckpt")]) == 2
    (ledger,) = place.out.rglob("ledger.jsonl")
    events = [entry["event"] for entry in read(ledger)]
    assert sorted(events) == ["interrupted", "interrupted", "plan", "start", "start"]
    code, said = place.finish(job)
    assert code == 0, said
    events = [entry["event"] for entry in read(ledger)]
    assert sorted(events[5:]) == ["done", "done", "resume", "resume"]
