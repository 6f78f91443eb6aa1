"""The process that makes confined Python interpreters, one for each program or its tests.

Started by :mod:`crlbench.reward.sandbox` as ``python -m``, with nothing but the standard
library. It first leaves the machine (namespaces, its own root), then forks on request: every
fork gets a process namespace, a work directory, limits and filters of its own before it reads
its first byte. Programs and tests never pass through this process: each fork receives them
over a socket that it alone holds, so that no fork finds anything of another in its memory.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from crlbench.reward import sandbox_kernel as kernel
from crlbench.reward import sandbox_roles as roles

CHANNEL = 3
"""The first descriptor of a fork's own sockets."""
OPEN_FILES = 32
REQUEST_BYTES = 4096
KNOWN_MODULES = (
    "abc array base64 binascii bisect calendar cmath collections collections.abc contextlib copy"
    " csv ctypes dataclasses datetime decimal difflib enum fractions functools hashlib heapq html"
    " io itertools json math mmap numbers operator os.path pprint random re select statistics"
    " string struct subprocess textwrap threading time traceback types typing unicodedata uuid"
    " zlib"
).split()
"""Loaded before confinement: afterwards no machine code can be loaded."""


class Child:
    """One confined process and what may still happen to it."""

    def __init__(self, role: str, pid: int, limits: dict[str, Any]) -> None:
        self.role, self.pid, self.limits = role, pid, limits
        self.descriptor = os.pidfd_open(pid)
        self.deadline = time.monotonic() + limits["wall_s"]
        self.end: str | None = None

    def processor_time(self) -> float:
        """Seconds of processor time used so far."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def left(self) -> float:
        """Seconds for which it certainly need not be looked at."""
        allowed = self.limits["cpu_s"] - self.processor_time()
        return max(0.002, min(allowed, self.deadline - time.monotonic()))

    def check(self) -> None:
        """Kill it when a limit is reached; notice when it has ended."""
        if self.processor_time() >= self.limits["cpu_s"]:
            self.kill("processor time")
        elif time.monotonic() >= self.deadline:
            self.kill("time")
        else:
            self.reap(os.WNOHANG)

    def kill(self, why: str) -> None:
        """End it and, with it, its whole process namespace."""
        if not self.reap(os.WNOHANG):
            os.kill(self.pid, signal.SIGKILL)
            self.reap(0)
            self.end = why

    def reap(self, how: int) -> bool:
        """Whether it has ended, with ``end`` saying how."""
        if self.end is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.end = f"signal {-code}" if code < 0 else f"exit {code}"
                os.close(self.descriptor)
        return self.end is not None


class Server:
    """Serves one request after another until the other side of ``control`` is gone."""

    def __init__(self, control: socket.socket, own_processes: int, base_bytes: int) -> None:
        self.control = control
        self.own_processes = own_processes
        """A descriptor of this process's namespace, to return to after each fork."""
        self.base_bytes = base_bytes

    def run(self) -> None:
        """The main loop."""
        while True:
            data, descriptors, _, _ = socket.recv_fds(self.control, REQUEST_BYTES, 8)
            if not data:
                return
            if data != b"end":
                self._serve(json.loads(data), descriptors)

    def _serve(self, request: dict[str, Any], descriptors: list[int]) -> None:
        children: list[Child] = []
        try:
            for role, places in request["roles"]:
                channels = [descriptors[place] for place in places]
                children.append(self._spawn(role, channels, request["limits"]))
        except kernel.Denied as error:
            for child in children:
                child.kill("not started")
            self.control.send(json.dumps({"missing": str(error)}).encode())
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._supervise(children)
        ends = {child.role: child.end for child in children}
        self.control.send(json.dumps({"ends": ends}).encode())

    def _supervise(self, children: list[Child]) -> None:
        """Until the asker has what it wants or is gone, keep every child within its limits."""
        while True:
            alive = [child for child in children if not child.end]
            watched = [self.control, *(child.descriptor for child in alive)]
            wait = min((child.left() for child in alive), default=None)
            ready = select.select(watched, [], [], wait)[0]
            for child in alive:
                child.check()
            if self.control in ready:
                self.control.recv(REQUEST_BYTES)
                for child in children:
                    child.kill("stopped")
                return

    def _spawn(self, role: str, channels: list[int], limits: dict[str, Any]) -> Child:
        reading, writing = os.pipe()
        pid = kernel.fork_into_new_process_namespace(self.own_processes)
        if pid == 0:
            self._become(role, channels, writing, limits)
        os.close(writing)
        child = Child(role, pid, limits)
        said = os.read(reading, REQUEST_BYTES)
        os.close(reading)
        if said != b"confined":
            child.kill("not started")
            raise kernel.Denied(said.decode() or "starting a confined process")
        return child

    def _become(self, role: str, channels: list[int], report: int, limits: dict[str, Any]) -> None:
        """In the fork: take every right away, say so, and only then listen. Never returns."""
        try:
            kernel.die_with_parent()
            report = _keep_only(channels, report)
            memory = self.base_bytes + limits["memory_bytes"]
            seconds = int(limits["cpu_s"]) + 2
            kernel.confine(memory, seconds, limits["file_bytes"], OPEN_FILES)
            os.write(report, b"confined")
        except BaseException as error:
            os.write(report, str(error).encode()[:REQUEST_BYTES] or b"an unknown layer")
            os._exit(1)
        os.close(report)
        try:
            roles.ROLES[role](*range(CHANNEL, CHANNEL + len(channels)))
        finally:
            os._exit(0)


def _keep_only(channels: list[int], report: int) -> int:
    """Close every descriptor but these, which move to 3, 4, ...; the report's comes last."""
    high = [os.dup2(fd, 100 + i) for i, fd in enumerate([*channels, report])]
    os.closerange(CHANNEL, 100)
    low = [os.dup2(fd, CHANNEL + i) for i, fd in enumerate(high)]
    os.closerange(low[-1] + 1, 1024)
    return low[-1]


def _address_space() -> int:
    """Bytes of address space in use now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


def _forget_the_outside() -> None:
    """Leave nothing of the caller in memory where a program could look."""
    os.environ.clear()
    sys.argv[:] = [""]
    parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != parent]
    sys.path_importer_cache.pop(parent, None)


def main(descriptor: int) -> None:
    """Serve the asker at the other end of ``descriptor``."""
    control = socket.socket(fileno=descriptor)
    try:
        for name in KNOWN_MODULES:
            importlib.import_module(name)
        _forget_the_outside()
        base_bytes = _address_space()
        server = Server(control, kernel.leave_the_machine(), base_bytes)
    except kernel.Denied as error:
        control.send(json.dumps({"missing": str(error)}).encode())
        return
    control.send(json.dumps({"landlock": kernel.landlock_version()}).encode())
    gc.collect()
    gc.freeze()
    server.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
