"""Hard limits for verifiers that lean on large libraries: questions go to another process.

A library that simplifies mathematics or evaluates text can hang, eat the memory or crash, and
time limits by signals work in the main thread alone. So a server process per user process
imports the library once and forks for every question that could do so: the kernel kills a fork
that uses more CPU time or memory than it may, also in the middle of C code, and nobody else
notices. Such a question starts from the same state as any other, so that no cache and no earlier
question can change its answer. What a module's ``forks`` says needs no fork is answered in the
server itself, one question after another: scorers that run no text as code, and the drawing of
items, whose answers the asker may keep. Such a question that breaks a limit ends the server, and
the next one starts another.

Both processes may read files and nothing else: an audit hook forbids to write, connect, or start
programs, and a fork can neither fork nor leave its session. What is not promised: this is no
sandbox. Whatever the user may read can be read, code that reaches the internals of this process
can undo what Python checks, and a crafted text may use up its limits every time. Programs that
models write belong in :mod:`crlbench.reward.sandbox`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.errors import EnvironmentUnfit

CPU_S = 2.0
"""CPU time of one question, in seconds, where its module states no other."""
WALL_S = 120.0
"""Wall-clock time of one question: only a machine that stands still needs it."""
START_S = 300.0
MEMORY_BYTES = 1 << 30
"""Address space of one question's process."""
ALLOWED_EVENTS = frozenset(
    "compile exec import marshal.loads os.listdir os.scandir object.__getattr__ "
    "object.__setattr__ object.__delattr__ builtins.id sys._getframe code.__new__ "
    "sys._getframemodulename tempfile.gettempdir array.__new__ gc.get_objects "
    "sys.set_asyncgen_hooks_firstiter time.sleep".split()
)
"""What a fork may do that Python reports to audit hooks, besides opening files for reading."""
UNREPORTED = ("mkfifo", "mknod", "setsid", "setpgid", "setpgrp")
"""Functions of ``os`` that Python reports to no audit hook: they are replaced."""


class Server:
    """Questions to one module's ``answer(question)``, as JSON both ways, under hard limits.

    The module's ``prepare(*arguments)`` runs once in the server, before any question, its
    ``forks(question)`` says whether a question gets a process of its own, and ``cpu_s(question)``
    how many seconds of CPU time. Safe in threads, after ``os.fork`` and in worker processes: every
    process starts a server of its own when it asks first, and the server ends with it.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.command = (module, *arguments)
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def ask(self, question: Any) -> Any:
        """The answer, or None where the question broke a limit or the library failed on it.

        Raises :class:`EnvironmentUnfit` when the server cannot be started.
        """
        with self._lock:
            try:
                process = self._running()
                _write(process.stdin.fileno(), json.dumps(question).encode() + b"\n")  # type: ignore[union-attr]
                reply = _read_line(process, WALL_S)
            except BrokenPipeError:
                reply = None
            except BaseException:  # else the next question would get this one's answer
                self.stop()
                raise
            if reply is None:
                self.stop()
                return None
            return json.loads(reply)

    def stop(self) -> None:
        """End the server with its forks; the next question starts another."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()  # type: ignore[union-attr]

    def _forget(self) -> None:
        """In a process just forked: another thread's lock and server are none of its own."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                pipe.close()  # type: ignore[union-attr]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "crlbench.reward.forked", *self.command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # One order of sets and one thread, whatever the user's settings.
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._process, self._owner = process, os.getpid()
        atexit.register(self.stop)
        if _read_line(process, START_S) != b"ready":
            self.stop()
            raise EnvironmentUnfit(
                f"the scoring process of {self.command[0]} does not start. To see why, run:"
                f" {sys.executable} -m crlbench.reward.forked {' '.join(self.command)}"
            )
        return process


def _write(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """One line of the server, without its end; None when it ends or says nothing in time."""
    source, line = process.stdout.fileno(), b""  # type: ignore[union-attr]
    end = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([source], [], [], max(0.0, end - time.monotonic()))
        more = os.read(source, 65536) if ready else b""
        if not more:
            return None
        line += more
    return line[:-1]


def require(packages: dict[str, str], extra: str, why: str) -> None:
    """Raises :class:`EnvironmentUnfit` unless exactly these versions are installed."""
    wrong = []
    for name, version in packages.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if found != version:
            wrong.append(f"{name} {version} ({found})")
    if wrong:
        raise EnvironmentUnfit(
            f"{why} needs {', '.join(wrong)}: other versions may score differently."
            f" Run: pip install 'crlbench[{extra}]'"
        )


def serve(module: str, arguments: list[str]) -> None:
    """Answer the questions of standard input, one JSON value a line, until it ends."""
    import resource

    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    room = importlib.import_module(module)
    room.prepare(*arguments)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the kernel ends the process, without Python
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _confine()
    _write(answers, b"ready\n")
    for line in sys.stdin.buffer:
        question = json.loads(line)
        cpu_s = room.cpu_s(question)
        if room.forks(question):
            reply = _in_fork(room.answer, question, cpu_s, (0, answers))
        else:
            reply = _reply(room.answer, question, cpu_s)
        _write(answers, reply + b"\n")


def _confine() -> None:
    """From here on this process reads files and nothing else."""
    import posix

    for name in UNREPORTED:
        setattr(os, name, _refuse)
        setattr(posix, name, _refuse)
    sys.addaudithook(_forbid)


def _refuse(*arguments: Any, **named: Any) -> None:
    raise PermissionError("this is not allowed here")


_trusted = False
"""Whether this file itself runs, which alone may fork and set limits."""


def _in_fork(
    answer: Callable[[Any], Any], question: Any, cpu_s: float = CPU_S, hidden: tuple[int, ...] = ()
) -> bytes:
    """The answer of a process of its own, which gets none of the ``hidden`` descriptors."""
    global _trusted
    source, sink = os.pipe()
    _trusted = True
    pid = os.fork()
    if pid == 0:
        _limit(cpu_s)
        _trusted = False
        for descriptor in (source, *hidden):
            os.close(descriptor)
        _write(sink, _reply(answer, question, cpu_s))
        os._exit(0)
    _trusted = False
    os.close(sink)
    found = b""
    while more := os.read(source, 65536):
        found += more
    os.close(source)
    os.waitpid(pid, 0)
    return found or b"null"


def _limit(cpu_s: float) -> None:
    """Ends of a fork that no timer set by the text can put off, and of one that only waits."""
    import resource

    seconds = int(cpu_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.setitimer(signal.ITIMER_REAL, WALL_S)


def _reply(answer: Callable[[Any], Any], question: Any, cpu_s: float = CPU_S) -> bytes:
    """The answer as JSON, within the CPU time; beyond it this process ends."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return json.dumps(answer(question)).encode()
    except BaseException:  # also a library's own SystemExit is a failure to answer
        return b"null"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_UNNAMED = getattr(os, "O_TMPFILE", -1)


def _forbid(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writes = isinstance(flags, int) and (flags & _WRITING or flags & _UNNAMED == _UNNAMED)
        if not writes and (mode is None or not set(str(mode)) & set("wax+")):
            return
    elif event in ALLOWED_EVENTS or (_trusted and event in ("os.fork", "resource.setrlimit")):
        return
    raise PermissionError(f"{event} is not allowed here")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
