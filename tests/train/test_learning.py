"""Everything learns: bundled models under PPO, each recipe on one bundled model.

A model with experts, and a recipe of each kind, on ten iterations of one task; in full all models
on the whole track, and all recipes for the whole budget of one task.
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
from crlbench.algo.recipe import Recipe
from crlbench.catalog.find import Catalog

FULL = bool(os.environ.get("CRLBENCH_FULL"))
BUNDLED = [
    name
    for name in Catalog().list("model")
    if name.startswith("tiny-")
    and not name.endswith("-play")
    and (FULL or name == "tiny-deepseek")
]
RECIPES = recipes.names_of(Recipe) if FULL else ("grpo", "trpo")

REDUCED = (
    *("--tasks", "list-ops", "--set", "budget.grid=5", "--set", "budget.iterations_per_point=2"),
    *("--set", "evaluation.curve_every=5", "--set", "evaluation.end_draws=1"),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600 if FULL else 1800)]


def gains(out: Path, command: str, *flags: str) -> dict[tuple[str, str], list[float]]:
    """End minus start of the ID score of every run of one seed, by model and recipe."""
    done = subprocess.run(
        [sys.executable, "-m", "crlbench", command, "--seeds", "1", "--out", str(out), *flags],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], list[float]] = {}
    for path in out.rglob("record.json"):
        record = json.loads(path.read_text())
        score = record["splits"]["id"]
        key = record["subject"]["slug"], record["algo"]["name"]
        found.setdefault(key, []).append(score["end"] - score["start"])
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[float]]:
    """The models in one command, which loads its libraries once."""
    named = [part for name in BUNDLED for part in ("--model", name)]
    return gains(tmp_path_factory.mktemp("models"), "evaluate", *named, *(() if FULL else REDUCED))


@pytest.mark.parametrize("model", BUNDLED)
def test_a_bundled_model_gains_a_tenth(models: dict[tuple[str, str], list[float]], model: str):
    found = models[model, "ppo"]
    assert len(found) == (4 if FULL else 1)
    assert fmean(found) >= 0.10


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[float]]:
    """The recipes in one command."""
    others = [part for name in RECIPES if name != "grpo" for part in ("--versus", name)]
    flags = ("--model", "tiny-llama", "--base", "grpo", *others)
    reduced = ("--tasks", "list-ops") if FULL else REDUCED
    return gains(tmp_path_factory.mktemp("arms"), "ablate", *flags, *reduced)


@pytest.mark.full
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_gains_a_tenth(arms: dict[tuple[str, str], list[float]], recipe: str):
    (gain,) = arms["tiny-llama", recipe]
    assert gain >= 0.10
