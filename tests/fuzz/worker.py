"""One process that makes and reads a range of a target's inputs."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crlbench import seeding
from tests.fuzz import guard
from tests.fuzz.target import Target

KEPT = 3
"""Inputs that a worker saves of one kind of failure."""


@dataclass
class Outcome:
    """What became of a range of inputs."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    seconds: float = 0.0
    """CPU time of all of them."""
    worst: float = 0.0
    """CPU time of the slowest."""
    peak: int = 0
    """Bytes of memory that the hungriest added."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Inputs that were saved, by what happened."""

    def add(self, other: Outcome) -> None:
        """Count another range in."""
        for name in ("inputs", "refused", "accepted", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst, self.peak = max(self.worst, other.worst), max(self.peak, other.peak)
        for what, files in other.failures.items():
            self.failures.setdefault(what, []).extend(files)


def made(target: Target, seeds: Any, seed: int, number: int) -> bytes:
    """Input ``number`` of a target; a seed as it is where its mutator trips over itself."""
    rng = seeding.rng(seed, "fuzz", target.name, number)
    try:
        return target.make(rng, seeds)
    except Exception:  # a change of what was changed already may be impossible in any way
        return rng.choice(seeds)


def saved(folder: Path, target: Target, number: int, data: bytes) -> Path:
    """The file of a failing input, whose name says how it was made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target.name}.{number}.{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def work(
    target: Target, corpus: Path, place: Path, failures: Path, seed: int, numbers: range, at: Any
) -> Outcome:
    """Read a range of inputs; ``at`` holds the number of the one that is read, and how many were
    refused and accepted by then."""
    seeds = prepared(target, corpus, place)
    limits = guard.Guard(place)
    found, before = Outcome(), guard.outside(place)
    start = guard.forget_peak()
    for number in numbers:
        at[:] = number, found.refused, found.accepted
        data = made(target, seeds, seed, number)
        what, seconds = attempt(target, data, place, limits)
        found.inputs += 1
        found.seconds += seconds
        found.worst = max(found.worst, seconds)
        if what is None:
            found.accepted += 1
        elif what == "":
            found.refused += 1
        else:
            files = found.failures.setdefault(what, [])
            if len(files) < KEPT:
                files.append(str(saved(failures, target, number, data)))
    if guard.outside(place) != before:
        found.failures["changed a file outside of the folder"] = []
    found.peak = max(0, guard.peak() - start)
    return found


def prepared(target: Target, corpus: Path, place: Path) -> Any:
    """The seeds, each read once: what is imported or cached does not count, and they are sound."""
    os.environ |= {"HOME": str(place), "CRLBENCH_HOME": str(place / "home"), "NO_COLOR": "1"}
    sys.dont_write_bytecode, tempfile.tempdir = True, str(place)
    os.chdir(place)
    seeds = target.seeds(corpus)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for data in seeds:
            target.read(data, place)
            guard.clear(place)
    return seeds


def attempt(
    target: Target, data: bytes, place: Path, limits: guard.Guard, show: bool = False
) -> tuple[str | None, float]:
    """None where an input was read, "" where it was refused, else what happened; and CPU time."""
    begun = guard.processor_seconds()
    what: str | None = None
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            with limits.limits(target.seconds, target.typed):
                target.read(data, place)
    except target.refusals as error:
        what = _unsayable(error)
        if show:
            print(f"refused: {type(error).__name__}: {error!s:.2000}")
    except (Exception, guard.Broken) as error:
        what = _named(error)
        if show:
            traceback.print_exc()
    seconds = guard.processor_seconds() - begun
    if what in (None, "") and seconds > target.seconds:
        what = "took longer than it may"
    guard.clear(place)
    return what, seconds


def _unsayable(error: BaseException) -> str:
    """A refusal must be a message that a terminal can show: "" where it is."""
    text = str(error)
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"the message of a {type(error).__name__} holds half a character"
    if not text.strip():
        return f"the message of a {type(error).__name__} is empty"
    return f"the message of a {type(error).__name__} has no end" if len(text) > 20_000 else ""


def _named(error: BaseException) -> str:
    """The kind of an error, what it says, and the last line of crlbench that it passed."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if "/crlbench/" in f.filename]
    where = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "?"
    text = re.sub(r"\d+|0x[0-9a-f]+", "N", " ".join(str(error).split()))
    said = "" if isinstance(error, MemoryError) else f": {text:.60}"
    return f"{type(error).__name__} in {where}{said}" if own else f"{type(error).__name__}{said}"
