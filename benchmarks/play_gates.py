"""Whether a track of episodes measures learning: the gates of its pilot, from stored runs.

    python benchmarks/play_gates.py leaderboard/results/play-FINGERPRINT [FOLDER ...]

Reads folders of runs with the real and the placebo arm. docs/pilot.md has the gates.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crlbench.base.wording import number
from crlbench.pages.words import span
from crlbench.stats.measures import BLIND
from crlbench.stats.needs import LEAST_NEW
from crlbench.verdict.blind import MOST_KEPT
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run
from crlbench.verdict.task_summary import TaskSummary

SOUND_TURNS, LOW, HIGH, PLACEBO = 0.6, 0.1, 0.75, 0.05
"""Least share of turns without a fault at the start; the band of start scores; the most that the
interval of the placebo arm's Λ may reach."""
GAINS = {"relay-sum": 0.15, "guess": 0.05, "lookup": 0.1, "calc": 0.1}
"""What each model must gain on a task."""
HOLDS = {True: "yes", False: "**no**", None: "decided before"}


@dataclass(frozen=True)
class Cell:
    """One model on one task; means over seeds."""

    model: str
    task: TaskSummary
    sound: float
    """Share of turns without a fault in the first iteration."""
    blind: float
    """Score of the start model with exchanged observations."""
    kept: float | None
    """Share of the gain that is kept with exchanged observations; None without a gain."""
    new: int
    """Items that the start model answers wrongly when it is decoded greedily."""


def cells_of(entry: Entry, runs: Sequence[Run]) -> Iterator[Cell]:
    """The cells of an entry, from its runs of the real arm."""
    for task in entry.tasks:
        own = [run for run in runs if run.task == task.task]
        sound = [1 - (run.record.health["faults"][0] or 0.0) for run in own]
        items = [run.split_items(BLIND, end=False) for run in own]
        blind = [float(scores.mean()) for scores in items if scores is not None]
        kept = None if entry.blind is None else entry.blind[task.task].kept
        new = 0 if entry.novelty is None else entry.novelty.tasks[task.task].new_items
        yield Cell(entry.display_name, task, fmean(sound), fmean(blind), kept, new)


def gates(cell: Cell) -> Iterator[tuple[str, str, str, bool | None]]:
    """Rows of the table: gate, asked, found, and whether it holds; None where that was decided
    before: starts, when the moment of the models was chosen."""
    task, sound, start, kept = cell.task, cell.sound, cell.task.start, cell.kept
    most, gain = number(task.floor), task.gain
    yield "turns without a fault", f"at least {SOUND_TURNS}", number(sound), sound >= SOUND_TURNS
    yield "start", f"{LOW} to {HIGH} at the moment's choice", number(start), None
    yield "new items", f"at least {LEAST_NEW}", str(cell.new), cell.new >= LEAST_NEW
    blind = cell.blind <= task.floor
    yield "start, exchanged observations", f"at most {most}", number(cell.blind), blind
    told = f"{number(gain.value, signed=True)} {span(gain.interval)}"
    least = GAINS[task.task]
    clear = gain.value is not None and gain.interval is not None and gain.interval.low > 0
    yield "gain", f"at least {least}", told, clear and (gain.value or 0.0) >= least
    found, holds = ("no gain", True) if kept is None else (number(kept), kept <= MOST_KEPT)
    yield "kept with exchanged observations", f"at most {MOST_KEPT}", found, holds


def main(folders: Sequence[Path]) -> None:
    for folder in folders:
        loaded = load_runs(folder, "used")
        board = summarise_board(loaded)
        print("| model | task | gate | asked | found | holds |\n|---|---|---|---|---|---|")
        for entry in board.entries:
            own = [
                run for run in loaded.runs
                if run.model == entry.model and run.record.arm == "real"
            ]  # fmt: skip
            for cell in cells_of(entry, own):
                for name, asked, found, holds in gates(cell):
                    row = (cell.model, cell.task.task, name, asked, found)
                    print(f"| {' | '.join(row)} | {HOLDS[holds]} |")
            lam = None if entry.placebo is None else entry.placebo.lam
            found = "not run" if lam is None else f"{number(lam.value)} {span(lam.interval)}"
            holds = lam is not None and lam.interval is not None and lam.interval.high <= PLACEBO
            print(
                f"| {entry.display_name} | all | Λ of the placebo arm | reaches at most {PLACEBO} "
                f"| {found} | {HOLDS[holds]} |"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="boards, below runs/")
    main(parser.parse_args().folders)
