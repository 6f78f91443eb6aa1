"""The tool that runs Python: a text of code in the sandbox, and what it prints."""

from __future__ import annotations

import functools

from crlbench.reward.sandbox import Limits, Sandbox

LIMITS = Limits(cpu_s=1.0, memory_bytes=128 << 20)
MAX_BYTES = 2048
"""Longest code, and longest output that is told whole."""
LIMIT_HIT = "error: stopped by a limit"
CUT = "\n[cut]"

RUNNER = """
import contextlib, io

def run(code):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "code", "exec"), {"__name__": "__main__"})
    except SystemExit:
        pass
    except Exception as error:
        return out.getvalue() + "error: " + type(error).__name__ + ": " + str(error)[:200]
    return out.getvalue()
"""


@functools.cache
def _sandbox() -> Sandbox:
    return Sandbox(LIMITS)


@functools.lru_cache(1 << 12)
def run_python(code: str) -> str:
    """What a program prints, its exception behind it, and at most :data:`MAX_BYTES` of both.

    Each call starts afresh: no name, file or module of an earlier call is left. A program over its
    limits of time and memory, or one that ends its process, gives :data:`LIMIT_HIT`.

    Raises:
        EnvironmentUnfit: the machine cannot confine programs.
    """
    if len(code.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return "error: the code is too long"
    (result,) = _sandbox().call(RUNNER, "run", [(code,)])
    if result.error or not isinstance(result.value, str):
        return LIMIT_HIT
    data = result.value.rstrip("\n").encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data.decode() or "(no output)"
    return data[:MAX_BYTES].decode("utf-8", "ignore") + CUT
