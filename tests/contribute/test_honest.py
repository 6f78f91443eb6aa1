"""Honest records are never rejected: other recipes, models, arms, jobs, ranks, and runs that were
killed and continued. Four records, or a hundred with CRLBENCH_FULL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contribute import honest
from tests.contribute.honest import crlbench, evaluated, submitted

RECIPES = (
    *("ppo", "grpo", "dapo", "trpo", "rloo", "reinforce", "gspo", "dr-grpo", "lite-ppo"),
    *("reinforce-pp", "reinforce-pp-baseline"),
)
MODELS = ("tiny-llama-0.3m", "tiny-granite-hybrid", "tiny-deepseek", "tiny-gemma", "tiny-neox")
WAYS = ("killed", "wild rate", "two ranks", "two jobs", "alone")
RECORDS_EACH = 4
"""Two tasks, both arms, one seed."""


@dataclass(frozen=True)
class Way:
    """One honest way to an entry."""

    number: int

    @property
    def recipe(self) -> str:
        return RECIPES[self.number % len(RECIPES)]

    @property
    def model(self) -> str:
        return MODELS[(self.number + self.number // len(MODELS)) % len(MODELS)]

    @property
    def how(self) -> str:
        return WAYS[self.number % len(WAYS)]

    @property
    def more(self) -> tuple[str, ...]:
        return {
            "two jobs": ("--jobs", "2"),
            "two ranks": ("--devices", "2"),
            # Nobody's runs are all well: these diverge, and fail by rule.
            "wild rate": ("--set", "optimization.learning_rate=0.3"),
        }.get(self.how, ("--jobs", "1"))

    def __str__(self) -> str:
        return f"{self.model} {self.recipe} {self.how}"


ENTRIES = 25 if os.environ.get("CRLBENCH_FULL") else 1


def killed_once(out: Path, home: Path, way: Way) -> None:
    """Start the command of a way and kill it, with all its workers, while it trains."""
    command = [
        *(sys.executable, "-P", "-m", "crlbench", "--catalog", home, "--quiet", "evaluate"),
        *("--model", way.model, "--recipe", way.recipe, "--track", "nano", "--seeds", "1"),
        *("--arm", "real,placebo", "--logger", "none", "--out", out, *way.more),
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*map(str, command)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(out.rglob("last.ckpt")) or any(out.rglob("record.json")):
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("way", [*map(Way, range(ENTRIES))], ids=str)
def test_an_honest_entry_is_accepted(way: Way, home: Path, tmp_path: Path) -> None:
    if way.how == "killed":
        killed_once(tmp_path / "runs", home, way)
    run = evaluated(tmp_path / "runs", home, way.model, way.recipe, more=way.more)
    entry = submitted(run, tmp_path / "results", home)
    done = crlbench("--quiet", "validate", entry, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"({RECORDS_EACH} runs" in done.stdout
    done = crlbench("--quiet", "verify", entry, "--updates", "3", catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["dapo", pytest.param("lite-ppo", marks=pytest.mark.full)])
def test_runs_that_watch_seldom_or_learn_nothing_are_accepted(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy rollouts have equal scores, so that a recipe that resamples makes no update. Without
    a KL the reference is asked where an interval ends, which here is every second iteration.
    """
    coarse = honest.TRACK.replace("iterations_per_point = 1", "iterations_per_point = 2")
    monkeypatch.setattr(honest, "TRACK", coarse)
    home = honest.catalog(tmp_path / "home")
    greedy = ("--set", "sampling.temperature=0.0001")
    run = evaluated(tmp_path / "runs", home, recipe=recipe, arms="real", more=greedy)
    entry = submitted(run, tmp_path / "results", home)
    done = crlbench("--quiet", "validate", entry, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
