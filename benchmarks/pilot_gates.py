"""Whether a track of protocol CRL-2 measures learning: the gates of its pilot, from stored runs.

    python benchmarks/pilot_gates.py runs/pilot-gates/mini-FINGERPRINT [FOLDER ...]

Reads folders of runs with the real and the mode arm on calibration tasks, as `crlbench evaluate
--arm real,mode` makes them. Means are over models and tasks; each model has its own figures above.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crlbench.base.wording import number
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs

GAP, LOW, HIGH = 0.15, 0.05, 0.6
"""Most that greedy may lie above sampled at the start; the band of sampled starts."""
NEW_SHARE, MODE_SHARE, GAIN = 0.5, 0.5, 0.1
"""Least L_new / L, most Λ of the mode arm against the real one, least gain."""


@dataclass(frozen=True)
class Cell:
    """One model on one task; means over seeds."""

    model: str
    task: str
    sampled: float
    greedy: float
    gain: float
    known: float
    new: float
    lam: float
    mode: float


def cells_of(entry: Entry) -> list[Cell]:
    """The cells of an entry.

    Raises:
        SystemExit: it has no mode arm, or a task without an end or without greedy answers.
    """
    cells = []
    for task in entry.tasks:
        novelty = None if entry.novelty is None else entry.novelty.tasks.get(task.task)
        mode = None if entry.mode is None else entry.mode.by_task[task.task].value
        greedy = [split.start for split in task.splits if split.name == "id_greedy"]
        if novelty is None or mode is None or task.gain_u.value is None or not greedy:
            raise SystemExit(
                f"{entry.name}: {task.task} lacks the mode arm, an end or greedy items"
            )
        lam = task.lam.value
        assert lam is not None
        cells.append(
            Cell(
                model=entry.display_name,
                task=task.task,
                sampled=task.start,
                greedy=greedy[0],
                gain=task.gain_u.value,
                known=novelty.known,
                new=novelty.new,
                lam=lam,
                mode=mode,
            )
        )
    return cells


def gates(cells: Sequence[Cell]) -> list[tuple[str, str, str, bool]]:
    """Rows of the table: gate, asked, found, and whether it holds."""
    gap = fmean(cell.greedy - cell.sampled for cell in cells)
    starts = [cell.sampled for cell in cells]
    new = fmean(cell.new for cell in cells)
    learned = new + fmean(cell.known for cell in cells)
    real, mode = (fmean(getattr(cell, name) for cell in cells) for name in ("lam", "mode"))
    gain = fmean(cell.gain for cell in cells)
    share = new / learned if learned > 0 else 0.0
    return [
        ("greedy less sampled at the start", f"at most {GAP}", number(gap), gap <= GAP),
        (
            "sampled at the start, each",
            f"{LOW} to {HIGH}",
            f"{number(min(starts))} to {number(max(starts))}",
            LOW <= min(starts) and max(starts) <= HIGH,
        ),
        ("L_new / L", f"at least {NEW_SHARE}", number(share), share >= NEW_SHARE),
        (
            "Λ, mode against real",
            f"at most {MODE_SHARE}",
            f"{number(mode)} / {number(real)} = {number(mode / real) if real > 0 else '-'}",
            real > 0 and mode <= MODE_SHARE * real,
        ),
        ("gain", f"at least {GAIN}", number(gain), gain >= GAIN),
    ]


def main(folders: Sequence[Path]) -> None:
    boards = [summarise_board(load_runs(folder, "used"), replicates=200) for folder in folders]
    cells = [cell for board in boards for entry in board.entries for cell in cells_of(entry)]
    print("| model | task | sampled | greedy | gain | L known | L new | Λ | Λ, mode arm |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cell in cells:
        figures = (cell.sampled, cell.greedy, cell.gain, cell.known, cell.new, cell.lam, cell.mode)
        print(f"| {cell.model} | {cell.task} | {' | '.join(map(number, figures))} |")
    print("\n| gate | asked | found | holds |\n|---|---|---|---|")
    for name, asked, found, holds in gates(cells):
        print(f"| {name} | {asked} | {found} | {'yes' if holds else '**no**'} |")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
