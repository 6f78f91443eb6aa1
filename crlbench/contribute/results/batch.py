"""Verifying many results, each within its own time, so that none of them keeps another waiting.

What a result turns out to be (proven, refuted, not checked) is an outcome of that result. It ends
neither the batch nor the work on the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crlbench.catalog.find import Catalog
from crlbench.contract.verification import BADGES
from crlbench.contribute.results.changes import git
from crlbench.disk.packed import PACKED
from crlbench.errors import OK, CrlbenchError, Mismatch, printable
from crlbench.verdict.attempts import Key, key_of, read_attempts
from crlbench.verdict.badges import Badges, read_badges
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

GRACE_S = 30.0
"""Seconds that a command has to put its temporary folders away once it must end."""
LEAST_S = 20.0
"""Nothing is begun with less time left."""
WHY = 300
"""Characters of a reason."""

Outcome = Literal["proven", "mismatch", "unchecked"]


@dataclass(frozen=True)
class Proof:
    """What became of one result."""

    entry: str
    outcome: Outcome
    why: str = ""

    def __str__(self) -> str:
        return f"{self.entry}: {self.outcome}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True)
class Subject:
    """A stored entry, and what of it nobody has verified yet."""

    folder: Path
    runs: tuple[Run, ...]
    badges: Badges
    open_division: bool
    model: str
    """Slug of its entry."""

    @property
    def name(self) -> str:
        """``<board>/<model>@<revision>/<recipe>``."""
        return "/".join(self.folder.parts[-3:])

    def without_badge(self) -> list[Run]:
        """Runs that nobody has computed again: by the id of their record."""
        return [
            run for run in self.runs if not self.badges.tells(run.record.record_id, ("recomputed",))
        ]

    def without_replay(self) -> list[list[int]]:
        """Seed indices of each group of which nobody has replayed a run.

        A group is a task and arm, and what one plan added to it: a run that stood before does not
        speak for those that came later.
        """
        plans = _plans(self.folder)
        groups: dict[tuple[str, str, int], list[Run]] = {}
        for run in self.runs:
            key = key_of(run)
            groups.setdefault((*key[:2], plans.get(key, 0)), []).append(run)
        return [
            [run.record.seed.index for run in group]
            for _, group in sorted(groups.items())
            if not any(self.badges.tells(run.record.record_id, BADGES[1:]) for run in group)
        ]


def _plans(folder: Path) -> dict[Key, int]:
    """Which declaration added a cell, by its number."""
    attempts = read_attempts(folder)
    if attempts is None:
        return {}
    return {
        cell: number
        for number in range(1, len(attempts.declared))
        for cell in attempts.added_by(number)
    }


def subject_of(folder: Path) -> Subject:
    """An entry as it stands.

    Raises:
        CrlbenchError: it cannot be read.
    """
    runs = load_runs(folder, files="used")
    first = runs.runs[0].record
    return Subject(
        folder=folder,
        runs=tuple(runs),
        badges=read_badges(folder),
        open_division=first.protocol.division == "open",
        model=first.subject.spec,
    )


@dataclass
class Prover:
    """Runs ``crlbench`` on one entry after another, each within a time."""

    command: Sequence[str]
    """How crlbench is called."""
    ends: float
    """When the whole batch ends, by the monotonic clock."""
    entry_s: float
    """Seconds that an entry may take, by the clock and by the estimate of its replay."""
    badge: str | None = None
    """Whoever vouches for the badges that are written; None writes none."""

    @classmethod
    def of(cls, options: argparse.Namespace, badge: str | None = None) -> Prover:
        """The prover that the options of a command ask for."""
        ends = time.monotonic() + 60 * options.minutes_total
        return cls(options.crlbench.split(), ends, 60 * options.minutes_per_entry, badge)

    @property
    def left(self) -> float:
        """Seconds of the batch."""
        return self.ends - time.monotonic()

    def prove(self, subject: Subject, replay: bool) -> Proof:
        """Compute an entry again and, where wanted, replay a random seed of what is open."""
        limit = min(self.entry_s, self.left)
        until = time.monotonic() + limit
        for arguments in self._steps(subject, replay):
            code, reason = self._run(arguments, until - time.monotonic())
            if code == Mismatch.exit_code:
                return Proof(subject.name, "mismatch", reason)
            if code is None:
                why = f"not done within {limit / 60:.3g} minutes"
                return Proof(subject.name, "unchecked", why)
            if code != OK:
                return Proof(subject.name, "unchecked", reason or f"exit code {code}")
        return Proof(subject.name, "proven")

    def _steps(self, subject: Subject, replay: bool) -> Iterator[list[str]]:
        """The commands, each seen to have ended before the next is asked for."""
        badge = ["--badge", self.badge] if self.badge is not None else []
        verify = ["verify", str(subject.folder), *badge]
        self._fetch(subject)
        if not replay or subject.without_badge():
            yield [*verify, "--recompute-only"]
        minutes = ["--max-minutes", f"{self.entry_s / 60:.6g}"]
        waiting = subject.without_replay() if replay else []
        while waiting:
            seed = secrets.choice(secrets.choice(waiting))
            yield [*verify, "--seed-index", str(seed), *minutes]
            waiting = [group for group in waiting if seed not in group]

    def _fetch(self, subject: Subject) -> None:
        """Bring a model that does not travel with the package; what fails is said by ``verify``."""
        with contextlib.suppress(CrlbenchError):
            if Catalog(()).load_model(subject.model).weights_dir is None:
                self._run(["fetch", subject.model], min(self.entry_s, self.left))

    def _run(self, arguments: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """A command's exit code, None where its time was over, and the last thing that it said."""
        if seconds < min(LEAST_S, self.entry_s / 2):
            return None, ""
        with tempfile.TemporaryFile() as spoken:
            process = subprocess.Popen(
                [*self.command, "--no-progress", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=spoken,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            spoken.seek(0)
            return code, _reason(spoken.read().decode("utf-8", "replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell a command to end, and see to it that it and all of its processes do."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _reason(text: str) -> str:
    """The line that says why: the first mismatch, else the last that is no indented detail."""
    lines = [" ".join(printable(line).split()) for line in text.splitlines() if line.strip()]
    wrong = next((i for i, line in enumerate(lines) if line.startswith("MISMATCH")), None)
    if wrong is not None:
        return " ".join(lines[wrong : wrong + 2])[:WHY]
    return lines[-1].removeprefix("crlbench: ")[:WHY] if lines else ""


def in_order(subjects: Sequence[Subject], ages: dict[Path, float]) -> list[Subject]:
    """Which entry comes first: closed before open, untried before tried, old before young.

    Args:
        ages: when the runs of an entry were committed, by its folder; others come last.
    """

    def place(subject: Subject) -> tuple[bool, str, float, str]:
        last = max((str(line["date"]) for line in subject.badges.lines), default="")
        age = ages.get(subject.folder, float("inf"))
        return subject.open_division, last, age, subject.name

    return sorted(subjects, key=place)


def committed_at(checkout: Path, folders: Sequence[Path]) -> dict[Path, float]:
    """When the runs of entries were last committed, in seconds since 1970."""
    times = {}
    for folder in folders:
        path = folder.relative_to(checkout) / PACKED
        with contextlib.suppress(CrlbenchError):
            if moment := git(checkout, "log", "-1", "--format=%ct", "--", str(path)).strip():
                times[folder] = float(moment)
    return times
