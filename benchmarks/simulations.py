"""What the verdict's statistics promise, and how often they keep it: simulated boards, as tables.

    python benchmarks/simulations.py [--part PART ...] [--boards N] [--jobs J] [--keep DIR]

Boards of models whose true learning is known are answered one item at a time and judged with the
package's own estimators: coverage of intervals, false wins of tiers and of a model against itself,
bias of the null corrections, power, and what happens where seeds are skewed or runs fail. The
parts of protocol CRL-2 (tasks, effects, discovery, ranks, designs, components, precision) have
boards with the spreads that were measured on mini, and are made only where --part names them. The
same --seed gives the same tables for any number of processes. --keep holds finished rows, from
which a call that was stopped goes on.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
import time
from datetime import date
from pathlib import Path

from simulation.engine import simulate_rows
from simulation.protocol2_rows import rows_2
from simulation.protocol2_tables import TABLES_2
from simulation.rows import PARTS, PARTS_2, rows
from simulation.tables import TABLES, markdown

from crlbench import __version__

BOARDS, FULL = 200, 2000
SHOWN = 5
ALL_PARTS = (*PARTS, *PARTS_2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=ALL_PARTS, default=list(PARTS))
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--boards", type=int, default=BOARDS, help=f"of each row; full: {FULL}")
    parser.add_argument("--others", type=int, help="of rows without a target (as many)")
    parser.add_argument("--replicates", type=int, default=2000, help="resamples and swaps a board")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder of finished rows")
    options = parser.parse_args()
    options.others = options.others or options.boards
    if min(options.boards, options.others, options.replicates, options.jobs) < 1:
        parser.error("--boards, --others, --replicates and --jobs must be at least 1")
    parts = tuple(options.part)
    known = [*rows(parts), *rows_2(parts)]
    wanted = [row for row in known if options.only in row.name]
    if not wanted:
        near = "; ".join(nearest(options.only, [row.name for row in known]))
        parser.error(f"--only {options.only}: no row of these parts has it; the nearest: {near}")
    for part in ALL_PARTS:
        chosen = [row for row in wanted if row.part == part]
        if chosen:
            print(markdown(part, _run(chosen, options), TABLES | TABLES_2), flush=True)
    command = shlex.join(["python", "benchmarks/simulations.py", *sys.argv[1:]])
    print(f"crlbench {__version__}, {date.today()}, seed {options.seed}; `{command}`")


def nearest(text: str, names: list[str]) -> list[str]:
    """The rows most like a text that none of them has."""
    return difflib.get_close_matches(text, names, n=SHOWN, cutoff=0.0)


def _run(chosen: list, options: argparse.Namespace) -> list:
    found, begun = [], time.monotonic()
    o = options
    counted = [(row, o.boards if row.has_target else o.others) for row in chosen]
    for row, columns in simulate_rows(counted, o.seed, o.replicates, o.jobs, o.keep):
        now = time.monotonic()
        print(f"{row.name}: {now - begun:.0f} s", file=sys.stderr, flush=True)
        found.append((row, columns))
        begun = now
    return found


if __name__ == "__main__":
    main()
