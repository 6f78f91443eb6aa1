"""The times to threshold of an entry, as the ``[reference]`` of a track.

    python benchmarks/reference.py RUNS

Speed profiles are ratios to these times. They belong to the track and are frozen with it, so that
no entry moves another one's score. RUNS holds the runs of one entry; a time is when half of its
seeds have arrived, and a threshold that fewer reach is left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crlbench.disk.toml import dump_toml
from crlbench.stats.thresholds import reference_times
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.efficiency import times
from crlbench.verdict.load import load_runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    options = parser.parse_args()
    print(dump_toml({"reference": reference(summarise_board(load_runs(options.runs), 100))}))


def reference(board: Board) -> dict[str, object]:
    """The table of the only entry of a board.

    Raises:
        SystemExit: there are several entries.
    """
    if len(board.entries) != 1:
        raise SystemExit(f"{len(board.entries)} entries; the reference is one")
    (entry,) = board.entries
    arrived = {
        (task, tau): found
        for task, view in entry.efficiency.tasks.items()
        for tau, found in times(view.curves).items()
    }
    by_task: dict[str, dict[str, float]] = {}
    for (task, tau), time in reference_times(arrived).items():
        by_task.setdefault(task, {})[f"{tau:g}".removeprefix("0")] = time
    facts = {"model": entry.model, "recipe": entry.recipe, "seeds": entry.n}
    return facts | {"times": by_task}


if __name__ == "__main__":
    main()
