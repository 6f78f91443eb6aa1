"""Run what the board of `mini` still lacks, design by design.

    python benchmarks/board_runs.py --out runs/board --max-hours 2.5

The order and the sizes are those of docs/studies/pretraining-seed.md. Runs that are there are not
made again, so the same command continues after a stop; nor are those of a model whose entry stands
in leaderboard/results. Every step is a `crlbench evaluate`, which prints what it does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from crlbench.catalog.find import Catalog

BOARD = Path(__file__).parents[1] / "leaderboard/results/mini-a8d2d33fcaa9"
"""Stored entries of version 2."""
OK, FAILED_RUNS = 0, 7
"""Exit codes after which the next step runs: a run that fails by rule is a result."""
DESIGNS = ("llama", "qwen2", "mistral", "deepseek", "gemma", "neox", "phi", "granite-hybrid")
FURTHER = ("i1o1", "i2o2")
"""Checkpoints beside i0o0, in the order in which they run: independent of one another, since an
interval needs that or a whole crossing."""
REAL, ALL = "real", "real,placebo,mode,stress"
SEEDS = 5
"""Of i0o0, all declared before the first run. The control arms have three at most."""
FURTHER_SEEDS = 3
"""Of the real arm, the only one of further checkpoints."""


def steps() -> Iterator[tuple[str, str, int]]:
    """(model, arms, seeds) of each step: an entry is whole before the next one begins."""
    for design in DESIGNS:
        yield f"tiny2-{design}", ALL, SEEDS
    for checkpoint in FURTHER:
        for design in DESIGNS:
            yield f"tiny2-{design}@{checkpoint}", REAL, FURTHER_SEEDS


def is_stored(model: str, board: Path = BOARD) -> bool:
    """Whether the board has the entry of a model: only whole ones are stored."""
    design, _, checkpoint = model.partition("@")
    card = Catalog().load_model(design)
    if checkpoint and checkpoint not in card.checkpoints:
        return False
    folder = f"{design}@{Catalog().load_model(model).revision[:8]}"
    return (board / folder / "ppo").is_dir()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--max-hours", type=float, help="stop after this time, between runs")
    parser.add_argument("--jobs", type=int, help="runs at once (as many as there are cores)")
    options = parser.parse_args()
    end = None if options.max_hours is None else time.monotonic() + 3600 * options.max_hours
    for model, arms, seeds in steps():
        if is_stored(model):
            continue
        command = [sys.executable, "-m", "crlbench", "evaluate", "--model", model, "--arm", arms]
        command += ["--seeds", str(seeds), "--track", "mini", "--recipe", "ppo"]
        command += ["--logger", "none", "--no-progress", "--quiet", "--out", str(options.out)]
        if end is not None:
            left = (end - time.monotonic()) / 3600
            if left <= 0:
                print(f"stopped before {model}, {arms}; the same command continues")
                return 0
            command += ["--max-hours", f"{left:.4f}"]
        if options.jobs:
            command += ["--jobs", str(options.jobs)]
        print(f"{model}: {arms}, seeds: {seeds}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code not in (OK, FAILED_RUNS):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
