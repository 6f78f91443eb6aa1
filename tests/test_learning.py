"""Everything learns: each bundled model under PPO, each recipe on one bundled model.

On ten iterations of one task, or (in full) the whole track for models and the whole budget of one
task for recipes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from crlbench.algo import recipes
from crlbench.catalog import Catalog

FULL = bool(os.environ.get("CRLBENCH_FULL"))
IN_FULL_ALONE = ("tiny-llama-0.3m", "tiny-llama-3m", "tiny-neox", "tiny-phi")
"""Whose passes are of the kind of another bundled model's."""
BUNDLED = [
    name
    for name in Catalog().list("model")
    if name.startswith("tiny-") and (FULL or name not in IN_FULL_ALONE)
]
TEN_ITERATIONS = ("budget.grid=5", "budget.iterations_per_point=2", "evaluation.curve_every=5")


def settings(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def gains(out: Path, *flags: str) -> list[float]:
    """End minus start of the ID score of every run of one ``evaluate`` with one seed."""
    command = ("evaluate", "--seeds", "1", "--out", str(out), *flags)
    done = subprocess.run(
        [sys.executable, "-m", "crlbench", *command], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in out.rglob("record.json")]
    scores = [record["splits"]["id"] for record in records]
    return [score["end"] - score["start"] for score in scores]


@pytest.mark.slow
@pytest.mark.parametrize("model", BUNDLED)
def test_a_bundled_model_gains_a_tenth(tmp_path, model):
    reduced = () if FULL else ("--tasks", "list-ops", *settings(TEN_ITERATIONS))
    found = gains(tmp_path, "--model", model, *reduced)
    assert len(found) == (4 if FULL else 1)
    assert fmean(found) >= 0.10


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipes.names())
def test_a_recipe_gains_a_tenth(tmp_path, recipe):
    reduced = () if FULL else settings(TEN_ITERATIONS)
    flags = ("--model", "tiny-llama", "--recipe", recipe, "--tasks", "list-ops", *reduced)
    assert fmean(gains(tmp_path, *flags)) >= 0.10
