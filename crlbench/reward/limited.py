"""Functions of an environment that return, or say where they do not.

An environment has no clock: what it returns depends on its arguments alone. A function that never
returns would stop a run for ever, so each call has far more processor time than any honest one
takes. Whoever plays an environment gets it through here (:func:`crlbench.catalog.frozen.
environment_of`), so a limit that is hit is a broken environment and names the line.

No task imports this file.
"""

from __future__ import annotations

import dis
import functools
import signal
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

from crlbench.errors import EnvironmentUnfit, Interrupted
from crlbench.reward.env import Environment

SECONDS = 30.0
"""Processor time of one call, which takes about a millisecond."""


def limited(environment: Environment) -> Environment:
    """The same environment; no call of its functions goes on for ever, ends the process, or says
    that the machine or the user is at fault."""
    values = {field.name: getattr(environment, field.name) for field in fields(environment)}
    functions: dict[str, Any] = {
        n: bounded(value) for n, value in values.items() if callable(value)
    }
    return replace(environment, **functions)


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, within :data:`SECONDS` of the process's time.

    The call raises TimeoutError where it takes longer, naming the line it was at, and
    RuntimeError where the function tries to leave the process, by whatever exception. After a call
    that took longer the function is not called again. Time is bounded in the main thread, which
    alone gets signals.
    """
    late: list[TimeoutError] = []

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if late:
            raise late[0]
        if threading.current_thread() is not threading.main_thread():
            return _kept(function, arguments)
        _watch()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            return _kept(function, arguments)
        except TimeoutError as error:
            late.append(error)
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    return call


@functools.cache
def _watch() -> None:
    """Take the signal of the timer, once in a process: an episode makes thousands of calls."""
    signal.signal(signal.SIGPROF, _late)


def _kept(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except BaseException as error:
        if not _leaves(error):
            raise
        raise RuntimeError(f"it leaves by {type(error).__name__}({error})") from error


PACKAGE = Path(__file__).resolve().parents[1]


def _leaves(error: BaseException) -> bool:
    """Whether a function itself raised what ends a run as nobody's mistake.

    That the machine is unfit, or that a signal came, is said by this package alone, as by the
    sandbox of a tool. A signal also interrupts a function, where no statement raises anything.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    code = trace.tb_frame.f_code
    if isinstance(error, KeyboardInterrupt):
        return code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    if isinstance(error, (EnvironmentUnfit, Interrupted)):
        return not Path(code.co_filename).resolve().is_relative_to(PACKAGE)
    return not isinstance(error, Exception)


def _late(_: int, frame: FrameType | None) -> None:
    place = "" if frame is None else f", at {frame.f_code.co_filename}:{frame.f_lineno}"
    raise TimeoutError(f"no result after {SECONDS:g} seconds of processor time{place}")
