"""Running programs that nobody trusts, and judging them by unit tests that they cannot touch.

Two questions can be asked of a program (the source text of a Python module):

- :meth:`Sandbox.call`: the values of one of its functions for some arguments.
- :meth:`Sandbox.judge`: does it pass tests (assertions as in MBPP and HumanEval)? The tests
  run in a process of their own and see the program's functions through a channel that carries
  plain values; the verdict comes from that process over a channel that the program never had.

Every process is confined as :mod:`crlbench.reward.sandbox_kernel` describes, has limits on
processor time, time, memory and files, and is killed with everything it may have started.
Where the kernel denies a layer nothing runs at all: :class:`EnvironmentUnfit` names it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.reward import sandbox_kernel, sandbox_server
from crlbench.reward.sandbox_values import (
    FRAME_BYTES,
    Closed,
    Unreadable,
    decode,
    encode,
    read_frame,
    write_frame,
)

START_S = 60.0
"""Longest that starting the server and trying its walls may take."""
GRACE_S = 30.0
"""How long after its own limit an answer may still be awaited before the server counts as hung."""
ANSWER_BYTES = 1 << 16
"""Longest value that :meth:`Sandbox.call` takes from a program."""
Job = TypeVar("Job")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    cpu_s: float = 2.0
    """Seconds of processor time."""
    wall_s: float = 20.0
    """Seconds by the clock: generous, so that a busy machine changes no verdict."""
    memory_bytes: int = 256 << 20
    """Address space beyond that of an idle interpreter."""
    file_bytes: int = 1 << 20
    """All files together, and each."""


@dataclass(frozen=True)
class Result:
    """What one call of a program's function gave."""

    value: Any = None
    """The value, of exact built-in types; None when there is an error."""
    error: str = ""
    """Why there is no value: an exception, a limit, an end of the process; "" when there is."""


@dataclass(frozen=True)
class Verdict:
    """Whether a program passed its tests."""

    passed: bool
    reason: str = ""
    """Why not, in words."""


class Sandbox:
    """A source of confined processes; one question at a time, from any thread.

    The server starts on the first question and ends with :meth:`close` or with this process.
    A process forked from this one gets a server of its own.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.landlock = 0
        """Version of the kernel's Landlock interface, once started; 0 if it has none."""
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0
        _opened.add(self)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, program: str, entry: str, arguments: Iterable[tuple[Any, ...]]) -> list[Result]:
        """The results of ``entry`` for each tuple of arguments, in one process, in order.

        A program that does not load, or ends early, has an error for every call it owes.
        """
        waiting = list(arguments)
        results: list[Result] = []
        with self._lock, self._ask({"program": 1}) as (ends, (channel,)):
            try:
                loaded = _answered(channel, {"program": program})
                if loaded.error:
                    return [loaded] * len(waiting)
                for given in waiting:
                    form = encode([entry, list(given), {}])
                    results.append(_answered(channel, form))
            except (Closed, Unreadable, ValueError) as error:
                cut = _cut_short(ends()["program"], error)
                results += [Result(error=cut)] * (len(waiting) - len(results))
        return results

    def judge(self, program: str, tests: str, entries: Sequence[str]) -> Verdict:
        """Whether ``tests`` run to their end, with ``entries`` naming the program's functions.

        The tests must call one of them at least once. A function's exceptions arrive as
        their nearest built-in class; arguments and values are copies, so a test that looks
        for a change made inside its own list does not see it.
        """
        roles = {"tests": 1, "program": 0}
        request = {"program": program, "tests": tests, "entries": list(entries)}
        with self._lock, self._ask(roles, joined=True) as (ends, (channel,)):
            try:
                write_frame(channel, request)
                said = read_frame(channel, ANSWER_BYTES)
            except (Closed, Unreadable, ValueError) as error:
                how = ends()
                role = "program" if "time" in how["program"] else "tests"
                return Verdict(False, f"{role}: {_cut_short(how[role], error)}")
            how = ends()
            if said["passed"] is True:
                return Verdict(True)
            if "time" in how["program"] or "signal" in how["program"]:
                return Verdict(False, f"program: {_cut_short(how['program'], Closed())}")
            return Verdict(False, str(said["reason"]) or "the tests failed")

    def close(self) -> None:
        """End the server and everything in it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None and self._owner == os.getpid():
            try:
                self._server.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = None

    def _leave_to_parent(self) -> None:
        """In a process just forked: hold nothing that keeps the parent's server alive."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._server = None

    @contextlib.contextmanager
    def _ask(
        self, roles: dict[str, int], joined: bool = False
    ) -> Iterator[tuple[Callable[[], dict[str, str]], list[int]]]:
        """Confined processes for ``roles``, each with so many channels to here.

        ``joined`` adds one channel between all of them. Gives the channels and a function
        that stops the processes and tells how each ended.
        """
        control = self._started()
        ours: list[int] = []
        theirs: list[int] = []
        layout: list[tuple[str, list[int]]] = []
        for role, count in roles.items():
            places = []
            for _ in range(count):
                here, there = _pair(self.limits.wall_s + GRACE_S)
                places.append(len(theirs))
                ours.append(here)
                theirs.append(there)
            layout.append((role, places))
        if joined:
            for (_, places), end in zip(layout, _pair(None), strict=True):
                places.append(len(theirs))
                theirs.append(end)
        ended: dict[str, str] = {}

        def ends() -> dict[str, str]:
            if not ended:
                control.send(b"end")
                ended.update(self._received()["ends"])
            return ended

        try:
            request = {"roles": layout, "limits": asdict(self.limits)}
            socket.send_fds(control, [json.dumps(request).encode()], theirs)
            for descriptor in theirs:
                os.close(descriptor)
            theirs = []
            yield ends, ours
            ends()
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in [*ours, *theirs]:
                os.close(descriptor)

    def _started(self) -> socket.socket:
        alive = self._server is not None and self._server.poll() is None
        if self._control is not None and self._owner == os.getpid() and alive:
            return self._control
        self.close()
        _check_platform()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.settimeout(START_S)
        with there:
            self._server = _start_server(there.fileno())
        self._control, self._owner = here, os.getpid()
        try:
            self.landlock = self._received()["landlock"]
            here.settimeout(self.limits.wall_s + GRACE_S)
            self._try_walls()
        except BaseException:
            self.close()
            raise
        return here

    def _received(self) -> dict[str, Any]:
        """The server's next message; one that reports a missing layer is an error."""
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except OSError as error:
            raise _unfit(f"an answer of the process that confines programs ({error})") from None
        said = json.loads(data) if data else {"missing": "a process that confines programs"}
        if "missing" in said:
            raise _unfit(said["missing"])
        return said

    def _try_walls(self) -> None:
        """Trust nothing: a confined process tries what must not be possible."""
        with self._ask({"walls": 1}) as (ends, (channel,)):
            try:
                found = read_frame(channel)["open"]
            except (Closed, Unreadable):
                raise _unfit(f"confinement (its own check ended: {ends()['walls']})") from None
        if found:
            raise _unfit(f"confinement: a program can still do this: {', '.join(found)}")


