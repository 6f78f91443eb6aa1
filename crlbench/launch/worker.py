"""The processes that run cells: a worker's life, and the nursery that forks workers.

Only names and plain data come in and go out. A worker waits for a cell, runs it and reports, until
it is told to quit. It ignores Ctrl-C (its launcher decides) and dies with the process that started
it.

A nursery has loaded what the cells of a grid share. Imports, weights, tokenizers, tasks and
rendered prompts are paid for once, whatever the number of workers, and stand once in memory: a
forked worker reads the pages of the nursery. What makes the fork safe: the nursery starts clean
(spawned, or forked from a process that has only imported the libraries, see ``KEEP_LIBRARIES``),
loads with one OpenMP thread, never computes, and has one thread when it forks. Should a library
have left a second one running, the worker is spawned instead, which is slower and otherwise the
same. Only for Linux and the CPU: a device's context does not survive a fork, and other systems'
libraries do not promise to.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection, reduction, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from crlbench.contract.events import Event
from crlbench.contract.records import Cell
from crlbench.run.launcher import Report
from crlbench.run.plan import LOG_NAME
from crlbench.run.store import explained, explanation, is_refusal, make_folder

RUN_CELL = "crlbench.stages.cell:run_cell"
"""The function a worker runs on each cell: ``(cell, emit, should_stop) -> RunRecord``."""

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

KEPT_MEMORY = "glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184"
"""Let the C library keep what is freed: every page that the system gives anew costs a fault. Faults
took a tenth of an iteration of a 135M model. Other C libraries do not read it."""


def environment_of(threads: int) -> dict[str, str]:
    """What a worker's libraries read when they are loaded."""
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    memory = {} if "GLIBC_TUNABLES" in os.environ else {"GLIBC_TUNABLES": KEPT_MEMORY}
    return dict.fromkeys(_THREAD_VARIABLES, str(threads)) | quiet | memory


def work(pipe: connection.Connection, function: str, parent: int, threads: int) -> None:
    """Be a worker of the process ``parent``; says its own number first."""
    import queue
    import threading

    die_with_parent(parent)
    ignore_stop_signals()
    stop = threading.Event()
    inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    pipe.send(("hello", os.getpid()))
    threading.Thread(target=_listen, args=(pipe, inbox, stop), daemon=True).start()
    while (content := inbox.get()) is not None:
        pipe.send(("end", _outcome_of(function, content, pipe, stop, threads)))


