"""Make what is missing of the study: pretrainings, runs, and the records that are kept of them.

Every step is skipped where its result is there, so a stopped study goes on with the same command.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError
from teaching.design import Design, Start
from teaching.records import StartRecords, collect, read_records, write_records

MOMENTS = Path(__file__).parents[2] / "models" / "tiny" / "moments.py"
COSTS = "costs.jsonl"
"""What each command took, and the moments that were left out."""


def run_command(command: Sequence[str]) -> None:
    """Run a command; what it leaves behind says whether it did its work.

    What it prints is not shown, because tables of scores are: nobody looks before the end. Its
    errors are.
    """
    subprocess.run([sys.executable, *command], check=False, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Study:
    """A design with the folders of its runs and records."""

    design: Design
    work: Path
    """Weights and runs: not kept."""
    records: Path
    jobs: int = 1
    """Cells that run side by side."""
    end: float | None = None
    """Of ``time.monotonic``: what has begun by then is stopped after its update."""
    execute: Callable[[Sequence[str]], None] = run_command

    def path(self, start: Start) -> Path:
        """The file of the records of a start."""
        return self.records / f"{start.name}.jsonl.zst"

    def read(self, start: Start) -> StartRecords:
        """The records of a start."""
        return read_records(self.path(start))

    def missing(self, start: Start) -> list[tuple[str, str, int]]:
        """Cells of a start without a record."""
        have = self.read(start).cells
        return [key for key in self.design.cells() if key not in have]

    @property
    def left_out(self) -> tuple[int, ...]:
        """Moments for which the processor time did not reach."""
        return tuple(row["left_out"] for row in self._costs() if "left_out" in row)

    @property
    def moments(self) -> tuple[int, ...]:
        """Moments of the study, without those that were left out."""
        return tuple(m for m in self.design.moments if m not in self.left_out)

    @property
    def spent(self) -> float:
        """Processor seconds so far."""
        return sum(row.get("processor_s", 0.0) for row in self._costs())

    def _costs(self) -> list[dict]:
        path = self.records / COSTS
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def note(self, **row: object) -> None:
        """Add a line to the costs."""
        self.records.mkdir(parents=True, exist_ok=True)
        with (self.records / COSTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def metered(self, what: str, command: Sequence[str]) -> None:
        """Run a command and note its processor time, also where it is interrupted."""
        before = _processor_seconds()
        try:
            self.execute(command)
        finally:
            self.note(what=what, processor_s=round(_processor_seconds() - before, 1))

    def check_track(self) -> None:
        """Refuse another version of the track.

        Raises:
            UsageError: says both versions.
        """
        track = read_toml(Catalog().find("track", self.design.track).path)
        if track["version"] != self.design.version:
            raise UsageError(
                f"track '{self.design.track}' is at version {track['version']}, and the study was "
                f"planned for version {self.design.version}. Run it from a checkout with that one."
            )

    def run(self) -> bool:
        """Make all that is missing, one moment after the other.

        Returns:
            Whether nothing is missing now; otherwise the time was over.

        Raises:
            UsageError: the track is another one, or a command left less than it should.
        """
        self.check_track()
        for place, moment in enumerate(self.moments):
            starts = self.design.starts(moment)
            if place and all(len(self.missing(s)) == self.design.cells_of_start for s in starts):
                if self.spent * (place + 1) / place > 3600 * self.design.hours:
                    for other in self.moments[place:]:
                        self.note(left_out=other)
                    return True
            if not all(self.finish(start) for start in starts):
                return False
        return True

    def steps(self) -> Iterator[tuple[str, list[str]]]:
        """What would be done, and the command that does it; nothing is run."""
        pretrained = set[Path]()
        for start in (s for moment in self.moments for s in self.design.starts(moment)):
            if missing := self.missing(start):
                place = self._pretraining(start)
                if place not in pretrained and not _has_weights(self._folder(start)):
                    pretrained.add(place)
                    yield f"pretraining at noise {start.noise}", self._pretrain(start)
                yield f"{start.name}, {len(missing)} cells", self._evaluate(start)

    def finish(self, start: Start) -> bool:
        """Make the missing cells of a start and keep their records.

        Returns:
            Whether it is complete; otherwise the time was over.

        Raises:
            UsageError: a command left less than it should.
        """
        runs = self.work / "runs" / start.name
        self.keep(start, runs)
        if not self.missing(start):
            return True
        if self._is_over():
            return False
        self.pretrain(start)
        if self._is_over():
            return False
        try:
            self.metered(start.name, self._evaluate(start))
        finally:
            self.keep(start, runs)
        missing = self.missing(start)
        if missing and not self._is_over():
            raise UsageError(
                f"{start.name}: {len(missing)} of {self.design.cells_of_start} cells left no "
                f"record, first {missing[0]}. The reason stands above; the same command continues."
            )
        return not missing

    def _is_over(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end

    def _evaluate(self, start: Start) -> list[str]:
        """The command that makes the missing cells of a start."""
        design, runs = self.design, self.work / "runs" / start.name
        command = [
            *("-m", "crlbench", "evaluate", "--quiet", "--no-progress", "--logger", "none"),
            *("--model", str(self._folder(start)), "--track", design.track),
            *("--recipe", design.recipe),
            *("--tasks", ",".join(design.tasks), "--arm", ",".join(design.arms)),
            *("--seeds", str(design.seeds), "--jobs", str(self.jobs), "--out", str(runs)),
            *(part for pair in design.settings for part in ("--set", "=".join(pair))),
        ]
        if self.end is not None:
            command += ["--max-hours", f"{max(1.0, self.end - time.monotonic()) / 3600:.5f}"]
        return command

    def keep(self, start: Start, runs: Path) -> None:
        """Take the records of new runs."""
        before = self.read(start)
        after = collect(runs, before)
        if len(after.cells) > len(before.cells):
            write_records(self.path(start), after)

    def _pretraining(self, start: Start) -> Path:
        """The folder of all moments of the pretraining of a start."""
        return self.work / "pretraining" / f"noise-{start.noise:.2f}"

    def _folder(self, start: Start) -> Path:
        """The folder of a start's weights."""
        name = f"{self.design.architecture}-i0o0-{start.updates}"
        return self._pretraining(start) / name

    def _pretrain(self, start: Start) -> list[str]:
        """The command that makes the weights of all moments at the noise of a start."""
        return [
            *(str(MOMENTS), "--design", self.design.architecture),
            *("--noise", str(start.noise), "--out", str(self._pretraining(start))),
            *("--moments", *map(str, sorted(self.design.moments))),
            *("--items", str(self.design.scored)),
        ]

    def pretrain(self, start: Start) -> None:
        """Make the weights of a start where they are missing.

        Raises:
            UsageError: the pretraining left none.
        """
        folder = self._folder(start)
        if not _has_weights(folder):
            self.metered(f"pretraining at noise {start.noise}", self._pretrain(start))
        if not _has_weights(folder):
            raise UsageError(
                f"{folder}: the pretraining left no weights. The reason stands above; the same "
                "command continues."
            )


def _has_weights(folder: Path) -> bool:
    return (folder / "model.safetensors").exists()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
