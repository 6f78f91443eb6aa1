"""Every bundled model learns: on a quarter of one task's budget, or (in full) the whole track."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import fmean

import pytest

from crlbench.catalog import Catalog

FULL = bool(os.environ.get("CRLBENCH_FULL"))
BUNDLED = [name for name in Catalog().list("model") if name.startswith("tiny-")]
REDUCED = ("--tasks", "list-ops", "--set", "budget.grid=5")


@pytest.mark.slow
@pytest.mark.parametrize("model", BUNDLED)
def test_a_bundled_model_gains_a_tenth(tmp_path, model):
    command = ("evaluate", "--model", model, "--seeds", "1", "--out", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "crlbench", *command, *(() if FULL else REDUCED)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    scores = [record["splits"]["id"] for record in records]
    assert len(scores) == (4 if FULL else 1)
    assert fmean(s["end"] - s["start"] for s in scores) >= 0.10
