"""Confined processes for the code of tasks, as their asker holds them.

A :class:`Room` is one server that forks such processes; a :class:`Code` is the code of one task
in one of them. Nothing of that code runs on this side. Where the kernel denies a layer nothing
runs at all: :class:`EnvironmentUnfit` names it.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crlbench.confine import frames, services
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward import sandbox_kernel

SERVER = "crlbench.confine.server"
START_S = 60.0
"""Longest that starting the server, or one process of it, may take."""


@dataclass(frozen=True)
class Limits:
    """What the code of one task may use, from its first byte to its end."""

    cpu_s: float = 1800.0
    """Seconds of processor time."""
    wall_s: float = 14400.0
    """Seconds by the clock."""
    memory_bytes: int = 1 << 30
    """Address space beyond that of an idle interpreter."""
    file_bytes: int = 1 << 20
    """All files together, in a directory that is gone with the process."""
    silence_s: float = 120.0
    """Seconds by the clock that a question may go without an answer or a request."""


DEFAULT = Limits()
"""What a task's code gets where nobody names other limits."""
BUILD_SILENCE_S = 900.0
"""Silence of a build, which may draw for long."""


class Stopped(ValidationError):
    """The code broke a limit, ended its process or wrote what is no answer (exit 3)."""


class Room:
    """One server of confined processes; safe in threads and after ``os.fork``.

    Args:
        environment: what its interpreter starts with, such as the seed of hashes.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", **(environment or {})}
        self._lock = threading.RLock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0
        self._numbers = 0
        _ROOMS.add(self)

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, role: str, limits: Limits) -> tuple[int, socket.socket]:
        """A confined process: its number, and the channel to it."""
        with self._lock:
            self._require_server()
            return self._start_process(role, limits)

    def end(self, number: int) -> str:
        """End a process, and say how it ended, or that it was stopped now."""
        with self._lock:
            if self._control is None or self._owner != os.getpid():
                return "stopped"
            self._control.send(json.dumps({"end": number}).encode())
            return str(self._receive()["ended"])

    def close(self) -> None:
        """End the server and everything in it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None and self._owner == os.getpid():
            try:
                self._server.wait(START_S)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = None

    def _leave_to_parent(self) -> None:
        """In a process just forked: hold nothing that keeps the parent's server alive."""
        self._lock = threading.RLock()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._server = None

    def _require_server(self) -> None:
        alive = self._server is not None and self._server.poll() is None
        if self._control is not None and self._owner == os.getpid() and alive:
            return
        self.close()
        try:
            sandbox_kernel.check_platform()
        except sandbox_kernel.Denied as error:
            raise unfit(str(error)) from None
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.settimeout(START_S)
        with there:
            self._server = _start(there.fileno(), self.environment)
        self._control, self._owner = here, os.getpid()
        try:
            self._receive()
            self._try_walls()
        except BaseException:
            self.close()
            raise

    def _start_process(self, role: str, limits: Limits) -> tuple[int, socket.socket]:
        assert self._control is not None
        here, there = socket.socketpair()
        self._numbers += 1
        request = {"number": self._numbers, "role": role, "limits": asdict(limits)}
        try:
            with there:
                data = json.dumps(request).encode()
                socket.send_fds(self._control, [data], [there.fileno()])
            self._receive()
        except BaseException:
            here.close()
            raise
        return self._numbers, here

    def _receive(self) -> dict[str, Any]:
        """The server's next message; one that reports a missing layer is an error."""
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except OSError as error:
            self._control.close()  # a late answer must not be read as that to the next request
            self._control = None
            raise unfit(f"an answer of the process that confines code ({error})") from None
        message = json.loads(data) if data else {"missing": "a process that confines code"}
        if "missing" in message:
            raise unfit(message["missing"])
        return message

    def _try_walls(self) -> None:
        """Trust nothing: a confined process tries what must not be possible."""
        number, channel = self._start_process("walls", Limits(cpu_s=5.0, wall_s=START_S))
        with channel:
            channel.settimeout(START_S)
            try:
                data = channel.recv(1 << 16)
                holes = json.loads(data[4:])["open"]
            except (OSError, ValueError, KeyError):
                raise unfit(f"confinement (its own check ended: {self.end(number)})") from None
        self.end(number)
        if holes:
            raise unfit(f"confinement: code can still do this: {', '.join(holes)}")


_ROOMS: weakref.WeakSet[Room] = weakref.WeakSet()


def _after_fork() -> None:
    for room in list(_ROOMS):
        room._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _shared(process: int) -> Room:
    room = Room()
    atexit.register(room.close)
    return room


def shared() -> Room:
    """The room of this process, started when it is first used."""
    return _shared(os.getpid())


