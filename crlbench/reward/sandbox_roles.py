"""What a confined process does: be the program, judge it, or try the walls.

A program answers calls of its functions with values. Its tests run in another process and
see those values only: nothing that a program does to its own interpreter, its frames, its
built-ins or its modules reaches them, and their source is nowhere in its memory.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import mmap
import os
import random
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

from crlbench.reward.sandbox_kernel import HOST_NAME
from crlbench.reward.sandbox_values import (
    FRAME_BYTES,
    Closed,
    Unreadable,
    decode,
    encode,
    read_frame,
    write_frame,
)

MESSAGE_CHARS = 200


class Gone(BaseException):
    """The program's process ended or stopped speaking; no ``except Exception`` hides it."""


class ProgramError(Exception):
    """The program raised an exception that is not a built-in one."""


def be_program(channel: int) -> None:
    """Load the program that arrives first, then answer calls until the channel closes."""
    random.seed(0)
    source = read_frame(channel)["program"]
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        write_frame(channel, _raised(error))
        return
    write_frame(channel, {"value": None})
    while True:
        name, arguments, named = decode(read_frame(channel))
        try:
            answer = {"value": encode(module.__dict__[name](*arguments, **named))}
            write_frame(channel, answer)
        except Closed:
            return
        except BaseException as error:
            write_frame(channel, _raised(error))


def judge_program(asker: int, program: int) -> None:
    """Run tests against a program in another process and tell the asker the verdict."""
    # Tests that draw inputs draw the same ones every time.
    random.seed(0)
    request = read_frame(asker)
    calls = _Calls(program)
    try:
        calls.load(request["program"])
        namespace: dict[str, Any] = {"__name__": "tests"}
        namespace |= {name: calls.function(name) for name in request["entries"]}
        exec(compile(request["tests"], "<tests>", "exec", dont_inherit=True), namespace)
        reason = calls.problem or ("" if calls.count else "the tests called no function")
    except BaseException as error:
        reason = calls.problem or f"{type(error).__name__}: {error}"
    write_frame(asker, {"passed": not reason, "reason": reason[:MESSAGE_CHARS]})


def try_walls(asker: int) -> None:
    """Tell the asker which forbidden things were possible here after all."""
    write_frame(asker, {"open": [name for name, attempt in _ATTEMPTS.items() if _works(attempt)]})


class _Calls:
    """The functions of a program as its tests see them."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.count = 0
        self.problem = ""
        """Why the verdict is negative whatever the tests conclude; "" while all is well."""

    def load(self, source: str) -> None:
        self._ask({"program": source})

    def function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            return self._ask(encode([name, list(arguments), named]))

        call.__name__ = call.__qualname__ = name
        return call

    def _ask(self, form: Any) -> Any:
        try:
            write_frame(self.channel, form, FRAME_BYTES)
            answer = read_frame(self.channel)
            if not isinstance(answer, dict) or not {"value"} <= answer.keys():
                raise _as_exception(answer)
            return decode(answer["value"])
        except (Closed, Unreadable) as error:
            self.problem = f"the program stopped answering: {error}"
            raise Gone(self.problem) from None


def _raised(error: BaseException) -> dict[str, str]:
    """An exception as its nearest built-in class and its message."""
    known = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    try:
        text = str.__str__(str(error))[:MESSAGE_CHARS]
    except BaseException:
        text = ""
    return {"error": str.__str__(known), "type": type(error).__name__[:60], "text": text}


def _as_exception(answer: Any) -> Exception:
    """The exception that an answer reports; one that ends a process becomes an ordinary one."""
    if not isinstance(answer, dict):
        return ProgramError("an answer that is none")
    name, text = answer.get("error"), str(answer.get("text", ""))
    known = getattr(builtins, name, None) if isinstance(name, str) else None
    plain = isinstance(known, type) and issubclass(known, Exception)
    # These would end a loop of the tests early instead of failing it.
    plain = plain and not issubclass(known, StopIteration | StopAsyncIteration)
    try:
        return known(text) if plain else ProgramError(f"{answer.get('type')}: {text}")
    except TypeError:
        return ProgramError(f"{name}: {text}")


def _works(attempt: Callable[[], Any]) -> bool:
    try:
        return bool(attempt())
    except OSError:
        return False


def _socket(family: int) -> bool:
    socket.socket(family, socket.SOCK_STREAM).close()
    return True


def _fork() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return True


def _written(path: str) -> bool:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return True


def _refused_work_file() -> bool:
    try:
        return not _written("probe") or os.unlink("probe") is not None
    except OSError:
        return True


def _signalled() -> bool:
    os.kill(1, 0)
    return True


def _machine_code() -> bool:
    mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return True


def _exec() -> bool:
    try:
        os.execv("/bin/true", ["true"])
    except OSError as error:
        # EPERM is the filter; anything else means that the call itself was reached.
        return error.errno != errno.EPERM


_ATTEMPTS: dict[str, Callable[[], Any]] = {
    "seeing other processes": lambda: os.getpid() != 1 or os.getppid() != 0,
    "an internet socket": lambda: _socket(socket.AF_INET),
    "a local socket": lambda: _socket(socket.AF_UNIX),
    "starting a process": _fork,
    "running another program": _exec,
    "sending signals": _signalled,
    "making machine code": _machine_code,
    "changing shared descriptors": lambda: fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK) == 0,
    "reading the host's name": lambda: os.uname().nodename != HOST_NAME,
    "reading the machine's files": lambda: os.path.exists("/etc") or os.path.exists("/proc/1"),
    "writing outside its directory": lambda: _written("/outside"),
    "a read-only or missing work directory": _refused_work_file,
    "reading the environment": lambda: bool(os.environ),
    "other descriptors": lambda: any(_open(fd) for fd in range(4, 64)),
}


def _open(fd: int) -> bool:
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False


ROLES: dict[str, Callable[..., None]] = {
    "program": be_program,
    "tests": judge_program,
    "walls": try_walls,
}
