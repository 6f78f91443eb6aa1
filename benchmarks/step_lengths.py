"""How much longer steps are at a higher learning rate: stored runs that differ in it alone.

    python benchmarks/step_lengths.py RESULTS SLOW FAST

The check of stress arms rests on it: Adam's steps are as long as the rate says, up to what the runs
learn afterwards. Two lines: of the first iteration, and of the median over iterations.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

RATE = "conditions.optimization.learning_rate"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="folder of boards")
    parser.add_argument("boards", nargs=2, help="names of two boards, the slower one first")
    options = parser.parse_args()
    slow, fast = (read(options.results / name) for name in options.boards)
    factor = rate_of(fast) / rate_of(slow)
    by_run = [ratios(slow[key], fast[key]) for key in sorted(slow.keys() & fast.keys())]
    found = [one for one in by_run if one]
    print(f"{len(found)} pairs of runs at {factor:g} times the learning rate; steps are longer by")
    for what, values in (
        ("first iteration", [one[0] for one in found]),
        ("median over iterations", [statistics.median(one) for one in found]),
    ):
        print(f"{what}: {min(values):.2f} to {max(values):.2f}")


def read(board: Path) -> dict[tuple[str, str, str, int], Run]:
    """The real runs of a board by model, recipe, task and seed."""
    runs = load_runs(board, files="used").runs
    return {(r.model, r.recipe, r.task, r.seed): r for r in runs if r.arm == "real"}


def rate_of(runs: dict[tuple[str, str, str, int], Run]) -> float:
    """The learning rate of a board."""
    return next(iter(runs.values())).record.fingerprint.leaves[RATE]


def ratios(slow: Run, fast: Run) -> list[float]:
    """Length of the steps of each iteration that both made, in those of the slow run."""
    norms = (run.record.health.get("update_norm", ()) for run in (slow, fast))
    return [after / before for before, after in zip(*norms, strict=False) if before and after]


if __name__ == "__main__":
    main()
