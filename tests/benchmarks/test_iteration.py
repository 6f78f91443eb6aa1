"""Where the time of an iteration goes: one real run of the program on a small model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import iteration
import pytest

from tests.support.checkpoints import write_checkpoint
from tests.support.marks import first

PROGRAM = Path(iteration.__file__)


@pytest.mark.slow
@pytest.mark.parametrize("work", first(["ppo", "grpo"]))
def test_every_phase_and_kind_has_its_share(work, tmp_path):
    folder = write_checkpoint(tmp_path / "m")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--work", work, "--model", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CRLBENCH_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    phases, kinds = done.stdout.split("\n\n")[:2]
    expected = {*iteration.PHASES.values(), iteration.REST} - {"old log-probabilities"}
    rows = dict(re.findall(r"^\| (.+?) \| [\d.]+ \| (\d+)% \|$", phases, re.M))
    assert set(rows) == expected
    for table in (phases, kinds):
        shares = [int(share) for share in re.findall(r"\| (\d+)% \|", table)]
        assert abs(sum(shares) - 100) <= len(shares)
    assert "| matrix products |" in kinds and "| attention |" in kinds


def test_what_a_card_was_given_is_counted_by_names():
    card, host = SimpleNamespace(name="CUDA"), SimpleNamespace(name="CPU")
    events = [
        SimpleNamespace(key=key, count=count, device_type=place, self_device_time_total=time)
        for key, count, place, time in (
            ("void gemm<...>", 3, card, 2e6),
            ("Memcpy HtoD (Pinned -> Device)", 5, card, 1e6),
            ("cudaLaunchKernel", 7, host, 0),
            ("cudaGraphLaunch", 2, host, 0),
            ("cudaStreamSynchronize", 4, host, 0),
            ("cudaMemcpyAsync", 6, host, 0),
            ("aten::mm", 9, host, 0),
        )
    ]
    found = iteration.on_card(events)
    assert found == {"kernels": 3, "seconds": 2.0, "launches": 9, "waits": 4, "copies": 6}


def test_operations_are_told_apart_by_their_names():
    events = [
        SimpleNamespace(key=key, self_cpu_time_total=1e6)
        for key in (
            "aten::mm",
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
            "aten::_to_copy",
            "aten::copy_",
            "aten::mul",
            "aten::fill_",
            "MmBackward0",
        )
    ]
    found = iteration.kinds(events, 10.0)
    assert found == {
        "matrix products": 1.0,
        "attention": 1.0,
        "copies, casts, concatenations": 2.0,
        "element by element, sums": 1.0,
        "filling with zeros": 1.0,
        iteration.OUTSIDE: 4.0,
    }