_opened: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _after_fork() -> None:
    for sandbox in list(_opened):
        sandbox._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _shared(process: int) -> Sandbox:
    sandbox = Sandbox()
    atexit.register(sandbox.close)
    return sandbox


def shared() -> Sandbox:
    """The sandbox with default limits that verifiers of this process share."""
    return _shared(os.getpid())


def describe() -> str:
    """One line on how programs are confined on this machine, after one was.

    Raises :class:`EnvironmentUnfit`, naming the layer, where they cannot be.
    """
    with Sandbox() as sandbox:
        verdict = sandbox.judge("def f(x):\n    return x + 1", "assert f(1) == 2", ["f"])
        if not verdict.passed:
            raise _unfit(f"a process that answers ({verdict.reason})")
        files = f"Landlock {sandbox.landlock}" if sandbox.landlock else "no Landlock"
    return (
        "Programs are confined here: user, network, mount, process, IPC and host name namespaces,"
        f" a root of their own, resource limits, a system call filter, {files}."
    )


def spread(
    ask: Callable[[Sandbox, Job], Found],
    jobs: Sequence[Job],
    workers: int,
    limits: Limits | None = None,
) -> list[Found]:
    """``ask(sandbox, job)`` for all jobs, in order of the jobs, over so many sandboxes."""
    local = threading.local()
    opened: list[Sandbox] = []

    def one(job: Job) -> Found:
        if not hasattr(local, "sandbox"):
            local.sandbox = Sandbox(limits)
            opened.append(local.sandbox)
        return ask(local.sandbox, job)

    try:
        with ThreadPoolExecutor(workers) as threads:
            return list(threads.map(one, jobs))
    finally:
        for sandbox in opened:
            sandbox.close()


def _answered(channel: int, form: Any) -> Result:
    """Send one request to a program and take its answer, believing nothing of its shape."""
    write_frame(channel, form, FRAME_BYTES)
    answer = read_frame(channel, ANSWER_BYTES)
    if not isinstance(answer, dict):
        raise Unreadable("an answer that is none")
    if "value" in answer:
        return Result(decode(answer["value"]))
    kind, text = answer.get("type"), answer.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        raise Unreadable("an exception that is none")
    return Result(error=f"{kind}: {text}"[:300])


def _cut_short(end: str, error: Exception) -> str:
    if "time" in end:
        return f"out of {end}"
    if end == "stopped":
        return f"the program stopped answering: {error}"
    return f"the process ended: {end}"


def _pair(timeout_s: float | None) -> tuple[int, int]:
    """Two joined stream descriptors; reading the first fails after ``timeout_s`` of silence."""
    here, there = socket.socketpair()
    if timeout_s is not None:
        wait = int(timeout_s).to_bytes(8, sys.byteorder) + bytes(8)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
    return here.detach(), there.detach()


def _start_server(descriptor: int) -> subprocess.Popen[bytes]:
    """The server in a clean interpreter: standard library only, none of our environment."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    package = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-s", "-S", "-P", "-B", "-m", sandbox_server.__name__, str(descriptor)],
        env={**kept, "PYTHONPATH": str(package), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _check_platform() -> None:
    try:
        sandbox_kernel.check_platform()
    except sandbox_kernel.Denied as error:
        raise _unfit(str(error)) from None


def _unfit(missing: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"Programs cannot be judged on this machine; missing: {missing.rstrip('.')}. A program is"
        " never run without every layer of its confinement; choose tasks that run no code."
    )


def main() -> int:
    """Print whether programs can be confined on this machine; the exit code says it too."""
    try:
        print(describe())
    except CrlbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
