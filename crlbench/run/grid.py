"""Many cells at once: worker processes, their events, their death, and the order of work.

Only names and plain data cross a process boundary: a worker is told the import path of the
function it runs and gets cells as dictionaries. Workers live for the whole grid, so imports
are paid once per worker; they ignore Ctrl-C (the parent decides) and die with their parent.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, Literal, Protocol

from crlbench.records import Cell
from crlbench.run.environment import cores
from crlbench.run.plan import LOG_NAME, label
from crlbench.run.store import explained, explanation, is_refusal, make_folder

RUN_CELL = "crlbench.run.execute:run_cell"
"""The function a worker runs on each cell: ``(cell, emit, should_stop) -> RunRecord``."""

Event = dict[str, Any]
StopLevel = Literal[0, 1, 2]
"""0 go on, 1 stop each cell after its current update, 2 kill now."""

_POLL_SECONDS = 0.2
_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    cell: Cell
    state: Literal["done", "failed", "interrupted", "error", "lost"]
    """``failed``: finished, but broke a stability rule; ``lost``: its process died twice."""
    message: str = ""
    exit_code: int = 0
    traceback: str = ""
    """Of an internal error, for ``-v``."""
    seconds: float = 0.0


class Launcher(Protocol):
    """Runs cells somewhere; only names and plain data may cross to there."""

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, Event], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each cell as it ends; unstarted cells have none after a stop.

        Args:
            cells: What to run, in the order preferred.
            on_event: Called with every event of every cell; ``{"kind": "start", "attempt": n}``
                comes first, the others are those of ``run_cell``.
            stop_level: Polled a few times a second.
        """


def jobs_for(wanted: str | int, threads: int, cells: int, device: str = "cpu") -> int:
    """How many cells run at once: at least 1, never more than there are cells.

    ``auto`` is the number of whole cells that fit on the cores this process may use, and one
    on an accelerator.
    """
    if wanted == "auto":
        wanted = cores() // threads if device == "cpu" else 1
    return max(1, min(int(wanted), cells))


@dataclass
class _Worker:
    """One process, its pipe, and the cell it has in hand."""

    process: Any
    pipe: connection.Connection
    job: _Job | None = None
    since: float = 0.0
    told_to_stop: bool = False


@dataclass
class _Job:
    cell: Cell
    attempts: int = 0


@dataclass
class _Queue:
    """Waiting cells: the first seeds first, and of one seed the long ones, by task.

    Long is a task by the mean duration seen so far; one that has not been timed yet comes
    before those that have. Ties keep the order given.
    """

    waiting: deque[_Job]
    seen: dict[str, list[float]] = field(default_factory=dict)

    def take(self) -> _Job:
        first = max(range(len(self.waiting)), key=lambda i: (*self._weight(self.waiting[i]), -i))
        job = self.waiting[first]
        del self.waiting[first]
        return job

    def _weight(self, job: _Job) -> tuple[bool, int, float]:
        """A cell whose process died comes before all others."""
        seconds = self.seen.get(job.cell.task)
        mean = sum(seconds) / len(seconds) if seconds else float("inf")
        return job.attempts > 0, -job.cell.seed_index, mean

    def timed(self, job: _Job, seconds: float) -> None:
        self.seen.setdefault(job.cell.task, []).append(seconds)


class LocalLauncher:
    """Runs cells in spawned processes of this machine."""

    def __init__(self, jobs: int, threads: int, function: str = RUN_CELL) -> None:
        self.jobs = jobs
        self.threads = threads
        self.function = function
        self._workers: list[_Worker] = []
        self._context = multiprocessing.get_context("spawn")

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, Event], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        """See :class:`Launcher`. A cell whose process dies is tried once more, then lost."""
        queue = _Queue(deque(_Job(cell) for cell in cells))
        # An abandoned iteration would leave workers that multiprocessing waits for at exit.
        atexit.register(self._end)
        try:
            while queue.waiting or any(worker.job for worker in self._workers):
                level = stop_level()
                if level == 2 or (level == 1 and not any(w.job for w in self._workers)):
                    return
                if level == 1:
                    self._tell_to_stop()
                else:
                    self._hand_out(queue, on_event)
                yield from self._collect(queue, on_event)
        finally:
            self._end()
            atexit.unregister(self._end)

    def _hand_out(self, queue: _Queue, on_event: Callable[[Cell, Event], None]) -> None:
        while queue.waiting:
            idle = next((w for w in self._workers if w.job is None), None)
            if idle is None and len(self._workers) < self.jobs:
                idle = self._spawn()
            if idle is None:
                return
            job = queue.take()
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

    def _collect(
        self, queue: _Queue, on_event: Callable[[Cell, Event], None]
    ) -> Iterator[Outcome]:
        """Wait a moment for messages; yield what ended."""
        pipes = {worker.pipe: worker for worker in self._workers}
        for pipe in connection.wait(list(pipes), timeout=_POLL_SECONDS):
            worker = pipes[pipe]  # type: ignore[index]
            try:
                kind, content = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                yield from self._bury(worker, queue)
                continue
            job = worker.job
            if job is None:
                continue
            if kind == "event":
                on_event(job.cell, content)
                continue
            seconds = time.monotonic() - worker.since
            queue.timed(job, seconds)
            worker.job = None
            yield Outcome(cell=job.cell, seconds=seconds, **content)

    def _bury(self, worker: _Worker, queue: _Queue) -> Iterator[Outcome]:
        """A worker died: give its cell one more chance, from its checkpoint."""
        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        job = worker.job
        if job is None:
            return
        if job.attempts < 2 and not worker.told_to_stop:
            queue.waiting.appendleft(job)
            return
        yield Outcome(
            cell=job.cell,
            state="lost",
            message=f"the process of {label(job.cell)} {_cause(worker.process.exitcode)}; "
            f"its output: {Path(job.cell.folder) / LOG_NAME}",
            exit_code=8,
        )

    def _spawn(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work,
            args=(theirs, self.function, os.getpid(), self.threads),
            name=f"crlbench-{len(self._workers) + 1}",
            daemon=True,
        )
        threads = dict.fromkeys(_THREAD_VARIABLES, str(self.threads))
        with _signals_blocked(), _environment(threads | {"TOKENIZERS_PARALLELISM": "false"}):
            process.start()
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


