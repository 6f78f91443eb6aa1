"""What protocol CRL-2's statistics say of a stored board: a worked example on one axis.

    python benchmarks/board_statistics.py leaderboard/results/mini-543da47d0c99 [--recipe ppo]

Prints, for Λ of the entries of one recipe, the intervals over tasks, minimum-effect tiers, rank
intervals with tasks resampled, the false-discovery line of the pairs and the variance components.
Tiers and line start from the verdicts that the site shows of the pairs.
Every entry of these results is one checkpoint, so that nothing here is about a design.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from textwrap import fill

import numpy as np

from crlbench.stats.false_discovery import discoveries
from crlbench.stats.intervals import Interval
from crlbench.stats.minimum_effect import minimum_effect_tiers, pair_degrees, pair_errors
from crlbench.stats.rank_over_tasks import rank_over_tasks
from crlbench.stats.task_sample import interval_over_tasks
from crlbench.stats.variance_components import variance_components
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.pairs import compare_pair

AXIS = "efficiency"
WIDTH = 119
"""Characters of a line of text, as in the documents."""
MOST = 1.0
"""Of Λ: everything at once."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="folder of one board's results")
    parser.add_argument("--recipe", default="ppo")
    options = parser.parse_args()
    board = summarise_board(load_runs(options.results))
    entries = [
        entry
        for entry in board.entries
        if entry.recipe == options.recipe and entry.axes[AXIS].value is not None
    ]
    if len(entries) < 2:
        parser.error(f"{options.results}: fewer than two entries of recipe '{options.recipe}'")
    print(table_of_entries(entries))
    print()
    print(table_of_components(entries))
    command = shlex.join(["python", "benchmarks/board_statistics.py", *sys.argv[1:]])
    print(f"\n`{command}`")
    return 0


def table_of_entries(entries: Sequence[Entry]) -> str:
    """A line an entry, by estimate, and the false-discovery line."""
    scores = [entry.axes[AXIS] for entry in entries]
    tasks = sorted(set.intersection(*(set(score.by_task) for score in scores)))
    values = np.array([score.value for score in scores])
    n = min(score.n for score in scores)
    errors = pair_errors(np.stack([score.spread for score in scores]), n)
    by_task = np.array([[score.by_task[task].value for task in tasks] for score in scores])
    seeds = [[entry.evidence.seeds(AXIS, task)[:n] for task in tasks] for entry in entries]
    df = pair_degrees(np.array(seeds), errors)
    calls = verdicts(entries)
    tiers = minimum_effect_tiers(
        values,
        errors,
        df,
        MARGIN,
        equivalent=calls == "equivalent",
        better=calls == "better",
        names=[entry.name for entry in entries],
    )
    ranks = rank_over_tasks(by_task)
    lines = [
        "| entry | Λ | 95 % on these tasks | 95 % over other tasks | tier | ranks | "
        "ranks, other tasks |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for at in tiers.order:
        score = scores[at]
        wide = interval_over_tasks(
            by_task[at], score.drawn, [score.n] * len(tasks), bounds=(-math.inf, MOST)
        ).interval
        cells = (
            entries[at].name,
            f"{values[at]:.3f}",
            _ends(score.interval),
            _ends(wide),
            str(tiers.tier[at]),
            _range(tiers.ranks[at]),
            "–" if ranks.ranks is None else _range(ranks.ranks[at]),
        )
        lines.append("| " + " | ".join(cells) + " |")
    pairs = np.triu_indices(len(values), 1)
    line = discoveries(
        (values[:, None] - values)[pairs],
        errors[pairs],
        df[pairs],
        MARGIN,
        verdicts=calls[pairs].tolist(),
    )
    below = (
        f"{len(pairs[0])} pairs: {line.differ} verdicts of a difference, of which "
        f"{line.differ_stay} stay at a false-discovery rate of {line.rate:.0%}; "
        f"{line.equivalent} of equivalence, of which {line.equivalent_stay} stay. A tier breaks at "
        f"a margin of {MARGIN:g}. The bar of the ranks over tasks is |t| = {ranks.bar:.1f}. "
        f"Degrees of freedom of a pair: {df[pairs].min():.0f} to {df[pairs].max():.0f}."
    )
    lines.append(f"\n{fill(below, WIDTH)}")
    return "\n".join(lines)


def verdicts(entries: Sequence[Entry]) -> np.ndarray:
    """(M, M) what the site says of each row against each column; "" on the diagonal."""
    calls = np.full((len(entries), len(entries)), "", dtype="<U16")
    opposite = {"better": "worse", "worse": "better"}
    for i, j in combinations(range(len(entries)), 2):
        call = compare_pair(entries[i], entries[j], axes=(AXIS,)).axes[AXIS].call or "none"
        calls[j, i], calls[i, j] = call, opposite.get(call, call)
    return calls


def table_of_components(entries: Sequence[Entry]) -> str:
    """Variance components of Λ over entries, tasks and seeds.

    All seeds of a task answer the same items: the choice of items is part of ``task`` and of
    ``entry:task``. What is left is the seed, with the noise of its sampled answers.
    """
    rows = [
        (entry.name, task, float(value))
        for entry in entries
        for task, runs in entry.evidence.tasks.items()
        for value in runs.lam
    ]
    names, tasks, values = zip(*rows, strict=True)
    found = variance_components(
        values, {"entry": names, "task": tasks}, ("entry", "task", "entry:task")
    )
    lines = ["| component | levels | sd | 95 % |", "| --- | --- | --- | --- |"]
    for one in found.components:
        ends = one.spread_interval
        high = "∞" if math.isinf(ends.high) else f"{ends.high:.3f}"
        lines.append(f"| {one.name} | {one.levels} | {one.spread:.3f} | {ends.low:.3f} to {high} |")
    return "\n".join(lines)


def _ends(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


def _range(ranks: Sequence[int]) -> str:
    return f"{ranks[0]}-{ranks[1]}"


if __name__ == "__main__":
    raise SystemExit(main())
