"""Run what the board of `mini` still lacks, round by round.

    python benchmarks/board_runs.py --out runs/board --max-hours 2.5

The order and the sizes are those of docs/studies/pretraining-seed.md. Runs that are there are not
made again, so the same command continues after a stop. Every step is a `crlbench evaluate`, which
prints what it does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OK, FAILED_RUNS = 0, 7
"""Exit codes after which the next step runs: a run that fails by rule is a result."""
DESIGNS = ("llama", "qwen2", "mistral", "deepseek", "gemma", "neox", "phi", "granite-hybrid")
FURTHER = ("i1o1", "i2o0")
"""Checkpoints beside i0o0, in the order in which they run."""
REAL, ALL = "real", "real,placebo,mode,stress"
ROUNDS = ((REAL, 1), (ALL, 1), (ALL, 3), (ALL, 5))
"""Arms and seeds of i0o0. The control arms have three seeds at most."""
FURTHER_SEEDS = 3
"""Of the real arm, the only one of further checkpoints."""


def steps() -> Iterator[tuple[list[str], str, int]]:
    """(models, arms, seeds) of each step, all designs together: what is compared grows alike."""
    for arms, seeds in ROUNDS:
        yield [f"tiny2-{design}" for design in DESIGNS], arms, seeds
    for checkpoint in FURTHER:
        yield [f"tiny2-{design}@{checkpoint}" for design in DESIGNS], REAL, FURTHER_SEEDS


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--max-hours", type=float, help="stop after this time, between runs")
    parser.add_argument("--jobs", type=int, help="runs at once (as many as there are cores)")
    options = parser.parse_args()
    end = None if options.max_hours is None else time.monotonic() + 3600 * options.max_hours
    for models, arms, seeds in steps():
        command = [sys.executable, "-m", "crlbench", "evaluate", "--arm", arms]
        command += [word for model in models for word in ("--model", model)]
        command += ["--seeds", str(seeds), "--track", "mini", "--recipe", "ppo"]
        command += ["--logger", "none", "--no-progress", "--quiet", "--out", str(options.out)]
        if end is not None:
            left = (end - time.monotonic()) / 3600
            if left <= 0:
                print(f"stopped before {models[0]}, {arms}; the same command continues")
                return 0
            command += ["--max-hours", f"{left:.4f}"]
        if options.jobs:
            command += ["--jobs", str(options.jobs)]
        print(f"{', '.join(models)}: {arms}, seeds: {seeds}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code not in (OK, FAILED_RUNS):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