def ignore_stop_signals() -> None:
    """Leave Ctrl-C to the launcher; for a process that was started with these signals blocked."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def die_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when its parent dies."""
    import ctypes

    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def function_at(function: str) -> Callable[..., Any]:
    """The function of an import path such as ``package.module:function``."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _listen(pipe: connection.Connection, inbox: Any, stop: Any) -> None:
    """Take the launcher's messages; leave at once when it is gone."""
    parent = multiprocessing.parent_process()
    sources: list[Any] = [pipe] + ([parent.sentinel] if parent else [])
    while True:
        ready = connection.wait(sources)
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
) -> Report:
    """Run one cell and describe how it ended, in plain data."""
    import traceback

    from crlbench.errors import INTERNAL, CrlbenchError, Interrupted

    def emit(event: Event) -> None:
        # What JSON does not hold is an error here as it is where events travel as text.
        pipe.send(("event", json.loads(json.dumps(event, allow_nan=False))))

    try:
        cell = Cell.model_validate(content)
        with _logged(Path(cell.folder)):
            run = function_at(function)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(threads)
            record = run(cell, emit, stop.is_set)
    except Interrupted as error:
        return {"state": "interrupted", "message": str(error), "exit_code": error.exit_code}
    except Exception as raised:
        details = traceback.format_exc()
        shown = explanation(raised, content["folder"]) if is_refusal(raised) else raised
        message, code = f"internal error: {type(shown).__name__}: {shown}", INTERNAL
        if isinstance(shown, CrlbenchError):
            message, code = str(shown), shown.exit_code
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
    streams = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in streams:
            os.dup2(log, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, original in streams.items():
            os.dup2(original, number)
            os.close(original)
        os.close(log)


WARM = "crlbench.launch.warm:warm"
"""The function that loads what cells name, given as dictionaries."""

KEEP_LIBRARIES = False
"""Whether nurseries of this process are forked from one that has imported the libraries.

For programs that start several: each after the first begins seconds earlier. The process that is
kept holds the libraries alone, no model and no task, and ends with its program."""

_LIBRARIES = ("crlbench.stages.cell", "crlbench.launch.warm")
_READ_BY_LIBRARIES = (
    *("BNB", "CUDA", "GLIBC", "HF_", "HUGGINGFACE", "MKL", "OMP", "OPENBLAS"),
    *("PYTHON", "TOKENIZERS", "TORCH", "TRANSFORMERS"),
)
"""Prefixes of the environment variables that libraries read while they are imported."""

_kept: dict[str, str] | None = None
"""Their values when the process that is kept began."""


def possible(device: str) -> bool:
    """Whether workers for this device can be forked here."""
    return sys.platform.startswith("linux") and device == "cpu"


class Nursery:
    """The launcher's side: asks for workers and for how they ended."""

    def __init__(self, function: str, warm: str | None, cells: Sequence[dict[str, Any]]) -> None:
        """Start to load what ``cells`` name; returns at once.

        Args:
            function: What the workers will run on each cell; imported here.
            warm: Import path of what loads the rest.
            cells: As plain data.
        """
        self._control, theirs = multiprocessing.Pipe()
        with started_quietly(threads=1):
            # The type of a context is not that of the other.
            context: Any = multiprocessing.get_context("forkserver" if _keep() else "spawn")
            life = (theirs, function, warm, list(cells), os.getpid(), dict(os.environ))
            self._process = context.Process(target=_tend, args=life, name="nursery")
            self._process.start()
        theirs.close()

    def fork(self, pipe: connection.Connection, threads: int) -> Forked | None:
        """A worker with that end of a pipe, or None: the nursery has died.

        It begins once everything is loaded, and says ``("hello", pid)`` then.
        """
        try:
            self._control.send(("fork", threads))
            reduction.send_handle(self._control, pipe.fileno(), self._process.pid)
        except OSError:
            return None
        return Forked(self)

    def wait(self, pid: int, timeout: float | None) -> int | None:
        """The exit code of a worker, or None: it lives on after ``timeout`` seconds."""
        try:
            self._control.send(("wait", (pid, timeout)))
            return self._control.recv()
        except (OSError, EOFError):
            return -signal.SIGKILL  # by the kernel: workers die with their nursery

    def close(self) -> None:
        """End the nursery and with it all workers that live."""
        self._process.kill()
        self._process.join()
        self._control.close()


class Forked:
    """A worker of a nursery, as far as the launcher needs ``multiprocessing.Process``."""

    def __init__(self, nursery: Nursery) -> None:
        self.pid: int | None = None
        """Number of the process, once it has said hello."""
        self.exitcode: int | None = None
        self._nursery = nursery

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; one that never said hello dies with the nursery."""
        if self.exitcode is None and self.pid is not None:
            self.exitcode = self._nursery.wait(self.pid, timeout)

    def is_alive(self) -> bool:
        """Whether its end is not known."""
        return self.exitcode is None

    def kill(self) -> None:
        """SIGKILL."""
        if self.exitcode is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def started_quietly(threads: int, extra: Mapping[str, str] | None = None) -> Iterator[None]:
    """Keep stop signals pending while a child starts, which inherits mask and environment.

    ``extra`` are environment variables for it alone.

    So Ctrl-C reaches only the parent, even before the child can say that it ignores it. The
    resource tracker comes first because starting it unblocks these signals; its warning about
    what a killed worker could not clean up is of no use to a person.

    The child does not import the program that called: nothing of it is needed there, and a script
    that calls without asking ``__name__ == "__main__"`` would run a second time in every child.
    """
    with _environment({"PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}):
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with _environment(environment_of(threads) | dict(extra or {})), _nameless_program():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _nameless_program() -> Iterator[None]:
    """Give children that are started inside no ``__main__`` to import."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for children that are started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _keep() -> bool:
    """Whether the process with the libraries serves, which the first call of a program decides."""
    global _kept
    if not KEEP_LIBRARIES:
        return False
    now = {n: value for n, value in os.environ.items() if n.startswith(_READ_BY_LIBRARIES)}
    if _kept is None:
        multiprocessing.set_forkserver_preload([*_LIBRARIES])
        _kept = now
    return now == _kept


def _tend(
    control: connection.Connection,
    function: str,
    warm: str | None,
    cells: list[dict[str, Any]],
    launcher: int,
    environment: dict[str, str],
) -> None:
    """The nursery's life: load, then fork and wait as it is told."""
    # A process that is kept stands between: it ends with the launcher, and this one with it.
    parent = os.getppid() if multiprocessing.get_start_method() == "forkserver" else launcher
    die_with_parent(parent)
    ignore_stop_signals()
    os.environ.clear()
    os.environ.update(environment)
    _be_silent()
    # What cannot be loaded is for the cell to say, which tries again and has someone to tell.
    with contextlib.suppress(Exception):
        function_at(function)
    with contextlib.suppress(Exception):
        if warm is not None:
            function_at(warm)(cells)
    gc.collect()
    gc.freeze()  # the collector would write into pages that are shared
    workers: dict[int | None, BaseProcess] = {}
    while True:
        try:
            kind, content = control.recv()
        except EOFError:
            return
        if kind == "fork":
            pipe = connection.Connection(reduction.recv_handle(control))
            with pipe, contextlib.suppress(OSError):
                worker = _start(control, pipe, function, threads=content)
                workers[worker.pid] = worker
        else:
            pid, timeout = content
            workers[pid].join(timeout)
            control.send(workers[pid].exitcode)


def spawn(
    pipe: connection.Connection,
    function: str,
    threads: int,
    extra: Mapping[str, str] | None = None,
    daemon: bool = True,
) -> BaseProcess:
    """A new worker of this process with that end of a pipe; see :func:`started_quietly`."""
    process = multiprocessing.get_context("spawn").Process(
        target=work, args=(pipe, function, os.getpid(), threads), daemon=daemon
    )
    with started_quietly(threads, extra):
        process.start()
    return process


def _start(
    control: connection.Connection, pipe: connection.Connection, function: str, threads: int
) -> BaseProcess:
    """Fork a worker; spawn it where a fork could leave it with a lock that nobody holds."""
    os.set_inheritable(pipe.fileno(), False)
    if len(os.listdir("/proc/self/task")) > 1:
        return spawn(pipe, function, threads)
    process = multiprocessing.get_context("fork").Process(
        target=_begin, args=(control, pipe, function, os.getpid(), threads), daemon=True
    )
    process.start()
    return process


def _begin(
    control: connection.Connection,
    pipe: connection.Connection,
    function: str,
    nursery: int,
    threads: int,
) -> None:
    """The first steps of a forked worker."""
    control.close()
    os.environ.update(environment_of(threads))
    work(pipe, function, nursery, threads)


def _be_silent() -> None:
    """Nobody reads what libraries print while they load."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
