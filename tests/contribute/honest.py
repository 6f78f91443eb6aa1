"""Real entries, made in seconds: a track of a few iterations in a catalogue of its own."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crlbench.cli import main

TRACK = """\
id = "nano"
version = 1
summary = "Three iterations on two tasks, for tests"
ranked = true
tasks = ["addition", "counting"]

[conditions.budget]
prompts = 4
completions = 4
grid = 3
iterations_per_point = 1

[conditions.sampling]
temperature = 1.0
max_completion_bytes = 24

[conditions.optimization]
learning_rate = 1e-4
schedule = "constant"
warmup_iterations = 2
epochs = 1
minibatches = 2
beta1 = 0.9
beta2 = 0.95
adam_eps = 1e-8
weight_decay = 0.0
max_grad_norm = 1.0
value_learning_rate = 1e-3

[conditions.data]
levels = [1, 2]
reward_scale = 1.0
reward = "outcome"

[conditions.evaluation]
curve_items = 32
curve_every = 1
end_items = 32
end_draws = 2
retain = ["copy"]
retain_items = 8

[conditions.rules]
score_drop = 0.5
kl_cap = 1.0
entropy_floor = 0.10
truncated_share = 0.95
patience = 5
skipped_updates = 5

[conditions.hardware]
threads = 1
precision = "fp32"
"""

MODEL, RECIPE = "tiny-llama-0.3m", "ppo"


def catalog(folder: Path) -> Path:
    """A catalogue whose only entry is the track ``nano``."""
    tracks = folder / "leaderboard" / "tracks"
    tracks.mkdir(parents=True, exist_ok=True)
    (tracks / "nano.toml").write_text(TRACK)
    return folder


def crlbench(
    *arguments: object, cwd: Path | None = None, catalog: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command as it is typed, without the second that a process of its own takes."""
    out, error = io.StringIO(), io.StringIO()
    typed = [*map(str, (*(("--catalog", catalog) if catalog else ()), *arguments))]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        with contextlib.chdir(cwd or Path.cwd()):
            code = main(typed)
    return subprocess.CompletedProcess(typed, code, out.getvalue(), error.getvalue())


def evaluated(
    out: Path,
    home: Path,
    model: str = MODEL,
    recipe: str = RECIPE,
    seeds: int = 1,
    arms: str = "real,placebo",
    more: Sequence[str] = (),
) -> Path:
    """Finished runs of ``nano``; returns their run folder."""
    done = crlbench(
        *("--quiet", "--no-progress", "evaluate", "--model", model, "--recipe", recipe),
        *("--track", "nano", "--seeds", seeds, "--arm", arms, "--out", out, "--logger", "none"),
        *more,
        catalog=home,
    )
    assert done.returncode in (0, 7), done.stderr
    return run_in(out, model, recipe)


def run_in(out: Path, model: str = MODEL, recipe: str = RECIPE) -> Path:
    """The run folder of one model and recipe below a folder of runs."""
    (plan,) = out.glob(f"nano-*/{model}@*/{recipe}/plan.json")
    return plan.parent


def submitted(run: Path, results: Path, home: Path) -> Path:
    """A run folder as a submitted entry; returns its folder."""
    done = crlbench(
        *("--quiet", "submit", run, "--to", results, "--submitter", "@someone", "--no-pr"),
        catalog=home,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return results.joinpath(*run.parts[-3:])


def copied(entry: Path, results: Path) -> Path:
    """The same entry below another folder of results, for a test to damage."""
    target = results.joinpath(*entry.parts[-3:])
    shutil.copytree(entry, target)
    return target
