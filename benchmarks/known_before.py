"""What of the learned area of stored entries was known before, and how alike the axes are.

    python benchmarks/known_before.py [BOARD] [--markdown]

One line an entry of the recipe ``ppo``: E = H + L_known + L_new, L_new / L, the tasks with at least
64 new items and Λ_new on each. Then L_known / L of all cells together, and Spearman's correlations
of the axes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from crlbench.base.wording import number, percent
from crlbench.contribute.results.layout import RESULTS
from crlbench.stats.novelty import known_share
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs

BOARD = RESULTS / "mini-543da47d0c99"
RECIPE = "ppo"
HEADINGS = ("model", "E", "H", "L known", "L new", "L new / L", "Λ", "Λ new by task")


def cells(entry: Entry) -> Iterator[str]:
    """The figures of one entry."""
    known, area = entry.novelty, entry.efficiency
    assert known is not None and area is not None
    yield entry.model.partition("@")[0]
    yield from map(number, (area.E, area.H, known.known, known.new))
    yield percent(None if known.known_share is None else 1 - known.known_share)
    yield number(entry.lam.value)
    parts = [(task, part.lam_new) for task, part in known.tasks.items() if not part.saturated]
    yield ", ".join(f"{task} {number(lam)}" for task, lam in parts) or "saturated on all"


def main(folder: Path, markdown: bool) -> None:
    board = summarise_board(load_runs(folder, "used"), replicates=200)
    entries = [entry for entry in board.entries if entry.recipe == RECIPE]
    rows = [HEADINGS, *(tuple(cells(entry)) for entry in entries)]
    if markdown:
        rows.insert(1, ("---",) * len(HEADINGS))
    for row in rows:
        print(f"| {' | '.join(row)} |" if markdown else "  ".join(row))
    parts = [p for entry in entries if entry.novelty for p in entry.novelty.tasks.values()]
    print(f"\nL_known / L of {len(parts)} cells: {percent(known_share(parts))}")
    for pair in board.correlations[RECIPE]:
        print(f"{pair.first} and {pair.second}: {number(pair.rho, 2)} ({pair.n} entries)")


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:] if argument != "--markdown"]
    main(paths[0] if paths else BOARD, "--markdown" in sys.argv)
