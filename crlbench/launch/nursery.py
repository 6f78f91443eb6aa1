"""A process that has loaded what the cells of a grid share, and forks their workers.

Imports, weights, tokenizers, tasks and rendered prompts are paid for once, whatever the number of
workers, and stand once in memory: a forked worker reads the pages of the nursery.

What makes the fork safe: the nursery starts clean (spawned), loads with one OpenMP thread, never
computes, and has one thread when it forks. Should a library have left a second one running, the
worker is spawned instead, which is slower and otherwise the same. Only for Linux and the CPU: a
device's context does not survive a fork, and other systems' libraries do not promise to.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, reduction, resource_tracker
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from crlbench.launch.worker import (
    STOP_SIGNALS,
    die_with_parent,
    environment_of,
    ignore_stop_signals,
    named,
    work,
)

WARM = "crlbench.launch.warm:warm"
"""The function that loads what cells name, given as dictionaries."""

KEEP_LIBRARIES = False
"""Whether nurseries of this process are forked from one that has imported the libraries.

For programs that start several: each after the first begins seconds earlier. The process that is
kept holds the libraries alone, no model and no task, and ends with its program."""

_LIBRARIES = ("crlbench.run.execute", "crlbench.launch.warm")
_READ_BY_LIBRARIES = ("BNB", "CUDA", "GLIBC", "HF_", "HUGGINGFACE", "MKL", "OMP", "OPENBLAS")
_READ_BY_LIBRARIES += ("PYTHON", "TOKENIZERS", "TORCH", "TRANSFORMERS")
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
        """Once it has said hello."""
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
        named(function)
    with contextlib.suppress(Exception):
        if warm is not None:
            named(warm)(cells)
    gc.collect()
    gc.freeze()  # the collector would write into pages that are shared
    workers: dict[int, Any] = {}
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


def _start(
    control: connection.Connection, pipe: connection.Connection, function: str, threads: int
) -> Any:
    """Fork a worker; spawn it where a fork could leave it with a lock that nobody holds."""
    os.set_inheritable(pipe.fileno(), False)
    if len(os.listdir("/proc/self/task")) == 1:
        process: BaseProcess = multiprocessing.get_context("fork").Process(
            target=_begin, args=(control, pipe, function, os.getpid(), threads), daemon=True
        )
        process.start()
    else:
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(pipe, function, os.getpid(), threads), daemon=True
        )
        with started_quietly(threads):
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
