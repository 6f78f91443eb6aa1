"""Many cells at once: worker processes, their events, their death, and the order of work.

Only names and plain data cross a process boundary: a worker is told the import path of the
function it runs and gets cells as dictionaries. Workers live for the whole grid. Where the system
allows it they are forked from a nursery, which has loaded what all cells share.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from crlbench.contract.events import Event
from crlbench.contract.records import Cell
from crlbench.launch.schedule import Durations, Job, Queue
from crlbench.launch.worker import RUN_CELL, WARM, Forked, Nursery, possible, spawn
from crlbench.run.cost import cost
from crlbench.run.launcher import Launcher, Outcome, Report, StopLevel
from crlbench.run.needs import check_needs, stored_ends
from crlbench.run.plan import LOG_NAME, label

_POLL_SECONDS = 0.2


@dataclass
class _Worker:
    """One process, its pipe, and the cell it has in hand."""

    process: Forked | BaseProcess
    pipe: connection.Connection
    job: Job | None = None
    since: float = 0.0
    told_to_stop: bool = False


@dataclass
class LocalLauncher(Launcher):
    """Runs cells in processes of this machine."""

    jobs: int
    """Processes at once, at most."""
    threads: int
    """Threads of each process."""
    function: str = RUN_CELL
    """Import path of what runs a cell."""
    warm: str | None = WARM
    """Import path of what loads the things that cells name before workers are forked, or None for
    nothing."""
    shared: bool | None = None
    """Whether workers share what is loaded; None: where the system allows it."""
    parents: bool = False
    """Whether workers start processes of their own, which forked ones cannot."""
    _workers: list[_Worker] = field(default_factory=list)
    _nursery: Nursery | None = None

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, Event], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        check_needs(cells)
        queue = Queue([Job(cell) for cell in cells], Durations(cost), stored_ends(cells))
        # An abandoned iteration would leave workers that multiprocessing waits for at exit.
        atexit.register(self._end)
        try:
            self._open_nursery(cells)
            while queue or any(worker.job for worker in self._workers):
                level = stop_level()
                if level == 2 or (level == 1 and not any(w.job for w in self._workers)):
                    return
                if level == 1:
                    self._tell_to_stop()
                else:
                    yield from queue.blocked()
                    self._hand_out(queue, on_event)
                yield from self._collect(queue, on_event)
        finally:
            self._end()
            atexit.unregister(self._end)

    def _hand_out(self, queue: Queue, on_event: Callable[[Cell, Event], None]) -> None:
        while True:
            idle = next((w for w in self._workers if w.job is None), None)
            if idle is None and len(self._workers) == self.jobs:
                return
            now = time.monotonic()
            busy = [(w.job.cell, now - w.since) for w in self._workers if w.job]
            job = queue.take(busy, self.jobs)
            if job is None:
                return
            idle = idle or self._start()
            job.attempts += 1
            idle.job, idle.since = job, time.monotonic()
            on_event(job.cell, {"kind": "start", "attempt": job.attempts})
            # A worker that died while idle is noticed by the next collection, as its pipe ends.
            with contextlib.suppress(BrokenPipeError):
                idle.pipe.send(("run", job.cell.model_dump(mode="json")))

    def _tell_to_stop(self) -> None:
        for worker in self._workers:
            if not worker.told_to_stop:
                worker.told_to_stop = True
                with contextlib.suppress(BrokenPipeError):
                    worker.pipe.send(("stop", None))

    def _collect(self, queue: Queue, on_event: Callable[[Cell, Event], None]) -> Iterator[Outcome]:
        """Wait a moment for messages; yield what ended."""
        pipes = {worker.pipe: worker for worker in self._workers}
        for pipe in connection.wait(list(pipes), timeout=_POLL_SECONDS):
            worker = pipes[pipe]  # type: ignore[index]
            try:
                kind, content = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                yield from self._bury(worker, queue)
                continue
            if kind == "hello":
                worker.since = time.monotonic()
                if isinstance(worker.process, Forked):
                    worker.process.pid = content
                continue
            job = worker.job
            if job is None:
                continue
            if kind == "event":
                on_event(job.cell, content)
                continue
            report: Report = content
            seconds = time.monotonic() - worker.since
            if report["state"] == "done":
                queue.durations.timed(job.cell, seconds)
            queue.ended(job.cell, report["state"])
            worker.job = None
            yield Outcome(cell=job.cell, seconds=seconds, **report)

    def _bury(self, worker: _Worker, queue: Queue) -> Iterator[Outcome]:
        """A worker died: give its cell one more chance, from its checkpoint."""
        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        job = worker.job
        if job is None:
            return
        if job.attempts < 2 and not worker.told_to_stop:
            queue.put(job)
            return
        queue.ended(job.cell, "lost")
        yield Outcome(
            cell=job.cell,
            state="lost",
            message=f"the process of {label(job.cell)} {_cause(worker.process.exitcode)}; "
            f"its output: {Path(job.cell.folder) / LOG_NAME}",
            exit_code=8,
        )

    def _open_nursery(self, cells: Sequence[Cell]) -> None:
        shared = self.shared
        if shared is None:
            shared = not self.parents and all(possible(cell.device) for cell in cells)
        if shared:
            contents = [cell.model_dump(mode="json") for cell in cells]
            self._nursery = Nursery(self.function, self.warm, contents)

    def _start(self) -> _Worker:
        """A new worker: forked, or spawned where there is no nursery (or not any more)."""
        ours, theirs = multiprocessing.Pipe()
        process: Forked | BaseProcess | None = None
        if self._nursery is not None:
            process = self._nursery.fork(theirs, self.threads)
        if process is None:
            process = spawn(theirs, self.function, self.threads, daemon=not self.parents)
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _end(self) -> None:
        """Let idle workers leave by themselves and kill the others."""
        for worker in self._workers:
            if worker.job is None:
                with contextlib.suppress(BrokenPipeError):
                    worker.pipe.send(("quit", None))
            else:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self._workers.clear()
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None


def _cause(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "was killed twice (signal 9: often the system is out of memory; try --jobs 1)"
    if exitcode is not None and exitcode < 0:
        return f"died twice (signal {-exitcode})"
    return f"ended twice without a result (exit code {exitcode})"
