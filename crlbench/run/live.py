"""Saying in a run folder how far its runs are, for ``crlbench watch`` in another process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from crlbench.contract.live import ALIVE_SECONDS, WRITE_SECONDS, Live, LiveRun
from crlbench.contract.records import Cell
from crlbench.disk.names import PROGRESS_NAME
from crlbench.errors import EnvironmentUnfit
from crlbench.run.plan import label
from crlbench.run.progress import TRAINING_SHARE, Tally, iterations_of
from crlbench.run.store import write_json


class Report:
    """Writes ``progress.json`` of each run folder whenever something changed, not too often.

    A file that cannot be written stops no run: nothing rests on it.
    """

    def __init__(self, folders: Mapping[Path, Sequence[Cell]], tally: Tally) -> None:
        self._folders = folders
        self._tally = tally
        self._due = 0.0
        self._last: dict[Path, tuple[float, tuple[LiveRun, ...]]] = {}

    def tick(self) -> None:
        """Time passed, or something was told: write what changed, and a sign of life."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + WRITE_SECONDS
        for folder, cells in self._folders.items():
            runs = tuple(self._run(cell) for cell in cells if cell.folder in self._tally.phase)
            written, before = self._last.get(folder, (0.0, None))
            if runs == before and now - written < ALIVE_SECONDS / 4:
                continue
            self._last[folder] = now, runs
            live = Live(time=time.time(), seconds_left=self._tally.seconds_left(), runs=runs)
            with suppress(EnvironmentUnfit):
                write_json(folder / PROGRESS_NAME, live.model_dump(mode="json"))

    def _run(self, cell: Cell) -> LiveRun:
        tally, name = self._tally, cell.folder
        return LiveRun(
            name=label(cell),
            phase=tally.phase[name],
            iteration=round(tally.reached.get(name, 0.0) / TRAINING_SHARE),
            iterations=iterations_of(cell),
            reward=tally.reward.get(name),
            curve=tuple(sorted(tally.curve.get(name, {}).items())),
        )

    def end(self) -> None:
        """Nothing runs any more."""
        for folder in self._folders:
            with suppress(OSError):
                (folder / PROGRESS_NAME).unlink(missing_ok=True)


@contextmanager
def reported(folders: Mapping[Path, Sequence[Cell]], tally: Tally) -> Iterator[Report]:
    """A :class:`Report` of the cells of some run folders, written at once and gone at the end."""
    report = Report(folders, tally)
    report.tick()
    try:
        yield report
    finally:
        report.end()