class Code:
    """The code of one task in a confined process, which starts with the first question."""

    def __init__(
        self, source: bytes, path: Path, room: Room | None = None, limits: Limits | None = None
    ) -> None:
        self.source = source
        self.path = path
        self.limits = limits or DEFAULT
        self._room = room
        self._lock = threading.RLock()
        self._number = 0
        self._channel: socket.socket | None = None
        self._owner = 0
        self._stopped = ""
        """Why there will be no more answers; "" while there are."""
        self.lacking = False
        """Whether this machine ever lacked a service; the code alone cannot claim that."""

    def ask(
        self,
        name: str,
        *arguments: Any,
        files: Mapping[str, bytes] | None = None,
        limit: int = frames.SMALL_BYTES,
        bytes_limit: int = 0,
    ) -> Any:
        """The answer to a question of :mod:`crlbench.confine.questions`.

        Args:
            name: of the question.
            arguments: plain data.
            files: of a dataset, by name, for a question that takes them.
            limit: bytes of the longest answer.
            bytes_limit: bytes that may follow it; then the result is (answer, bytes).

        Raises:
            Stopped: the code broke a limit, ended its process or garbled its answer.
            EnvironmentUnfit: code cannot be confined here, or needs what this machine lacks.
            Exception: what the code raised, as a class of the same name.
        """
        with self._lock:
            channel = self._load()
            question = {
                "ask": name,
                "arguments": arguments,
                "files": None if files is None else [*files],
                "token": secrets.token_hex(8),
            }
            builds = bytes_limit or name == "draws"
            silence = BUILD_SILENCE_S if builds else self.limits.silence_s
            try:
                deadline = time.monotonic() + silence
                frames.send(channel, question, deadline)
                for data in (files or {}).values():
                    frames.send_bytes(channel, data, deadline)
                answer = self._answer(question["token"], limit, silence)
                if "error" in answer:
                    raise _rebuild(answer)
                if not bytes_limit:
                    return answer["value"]
                if answer.get("bytes") is not True:
                    raise frames.Garbled("an answer without its bytes")
                deadline = time.monotonic() + silence
                return answer["value"], frames.receive_bytes(channel, bytes_limit, deadline)
            except (frames.Gone, frames.Late, frames.Garbled) as error:
                raise self._stop(error, silence) from None

    def close(self) -> None:
        """End the process; a later question starts another."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                if self._owner == os.getpid():
                    self._home().end(self._number)
            self._channel = None

    def _home(self) -> Room:
        return self._room or shared()

    def _load(self) -> socket.socket:
        if self._stopped:
            raise Stopped(self._stopped)
        if self._channel is not None and self._owner == os.getpid():
            return self._channel
        self._number, self._channel = self._home().start("task", self.limits)
        self._owner = os.getpid()
        token = secrets.token_hex(8)
        first = {
            "module": "crlbench_task",
            "path": str(self.path),
            "source": self.source.decode("utf-8", "surrogateescape"),
            "token": token,
        }
        try:
            silence = self.limits.silence_s
            frames.send(self._channel, first, time.monotonic() + silence)
            answer = self._answer(token, frames.SMALL_BYTES, silence)
        except (frames.Gone, frames.Late, frames.Garbled) as error:
            raise self._stop(error, silence) from None
        if "error" in answer:
            problem = f"{_word(answer.get('type'))}: {str(answer.get('text'))}"
            self._stopped = f"{self.path}: the code cannot be loaded: {problem}."
            self.close()
            raise Stopped(self._stopped)
        return self._channel

    def _answer(self, token: str, limit: int, silence: float) -> dict[str, Any]:
        """The next answer; until it is there, services are given."""
        assert self._channel is not None
        while True:
            message = frames.receive(
                self._channel, max(limit, services.REQUEST_BYTES), time.monotonic() + silence
            )
            if not isinstance(message, dict):
                raise frames.Garbled("an answer that is none")
            if "service" not in message:
                break
            reply = services.give(message)
            self.lacking |= "unfit" in reply
            frames.send(self._channel, reply, time.monotonic() + silence)
        if message.get("token") != token or not {"value", "error"} & message.keys():
            raise frames.Garbled("an answer to another question")
        if message.get("error") == "unfit" and not self.lacking:
            message["error"] = "raised"
        return message

    def _stop(self, error: Exception, silence: float) -> Stopped:
        """End the process for good, and say why."""
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        how = self._home().end(self._number)
        if isinstance(error, frames.Gone) and how != "stopped":
            why = f"it used up its {how}" if "time" in how else f"its process ended ({how})"
        elif isinstance(error, frames.Late):
            why = f"no answer within {silence:g} s"
        else:
            why = str(error)
        self._stopped = f"{self.path}: the code was stopped: {why}."
        return Stopped(self._stopped)


def _rebuild(answer: dict[str, Any]) -> Exception:
    """What the code raised, as a harmless exception with the same name and text."""
    text = str(answer.get("text"))
    if answer["error"] == "unfit":
        return EnvironmentUnfit(text)
    if answer["error"] == "refused":
        return ValidationError(text)
    return foreign(answer.get("type"), text)


def foreign(kind: Any, text: Any) -> Exception:
    """An exception of this process with the name and the text of a foreign one."""
    return type(_word(kind), (Exception,), {})(str(text))


def _word(kind: Any) -> str:
    is_name = isinstance(kind, str) and kind.isidentifier() and len(kind) <= 60
    return str(kind) if is_name else "Exception"


def unfit(missing: str) -> EnvironmentUnfit:
    """The error where a layer is missing."""
    return EnvironmentUnfit(
        f"The code of a task cannot be confined on this machine; missing: {missing.rstrip('.')}."
        " Code that others wrote never runs without confinement. Use Linux on x86_64 with"
        " unprivileged user namespaces; `python -m crlbench.reward.sandbox` says what is missing."
    )


def _start(descriptor: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The server in a clean interpreter: standard library only, none of our environment."""
    ours = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    package = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-s", "-S", "-P", "-B", "-m", SERVER, str(descriptor)],
        env={**ours, **environment, "PYTHONPATH": str(package)},
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
