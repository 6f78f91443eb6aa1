"""Functions of an environment that return, or say where they do not.

An environment has no clock: what it returns depends on its arguments alone. A function that never
returns would stop a run for ever, so each call has far more time than any honest one takes: of the
processor, and of the clock for one that waits. Whoever plays an environment gets it through here
(:func:`crlbench.catalog.frozen.environment_of`), so a limit that is hit is a broken environment and
names the line.

Signals end a call, so it ends between two steps of Python or in a wait, and no ``except Exception``
of the task keeps it. A loop inside one call of a C function cannot be ended so, nor code that keeps
every exception again and again (``except BaseException``).

No task imports this file.
"""

from __future__ import annotations

import dis
import functools
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from crlbench.errors import EnvironmentUnfit, Interrupted
from crlbench.reward.env import Environment

SECONDS = 30.0
"""Processor time of one call, which takes about a millisecond."""
WAITING = 600.0
"""Seconds of the clock of one call: more than the tool ``python`` waits for its sandbox."""
AGAIN = 0.1
"""Seconds after which a call is ended again that kept the exception."""
TIMERS = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
"""The timer of each signal: of the processor, and of the clock."""
PACKAGE = Path(__file__).resolve().parents[1]
"""What may say that the machine is unfit, or that a signal came."""


class _Late(BaseException):
    """A call took longer than it may; no ``except Exception`` keeps it."""


def limited(environment: Environment) -> Environment:
    """The same environment; no call of its functions goes on for ever, ends the process, or says
    that the machine or the user is at fault."""
    values = {field.name: getattr(environment, field.name) for field in fields(environment)}
    functions: dict[str, Any] = {
        n: bounded(value) for n, value in values.items() if callable(value)
    }
    return replace(environment, **functions)


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, within :data:`SECONDS` of the process's time and :data:`WAITING` in all.

    The call raises TimeoutError where it takes longer, naming the line it was at, and
    RuntimeError where the function tries to leave the process, by whatever exception. After a call
    that took longer the function is not called again. Time is bounded in the main thread, which
    alone gets signals; a call inside another has the time of the outer one.
    """
    late: list[TimeoutError] = []

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if late:
            raise late[0]
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or _Watch.present is not None:
            return _kept(function, arguments)
        watch, result = _Watch(), None
        try:
            try:
                watch.start()
                result = _kept(function, arguments)
            finally:
                watch.stop()
        except (Exception, _Late) as error:
            watch.stop()  # the signal may have come in the midst of it
            if not watch.words or isinstance(error, Interrupted):
                raise
        if watch.words:
            late.append(TimeoutError(watch.words))
            raise late[0]
        return result

    return call


class _Watch:
    """The timers of one call. Those that somebody else had set go on after it."""

    present: ClassVar[_Watch | None] = None
    """That of the call under way."""

    def __init__(self) -> None:
        self.words = ""
        """What was broken; empty while nothing was."""
        self.begun = time.monotonic()
        self.others: dict[signal.Signals, tuple[Any, float, float]] = {}
        """By signal: another's handler, the seconds left of its timer, and its interval."""

    def start(self) -> None:
        for number, limit in ((signal.SIGPROF, SECONDS), (signal.SIGALRM, WAITING)):
            handler = signal.getsignal(number)
            if handler is not _ring:
                signal.signal(number, _ring)
            left, interval = signal.setitimer(TIMERS[number], limit, AGAIN)
            if left:
                self.others[number] = (handler, left, interval)
        _Watch.present = self

    def stop(self) -> None:
        """Nothing rings any more; a second call changes nothing."""
        _Watch.present = None
        for timer in TIMERS.values():
            signal.setitimer(timer, 0)
        while self.others:
            number, (handler, left, interval) = self.others.popitem()
            signal.signal(number, handler)
            passed = time.monotonic() - self.begun if number == signal.SIGALRM else 0.0
            signal.setitimer(TIMERS[number], max(left - passed, AGAIN), interval)

    def ring(self, number: int, frame: FrameType | None) -> None:
        """A timer has run down."""
        is_clock, now = number == signal.SIGALRM, time.monotonic()
        if is_clock and not self.words and now - self.begun > 2 * WAITING:
            self.begun = now  # the process itself was stopped: it gets the time again
            signal.setitimer(signal.ITIMER_REAL, WAITING, AGAIN)
            return
        if not self.words:
            limit = f"{WAITING:g} seconds" if is_clock else f"{SECONDS:g} seconds of processor time"
            place = "" if frame is None else f", at {frame.f_code.co_filename}:{frame.f_lineno}"
            self.words = f"no result after {limit}{place}"
        raise _Late(self.words)


def _ring(number: int, frame: FrameType | None) -> None:
    if _Watch.present is not None:
        _Watch.present.ring(number, frame)


def _kept(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except BaseException as error:
        if not _leaves(error):
            raise
        raise RuntimeError(f"it leaves by {type(error).__name__}({error})") from error


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
    return not isinstance(error, (Exception, _Late))
