"""Differences of Λ over all items, between recipes of one model on a board that ranks by Λ_new.

    python benchmarks/all_items.py runs/<board> ppo ppo+advantage=step-gae

Where a start model answers most items rightly when it is decoded greedily, fewer than 64 items are
new, and Λ_new has no number. Prints Λ of each recipe, and of each one minus the first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from crlbench.base.wording import number
from crlbench.errors import CrlbenchError, UsageError
from crlbench.pages.words import span
from crlbench.stats.paired import paired
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs


def replicates(entry: Entry) -> list:
    """Λ over all items of each task.

    Raises:
        UsageError: a task has none.
    """
    found = [entry.evidence.whole_replicates(task) for task in entry.task_names]
    if any(part is None for part in found):
        raise UsageError(f"{entry.name}: a task has no Λ: its runs did not end, or there is one.")
    return found


def main(folder: Path, base: str, versus: Sequence[str]) -> None:
    board = summarise_board(load_runs(folder, "used"))
    entries = {entry.recipe: entry for entry in board.entries if entry.arm == "real"}
    if unknown := [name for name in (base, *versus) if name not in entries]:
        raise UsageError(f"{folder}: no entry of {unknown[0]}. There are: {', '.join(entries)}.")
    first = entries[base]
    print(f"{base}: {number(first.lam.value, 3)} {span(first.lam.interval)}")
    for name in versus:
        effect = paired(replicates(first), replicates(entries[name]), MARGIN)
        told = f"{number(effect.value, 3, signed=True)} {span(effect.interval)}"
        print(f"{name} - {base}: {told} {effect.verdict}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a board, below runs/ or leaderboard/results/")
    parser.add_argument("base", help="recipe that the others are compared with")
    parser.add_argument("versus", nargs="*", help="the other recipes")
    options = parser.parse_args()
    try:
        main(options.folder, options.base, options.versus)
    except CrlbenchError as error:
        sys.exit(f"error: {error}")
