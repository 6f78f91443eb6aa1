"""One model under two names: does the verdict tell it from itself?

    crlbench evaluate --track mini@1 --model tiny-llama --seeds 20 --out runs/aa
    python benchmarks/aa.py runs/aa --markdown [--splits 200]

The first half of the seeds are called A and the second half B, and the two go through the same
board as any two models: nothing is ranked in earnest, and track and division do not matter. They
must end in one tier on all three axes; at a nominal error of 5 % about one such check in twenty
fails on an axis. An axis without a number, or without a tier, has not passed: exit code 1.

One split is one draw. With --splits the seeds are dealt into two halves again and again, and the
share of splits is printed that ends in two tiers: what the test does to real runs, to be held
against its nominal error.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crlbench.base.wording import NONE, number
from crlbench.pages.words import difference
from crlbench.seeding import derive
from crlbench.stats.intervals import REPLICATES
from crlbench.verdict.board import (
    AXES,
    AXIS_SIGNS,
    AXIS_WORDS,
    Axis,
    Board,
    paired_axes,
    rank_entries,
    summarise_board,
)
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.runs import Run

NAMES = ("A", "B")
SPLIT_REPLICATES = 2000
Tiers = dict[Axis, list[int]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder of one model's runs, seeds in order")
    parser.add_argument("--markdown", action="store_true", help="a table with its command")
    parser.add_argument("--splits", type=int, default=0, help="random halves besides")
    options = parser.parse_args()
    runs = load_runs(options.runs)
    board = board_of(runs)
    found = tiers(board)
    command = shlex.join(["python", "benchmarks/aa.py", *sys.argv[1:]])
    print(table(board, found, command if options.markdown else None))
    if options.splits:
        print(f"\n{split_table(told_apart(runs, options.splits), options.splits)}")
    for axis in untold(found):
        print(f"{AXIS_WORDS[axis]}: no tier for both, so it has not passed", file=sys.stderr)
    return 0 if all(numbers == [1, 1] for numbers in found.values()) else 1


def board_of(runs: Runs, order: Sequence[int] | None = None, replicates: int = REPLICATES) -> Board:
    """The board of the two halves."""
    with tempfile.TemporaryDirectory(prefix="crlbench-aa-") as folder:
        return summarise_board(two_names(runs, Path(folder), order), replicates=replicates)


def told_apart(runs: Runs, splits: int) -> dict[Axis, tuple[int, int]]:
    """Per axis, in how many random halvings of the seeds tiers, and verdicts, tell them apart."""
    seeds = sorted({run.record.seed.index for run in runs if run.record.arm == "real"})
    apart = {axis: [0, 0] for axis in AXES}
    for split in range(splits):
        generator = np.random.Generator(np.random.PCG64(derive(0, "aa", split)))
        board = board_of(runs, generator.permutation(len(seeds)).tolist(), SPLIT_REPLICATES)
        found, pairs = tiers(board, SPLIT_REPLICATES), paired_axes(*board.entries, board.margin)
        for axis in AXES:
            effect = pairs[axis].effect
            apart[axis][0] += len(set(found[axis])) > 1
            apart[axis][1] += effect is not None and effect.verdict in ("better", "worse")
    return {axis: (tier, verdict) for axis, (tier, verdict) in apart.items()}


def split_table(apart: dict[Axis, tuple[int, int]], splits: int) -> str:
    """One row an axis."""
    lines = ["| axis | random halves | in two tiers | better or worse |", "|---|---|---|---|"]
    for axis, counts in apart.items():
        shares = " | ".join(f"{count / splits:.3f}" for count in counts)
        lines.append(f"| {AXIS_WORDS[axis]} ({AXIS_SIGNS[axis]}) | {splits} | {shares} |")
    return "\n".join(lines)


def two_names(runs: Runs, folder: Path, order: Sequence[int] | None = None) -> Runs:
    """The real runs of one model and recipe as those of two models with half of the seeds each.

    Args:
        order: the seed indices, those of the first half first; as they are where it is None.
        folder: empty; gets links to the runs, apart from the plan and the ledger of all seeds, by
            which each half would lack the other.

    Raises:
        SystemExit: several models or recipes, or an odd number of seeds.
    """
    real = [run for run in runs if run.record.arm == "real"]
    indices = sorted({run.record.seed.index for run in real})
    entries = {(run.model, run.recipe) for run in real}
    if len(entries) != 1 or len(indices) % 2 or indices != list(range(len(indices))):
        raise SystemExit(
            f"{runs.folder}: {len(entries)} models or recipes with seeds {indices}; this check "
            "needs one, with an even number of seeds from 0 on."
        )
    half, place = len(indices) // 2, {index: i for i, index in enumerate(order or indices)}
    halves = [_renamed(run, place[run.record.seed.index], half, folder) for run in real]
    return Runs(folder, tuple(sorted(halves, key=lambda run: run.order)))


def _renamed(run: Run, place: int, half: int, folder: Path) -> Run:
    record = run.record
    slug = f"{record.subject.slug}-{NAMES[place // half]}"
    changed = {
        "subject": record.subject.model_copy(update={"slug": slug, "display_name": slug}),
        "seed": record.seed.model_copy(update={"index": place % half}),
    }
    link = folder / slug / record.task.name / f"seed-{place % half:02d}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(run.folder.resolve(), target_is_directory=True)
    return Run(record.model_copy(update=changed), link)


def tiers(board: Board, replicates: int = REPLICATES) -> Tiers:
    """Per axis the tier of each name that has one; empty where nothing could be said."""
    entries = [dataclasses.replace(entry, standing="provisional") for entry in board.entries]
    ranked = {axis: rank_entries(axis, "aa", entries, None, replicates) for axis in AXES}
    return {axis: [s.tier for s in found.ranking.standings] for axis, found in ranked.items()}


def untold(found: Tiers) -> list[Axis]:
    """The axes on which not both names have a tier."""
    return [axis for axis, numbers in found.items() if len(numbers) < len(NAMES)]


def table(board: Board, found: Tiers, command: str | None) -> str:
    """One row an axis; below it the board and ``command``, where there is one."""
    a, b = board.entries
    pairs = paired_axes(a, b, board.margin)
    lines = [
        f"| axis | {a.model} | {b.model} | difference, 95 % | verdict | tiers |",
        "|---|---|---|---|---|---|",
    ]
    for axis in AXES:
        effect = pairs[axis].effect
        cells = (
            f"{AXIS_WORDS[axis]} ({AXIS_SIGNS[axis]})",
            *(number(entry.axes[axis].value) for entry in (a, b)),
            difference(effect),
            NONE if effect is None else effect.verdict,
            ", ".join(map(str, found[axis])) or NONE,
        )
        lines.append(f"| {' | '.join(cells)} |")
    if command is not None:
        first = f"{board.track} version {board.track_version} (fingerprint {board.fingerprint})"
        lines += ["", f"{first}, {a.n} seeds each, `{command}`"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
