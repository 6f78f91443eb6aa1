"""What confined code may ask of the process that asks it: plain data in, plain data out.

Three things need processes of their own and therefore cannot happen where the code is: judging
programs, which the sandbox does; the library of mathematics and that of puzzles, which answer in
a process without network and without the user's files; and which packages are installed. Every
request was written by an enemy. It is checked here, and nothing of it runs in this process.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from crlbench.confine import library
from crlbench.errors import EnvironmentUnfit
from crlbench.reward import forked
from crlbench.reward.sandbox import Limits, Sandbox
from crlbench.reward.sandbox_values import decode, encode

REQUEST_BYTES = 4 << 20
"""Longest request."""
MOST = {"cpu_s": 10.0, "wall_s": 60.0, "memory_bytes": 1 << 30, "file_bytes": 1 << 24}
"""Most that a program may be given of each limit."""
SANDBOXES = 4
"""Sandboxes with different limits that are kept."""
LIBRARIES = {
    "crlbench.reward.equivalence": re.compile(r""),
    "crlbench.reward.gym": re.compile(r"[a-z0-9_]{1,64}"),
}
"""Modules that answer for a library, and what their argument may be."""


def give(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request: a value, that it is refused, or what this machine lacks."""
    try:
        return {"value": _SERVICES[request["service"]](request)}
    except EnvironmentUnfit as error:
        return {"unfit": str(error)}
    except Exception as error:  # a request may hold anything
        return {"refused": f"{type(error).__name__}: this service is not given for that"}


def _judge(request: dict[str, Any]) -> dict[str, Any]:
    texts = [_text(request[name]) for name in ("program", "tests")]
    entries = [_text(name) for name in request["entries"]]
    verdict = _sandbox(_limits(request["limits"])).judge(*texts, entries)
    return {"passed": verdict.passed, "reason": verdict.reason}


def _call(request: dict[str, Any]) -> list[list[Any]]:
    arguments = [tuple(one) for one in decode(request["arguments"])]
    program, entry = _text(request["program"]), _text(request["entry"])
    results = _sandbox(_limits(request["limits"])).call(program, entry, arguments)
    return [[encode(one.value), one.error] for one in results]


def _packages(request: dict[str, Any]) -> None:
    packages = {_text(name): _text(version) for name, version in request["packages"].items()}
    forked.require(packages, _text(request["extra"]), _text(request["why"]))


def _library(request: dict[str, Any]) -> Any:
    module, arguments = _text(request["module"]), [_text(a) for a in request["arguments"]]
    if not LIBRARIES[module].fullmatch("".join(arguments)) or len(arguments) > 1:
        raise ValueError("no such library")
    return library.shared().ask(module, arguments, request["question"])


_SERVICES = {"judge": _judge, "call": _call, "packages": _packages, "library": _library}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _limits(limits: dict[str, Any]) -> Limits:
    if limits.keys() != MOST.keys() or any(not 0 < limits[n] <= most for n, most in MOST.items()):
        raise ValueError("limits beyond those of the sandbox")
    return Limits(**limits)


@functools.lru_cache(SANDBOXES)
def _sandbox(limits: Limits) -> Sandbox:
    return Sandbox(limits)
