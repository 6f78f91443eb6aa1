"""What a folder of runs holds at this moment: ended, running and planned ones, with their curves.

Everything is read from the files of the runs, and :mod:`crlbench.contract.live` says what is being
made. Nothing is computed that a board would rank.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from crlbench.contract.attempts import LEDGER_NAME, declarations, planned, read
from crlbench.contract.live import LiveRun, read_live
from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import UsageError, ValidationError

State = Literal["done", "failed", "running", "waiting", "stopped"]
"""``failed`` broke a stability rule; ``stopped`` ended without a record, or was never begun and no
command runs."""
PHASES = {
    "loading": "loading",
    "start": "scoring the start model",
    "train": "training",
    "end": "scoring the end",
}

Points = tuple[tuple[int, float], ...]
"""Completions and mean score."""
Progress = tuple[State, str, float, Points]
"""State, note, share and curve of a run."""


@dataclass(frozen=True)
class RunUnderWay:
    """One planned run."""

    task: str
    arm: str
    seed: int
    state: State
    note: str
    """Its phase, the rule that it broke, or why it stopped; empty where there is nothing to say."""
    share: float
    """Part of its iterations that are done, 0 to 1."""
    curve: Points


@dataclass(frozen=True)
class FolderUnderWay:
    """The planned runs of a model with a recipe."""

    folder: Path
    board: str
    """``<track>-<fingerprint>``."""
    name: str
    """``<model>@<revision>/<recipe>``."""
    runs: tuple[RunUnderWay, ...]
    budget: int
    """Completions of a whole run; at least 1."""
    running: bool
    """Whether a command makes runs of it."""
    seconds_left: float | None
    """Estimate of that command for all that it makes."""

    def count(self, *states: State) -> int:
        """How many runs are in one of these states."""
        return sum(run.state in states for run in self.runs)

    @property
    def ended(self) -> frozenset[tuple[str, str, int]]:
        """The runs with a record, by task, arm and seed."""
        return frozenset(
            (run.task, run.arm, run.seed) for run in self.runs if run.state in ("done", "failed")
        )


@dataclass
class Watcher:
    """Looks at a folder again and again; a record is read once."""

    root: Path
    _ends: dict[tuple[Path, int, int], Progress] = field(default_factory=dict)
    """What records say, by path, time and size."""

    def look(self) -> tuple[FolderUnderWay, ...]:
        """The folders below the root that hold a plan, in the order of their names.

        Raises:
            UsageError: there is no such folder, none has a plan, or it holds submitted results.
            ValidationError: something stored is damaged; names the file.
            EnvironmentUnfit: a file may not be read.
        """
        if not self.root.is_dir():
            raise UsageError(
                f"no such folder: {self.root}. Give the folder of a run (below runs/)."
            )
        folders = []
        for place, _, names in os.walk(self.root):
            if PACKED in names:
                raise UsageError(
                    f"{self.root} holds submitted results, which run no more. See: "
                    "crlbench report RUN --out F.html"
                )
            if PLAN_NAME in names:
                folders.append(Path(place))
        if not folders:
            raise UsageError(
                f"{self.root}: no {PLAN_NAME} below it, so nothing was begun there. Give the "
                "folder of a run (below runs/), or run `crlbench evaluate` first."
            )
        return tuple(self._folder(folder) for folder in sorted(folders))

    def _folder(self, folder: Path) -> FolderUnderWay:
        events = read(folder / LEDGER_NAME)
        counts = planned(declarations(events))
        if not counts:
            raise ValidationError(
                f"{folder}: {PLAN_NAME} stands without the plan in {LEDGER_NAME}. Repeat the "
                "command that made these runs: it writes both."
            )
        parts = folder.absolute().parts
        name = "/".join(parts[-2:])
        live = read_live(folder)
        if live is not None and not live.is_alive:
            live = None
        last = {event["cell"]: event for event in events if event["event"] != "plan"}
        making = {run.name: run for run in live.runs} if live is not None else {}
        runs = []
        for (task, arm), count in counts.items():
            for seed in range(count):
                below = f"{task}/{arm}/seed-{seed:02d}"
                label = f"{name}/{below}"
                run = _begun(making.get(label), last.get(label), live is not None)
                path = folder / below / RECORD_NAME
                run = self._ended(path) if path.is_file() else run
                runs.append(RunUnderWay(task, arm, seed, *run))
        left = None if live is None else live.seconds_left
        budget = _budget(events, runs)
        return FolderUnderWay(
            folder, parts[-3], name, tuple(runs), budget, live is not None, left
        )

    def _ended(self, path: Path) -> Progress:
        """State, note, share and curve of a run with a record."""
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._ends:
            self._ends[key] = _told(read_record(path, own=True))
        return self._ends[key]


def _told(record: RunRecord) -> Progress:
    curve = tuple((point.x, point.score) for point in record.curve)
    if record.status.state == "failed":
        return "failed", record.status.rule or "", 1.0, curve
    return "done", "", 1.0, curve


def _begun(run: LiveRun | None, event: Mapping[str, Any] | None, alive: bool) -> Progress:
    """State, note, share and curve of a run without a record.

    Args:
        run: what the command says that makes it; None where none does.
        event: the last one of its ledger.
        alive: whether a command makes runs in the folder.
    """
    if run is not None:
        share = min(run.iteration / max(run.iterations, 1), 1.0)
        return "running", PHASES[run.phase], share, run.curve
    if alive and (event is None or event["event"] != "error"):
        return "waiting", "", 0.0, ()
    return "stopped", _why(event), 0.0, ()


def _budget(events: Sequence[Mapping[str, Any]], runs: Sequence[RunUnderWay]) -> int:
    """Completions of a run as the last plan states them, and no fewer than any run has."""
    plans = [event["detail"] for event in events if event["event"] == "plan"]
    leaves = plans[-1].get("control")
    stated = [
        leaves.get(f"conditions.budget.{name}") if isinstance(leaves, dict) else None
        for name in ("prompts", "completions", "grid", "iterations_per_point")
    ]
    whole = math.prod(n for n in stated if type(n) is int) if None not in stated else 0
    return max(1, whole, *(x for run in runs for x, _ in run.curve))


def _why(event: Mapping[str, Any] | None) -> str:
    """Why a run without a record does not run, as the ledger has it."""
    if event is None:
        return "not begun"
    if event["event"] in ("start", "resume"):
        return "its command ended without a word; the same command continues"
    if event["event"] in ("done", "failed"):
        return "its record is gone"
    reason = event["detail"].get("reason")
    return f"{event['event']}: {reason}" if isinstance(reason, str) else event["event"]