def _cause(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "was killed twice (signal 9: often the system is out of memory; try --jobs 1)"
    if exitcode is not None and exitcode < 0:
        return f"died twice (signal {-exitcode})"
    return f"ended twice without a result (exit code {exitcode})"


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Keep stop signals pending while a child starts, which inherits the mask.

    So Ctrl-C reaches only the parent, even before the child can say that it ignores it. The
    resource tracker comes first because starting it unblocks these signals; its warning about
    what a killed worker could not clean up is of no use to a person.
    """
    with _environment({"PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}):
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set environment variables for children that are started inside."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def work(pipe: connection.Connection, function: str, parent: int, threads: int) -> None:
    """The life of a worker: wait for a cell, run it, report, until told to quit."""
    import queue
    import threading

    _die_with_parent(parent)
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    stop = threading.Event()
    inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox, stop), daemon=True).start()
    while (content := inbox.get()) is not None:
        pipe.send(("end", _outcome_of(function, content, pipe, stop, threads)))


def _listen(pipe: connection.Connection, inbox: Any, stop: Any) -> None:
    """Take the parent's messages; leave at once when the parent is gone."""
    parent = multiprocessing.parent_process()
    watched: list[Any] = [pipe] + ([parent.sentinel] if parent else [])
    while True:
        ready = connection.wait(watched)
        try:
            kind, content = pipe.recv() if pipe in ready else ("gone", None)
        except (EOFError, OSError):
            kind = "gone"
        if kind == "gone":
            os._exit(1)
        if kind == "stop":
            stop.set()
        else:
            inbox.put(content if kind == "run" else None)


def _outcome_of(
    function: str, content: dict[str, Any], pipe: connection.Connection, stop: Any, threads: int
) -> dict[str, Any]:
    """Run one cell and describe how it ended, in plain data."""
    import traceback

    from crlbench.errors import INTERNAL, CrlbenchError, Interrupted

    def emit(event: Event) -> None:
        pipe.send(("event", event))

    try:
        cell = Cell.model_validate(content)
        with _logged(Path(cell.folder)):
            module, _, name = function.partition(":")
            run = getattr(importlib.import_module(module), name)
            _limit_threads(threads)
            record = run(cell, emit, stop.is_set)
    except Interrupted as error:
        return {"state": "interrupted", "message": str(error), "exit_code": error.exit_code}
    except Exception as error:
        details = traceback.format_exc()
        if is_refusal(error):
            error = explanation(error, content["folder"])
        known = isinstance(error, CrlbenchError)
        message = str(error) if known else f"internal error: {type(error).__name__}: {error}"
        code = error.exit_code if known else INTERNAL
        return {"state": "error", "message": message, "exit_code": code, "traceback": details}
    if record.status.state == "failed":
        rule, at = record.status.rule, record.status.at
        return {"state": "failed", "message": f"failed by the rule {rule} at iteration {at}"}
    return {"state": "done"}


@contextlib.contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Send all that this process and its libraries print to the cell's log, not the terminal."""
    make_folder(folder)
    with explained(folder / LOG_NAME):
        log = os.open(folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(log, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, original in kept.items():
            os.dup2(original, number)
            os.close(original)
        os.close(log)


def _limit_threads(threads: int) -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _die_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when its parent dies."""
    import ctypes

    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
