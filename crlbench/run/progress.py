"""Telling a person how far the whole is: one bar, or plain lines without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from crlbench.contract.events import Event
from crlbench.contract.live import Phase
from crlbench.contract.records import Cell
from crlbench.run.launcher import Outcome
from crlbench.run.plan import label

LINE_SECONDS = 30.0
BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 16
TRAINING_SHARE = 0.85
"""Roughly what the iterations are of a cell's time; the rest is scoring its end."""


PHASES = {"start": "scoring the start model", "end": "scoring the end"}
"""Phases without a reward, in words."""


@dataclass
class Tally:
    """What is known of the whole: work done, and the latest reward and score of each cell."""

    iterations: int
    """Iterations of all cells together."""
    cells: int
    done: int = 0
    reached: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    """What a cell already had when it was taken up: not work of this session."""
    phase: dict[str, Phase] = field(default_factory=dict)
    """What each running cell is doing."""
    reward: dict[str, float] = field(default_factory=dict)
    score: dict[str, float] = field(default_factory=dict)
    curve: dict[str, dict[int, float]] = field(default_factory=dict)
    """The points of each running cell's curve that were seen: scores by completions."""
    began: float | None = None
    """When the first cell had been loaded."""

    def event(self, cell: Cell, event: Event) -> None:
        """Take in one event of a running cell."""
        if event["kind"] == "start":
            self.phase.setdefault(cell.folder, "loading")
        if event["kind"] != "progress":
            return
        if self.began is None:
            self.began = time.monotonic()
        name = cell.folder
        worth = TRAINING_SHARE * event["iteration"]
        self.before.setdefault(name, worth)
        self.reached[name] = worth
        self.phase[name] = event["phase"]
        for value, latest in ((event["reward"], self.reward), (event["score"], self.score)):
            if value is not None:
                latest[name] = value
        if event["score"] is not None and event["completions"] is not None:
            self.curve.setdefault(name, {})[event["completions"]] = event["score"]

    def ended(self, outcome: Outcome, iterations: int) -> None:
        """Take in the end of a cell; a finished one counts in full."""
        name = outcome.cell.folder
        if outcome.state in ("done", "failed"):
            self.done += 1
            self.before.setdefault(name, 0)
            self.reached[name] = iterations
        for latest in (self.phase, self.reward, self.score, self.curve):
            latest.pop(name, None)

    @property
    def completed(self) -> float:
        """Work done over all cells, in iterations."""
        return sum(self.reached.values())

    def seconds_left(self) -> float | None:
        """Estimate from this session's own speed; None before anything was done."""
        worked = self.completed - sum(self.before.values())
        if worked <= 0 or self.began is None:
            return None
        return (self.iterations - self.completed) * (time.monotonic() - self.began) / worked

    def figures(self) -> str:
        """Mean reward and score of the running cells, for example ``reward 0.51 score 0.48``."""
        phases = {*self.phase.values()} - {"loading"}
        parts = [PHASES[phase] for phase in PHASES if phases == {phase}]
        for name, latest in (("reward", self.reward), ("score", self.score)):
            if latest:
                parts.append(f"{name} {sum(latest.values()) / len(latest):.2f}")
        return " ".join(parts)


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Scores from 0 to 1 as blocks of rising height, at most ``width`` of them.

    >>> sparkline([0.0, 0.25, 0.5, 1.0])
    '▁▃▅█'
    """
    if len(values) > width:
        last = len(values) - 1
        values = [values[round(i * last / (width - 1))] for i in range(width)]
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[int(min(max(v, 0.0), 1.0) * top + 0.5)] for v in values)


def iterations_of(cell: Cell) -> int:
    """Iterations of a whole run of a cell."""
    budget = cell.conditions["budget"]
    return budget["grid"] * budget["iterations_per_point"]


class Progress:
    """Shows the progress of a grid; use as a context manager."""

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        quiet: bool = False,
        bar: bool = True,
        colour: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._colour = colour
        self._with_bar = bar and not quiet and self._stream.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._lines: dict[str, Any] = {}
        """The line below the bar of each running cell."""
        self._last_line = time.monotonic()
        self.tally = Tally(iterations=sum(map(iterations_of, cells)), cells=len(cells))

    def __enter__(self) -> Progress:
        if self._with_bar:
            self._bar = _rich_bar(self._stream, self._colour)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.tally.iterations, **self._fields())
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def event(self, cell: Cell, event: Event) -> None:
        """An event of a running cell."""
        self.tally.event(cell, event)
        if self._bar is not None and event["kind"] in ("start", "progress"):
            self._show_cell(cell)
        self._show()

    def tick(self) -> None:
        """Time passed: a line is due every half minute, even when no event comes."""
        if self._bar is None:
            self._show()

    def ended(self, outcome: Outcome) -> None:
        """A cell came to an end."""
        self.tally.ended(outcome, iterations_of(outcome.cell))
        if self._bar is not None and outcome.cell.folder in self._lines:
            self._bar.remove_task(self._lines.pop(outcome.cell.folder))
        self._show()
        if self._bar is None and not self._quiet:
            tally = self.tally
            finished = outcome.state in ("done", "failed")
            why = f": {outcome.message}" if outcome.exit_code not in (0, 130) else ""
            where = f"[{tally.done}/{tally.cells}] {label(outcome.cell)}"
            self.say(f"{where} {outcome.state}{why}{self._remaining() if finished else ''}")

    def say(self, line: str) -> None:
        """One line for the person, above the bar if there is one."""
        if not self._quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        """As :meth:`say`, and never silenced."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._stream, flush=True)
            self._last_line = time.monotonic()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.tally.completed, **self._fields())
        elif not self._quiet and time.monotonic() - self._last_line >= LINE_SECONDS:
            tally = self.tally
            share = tally.completed / max(tally.iterations, 1)
            figures = tally.figures()
            self.say(
                f"[{tally.done}/{tally.cells}] {share:.0%} of all work"
                f"{', ' + figures if figures else ''}{self._remaining()}"
            )

    def _show_cell(self, cell: Cell) -> None:
        """A line of its own for a running cell: its share, its phase, and its curve so far.

        Its bar moves to and fro where no share is known: while it loads and scores its start.
        """
        name, tally = cell.folder, self.tally
        if name not in self._lines:
            short = f"{cell.model} {cell.task} {cell.arm} seed-{cell.seed_index:02d}"
            self._lines[name] = self._bar.add_task("", total=None, cells=short, figures="loading")
        phase, scores = tally.phase.get(name), [*tally.curve.get(name, {}).values()]
        words = [] if phase is None else [PHASES.get(phase, "")]
        if scores:
            words += [sparkline(scores), f"{scores[0]:.2f} -> {scores[-1]:.2f}"]
        reached = tally.reached.get(name, 0.0) / TRAINING_SHARE
        shown = {"total": iterations_of(cell), "completed": reached}
        self._bar.update(
            self._lines[name],
            figures=" ".join(filter(None, words)) or "loading",
            **(shown if phase == "train" else {}),
        )

    def _fields(self) -> dict[str, str]:
        tally = self.tally
        return {"cells": f"{tally.done}/{tally.cells} runs", "figures": tally.figures()}

    def _remaining(self) -> str:
        seconds = self.tally.seconds_left()
        return "" if seconds is None else f", about {duration(seconds)} left"


def _rich_bar(stream: TextIO, colour: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.fields[cells]}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[figures]}"),
        console=Console(file=stream, no_color=not colour),
    )


def duration(seconds: float) -> str:
    """For people: ``45 s``, ``12 min``, ``3.5 h``.

    >>> duration(44.6), duration(720), duration(12600)
    ('45 s', '12 min', '3.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
