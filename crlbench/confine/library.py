"""Libraries that answer for confined code, in a process without network and without files.

:class:`crlbench.reward.forked.Server` limits a library's time and memory, and trusts its questions
to come from texts of a model. Here they come from code that nobody knows. So the servers run
below a host process that has left the machine: no network, no home, no environment; only the
interpreter, its packages and crlbench are there, read-only.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from crlbench.confine import frames
from crlbench.errors import EnvironmentUnfit
from crlbench.reward import forked
from crlbench.reward import sandbox_kernel as kernel

ANSWER_S = forked.START_S + 2 * forked.WALL_S
"""Longest that an answer may take, the start of the library included."""
QUESTION_BYTES = 4 << 20
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/bin", "/bin")
"""Where shared libraries and an interpreter may be."""


class Host:
    """The process that holds the libraries; started with the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def ask(self, module: str, arguments: list[str], question: Any) -> Any:
        """What :meth:`crlbench.reward.forked.Server.ask` says to a question.

        Raises :class:`EnvironmentUnfit` where the library or its confinement is not here.
        """
        with self._lock:
            try:
                channel = self._running()
                request = {"module": module, "arguments": arguments, "question": question}
                deadline = time.monotonic() + ANSWER_S
                frames.send(channel, request, deadline)
                answer = frames.receive(channel, QUESTION_BYTES, deadline)
            except (frames.Gone, frames.Late, frames.Garbled) as error:
                self.close()
                raise EnvironmentUnfit(f"the process of a library ended: {error}") from None
        if "unfit" in answer:
            raise EnvironmentUnfit(answer["unfit"])
        return answer["value"]

    def close(self) -> None:
        """End the process with all libraries."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.wait()
        self._channel = self._process = None

    def _running(self) -> socket.socket:
        if self._channel is not None:
            return self._channel
        here, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-B", "-m", __name__, str(there.fileno())],
                env={"PYTHONPATH": str(_package().parent), "LC_ALL": "C.UTF-8"},
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._channel = here
        state = frames.receive(here, frames.SMALL_BYTES, time.monotonic() + forked.START_S)
        if "missing" in state:
            self.close()
            raise EnvironmentUnfit(
                f"the library of a task's code cannot be confined on this machine; missing:"
                f" {state['missing']}"
            )
        return here


@functools.cache
def _shared(process: int) -> Host:
    return Host()


def shared() -> Host:
    """The host of this process."""
    return _shared(os.getpid())


def _package() -> Path:
    return Path(__file__).resolve().parents[1]


def _leave_the_machine() -> None:
    """Go on in a fork that sees the interpreter, its packages and crlbench, and nothing else."""
    kernel.check_platform()
    uid, gid = os.geteuid(), os.getegid()
    kernel._unshare(kernel.CLONE_NEWUSER, "user namespaces", "")
    kernel._write("/proc/self/setgroups", "deny", "user namespaces")
    kernel._write("/proc/self/uid_map", f"{kernel.NOBODY} {uid} 1", "user namespaces")
    kernel._write("/proc/self/gid_map", f"{kernel.NOBODY} {gid} 1", "user namespaces")
    flags = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWNS
    kernel._unshare(flags, "network, IPC, host name and mount namespaces", "")
    kernel._unshare(kernel.CLONE_NEWPID, "process namespaces", "")
    pid = os.fork()
    if pid:
        os.closerange(3, 1024)
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.die_with_parent()
    _enter_new_root()
    kernel._drop_capabilities()
    kernel._check(kernel._libc.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _folders() -> list[str]:
    """The folders that a library needs, outermost only, as they are named."""
    packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    places = [sys.prefix, sys.base_prefix, *kernel._library_folders(), *packages, *SYSTEM]
    places += [os.path.dirname(os.path.realpath(sys.executable)), str(_package())]
    folders = sorted({os.path.abspath(path) for path in places if os.path.isdir(path)})
    return [a for a in folders if not any(a != b and Path(a).is_relative_to(b) for b in folders)]


def _enter_new_root() -> None:
    kernel._mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    sources = {path: os.open(path, os.O_PATH) for path in [*_folders(), *DEVICES]}
    place = next(path for path in ("/mnt", "/tmp", "/sys") if os.path.isdir(path))
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel._mount("none", place, "tmpfs", flags, "size=1m,mode=755")
    for path, source in sources.items():
        target, origin = place + path, f"/proc/self/fd/{source}"
        if path in DEVICES:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            Path(target).touch()
            kernel._mount(origin, target, None, kernel.MS_BIND)
        else:
            os.makedirs(target)
            kernel._mount(origin, target, None, kernel.MS_BIND | kernel.MS_REC)
            kernel._make_read_only(target, os.fstatvfs(source).f_flag)
        os.close(source)
    os.chdir(place)
    kernel._check(kernel._libc.syscall(kernel.SYS_PIVOT_ROOT, b".", b"."), "a root of its own")
    kernel._check(kernel._libc.umount2(b".", kernel.MNT_DETACH), "a root of its own (umount)")
    os.chdir("/")
    kernel._make_read_only("/", os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def main(descriptor: int) -> None:
    """Answer the asker at the other end of ``descriptor`` until it is gone."""
    channel = socket.socket(fileno=descriptor)
    try:
        _leave_the_machine()
    except kernel.Denied as error:
        frames.send(channel, {"missing": str(error)})
        return
    servers: dict[str, forked.Server] = {}
    frames.send(channel, {"ready": True})
    while True:
        try:
            request = frames.receive(channel, QUESTION_BYTES)
        except frames.Gone:
            return
        command = (request["module"], *request["arguments"])
        server = servers.setdefault(json.dumps(command), forked.Server(*command))
        try:
            frames.send(channel, {"value": server.ask(request["question"])})
        except EnvironmentUnfit as error:
            frames.send(channel, {"unfit": str(error)})


if __name__ == "__main__":
    main(int(sys.argv[1]))
