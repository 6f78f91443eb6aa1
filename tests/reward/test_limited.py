"""Calls of an environment end in time, however they spend it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crlbench.errors import Interrupted
from crlbench.reward import limited

SHORT, LONG = 0.2, 600.0


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limited, "SECONDS", SHORT)
    monkeypatch.setattr(limited, "WAITING", LONG)
    monkeypatch.setattr(limited, "AGAIN", 0.02)
    yield
    assert limited._Watch.present is None


def spin() -> None:
    while True:
        pass


def keep_exceptions() -> None:
    while True:
        try:
            sum(range(100))
        except Exception:  # noqa: S112  (what is tried)
            continue


def keep_all_once() -> str:
    try:
        spin()
    except BaseException:  # what is tried
        return "a result, too late"
    return ""


def keep_the_first() -> None:
    try:
        spin()
    except BaseException:  # what is tried
        spin()


def sleep() -> None:
    time.sleep(LONG)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def sleep_and_keep() -> None:
    while True:
        try:
            time.sleep(LONG)
        except Exception:  # noqa: S112  (what is tried)
            continue


COMPUTES = [spin, keep_exceptions, keep_all_once, keep_the_first]
WAITS = [sleep, wait_for_a_lock, sleep_and_keep]


@pytest.mark.parametrize("function", [*COMPUTES, *WAITS])
def test_a_call_that_does_not_return_is_ended(
    function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line is named, and it is not called again."""
    words = "0.2 seconds of processor time"
    if function in WAITS:
        monkeypatch.setattr(limited, "WAITING", SHORT)
        monkeypatch.setattr(limited, "SECONDS", LONG)
        words = "0.2 seconds"
    call = limited.bounded(function)
    with pytest.raises(TimeoutError, match=rf"no result after {words}, at .*\.py:\d+$") as first:
        call()
    with pytest.raises(TimeoutError) as second:
        call()
    assert second.value is first.value


def test_honest_calls_are_as_they_were() -> None:
    def fails() -> None:
        raise KeyError("late")

    assert limited.bounded(lambda a, b: a + b)(1, 2) == 3
    with pytest.raises(KeyError, match="late"):
        limited.bounded(fails)()
    with pytest.raises(RuntimeError, match="it leaves by SystemExit"):
        limited.bounded(exit)()
    assert limited.bounded(lambda: limited.bounded(lambda: 7)())() == 7
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_stop_from_outside_is_no_fault_of_the_task() -> None:
    """It is raised by this package, as where a tool waits for its sandbox."""
    there: dict[str, Any] = {"Interrupted": Interrupted}
    text = "def stop():\n    raise Interrupted('stopped')\n"
    exec(compile(text, limited.PACKAGE / "confine" / "room.py", "exec"), there)  # noqa: S102

    def stopped() -> None:
        try:
            spin()
        finally:
            there["stop"]()

    with pytest.raises(Interrupted):
        limited.bounded(stopped)()


def test_the_timer_of_another_goes_on() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rang.append(number))
    left, interval = signal.setitimer(signal.ITIMER_REAL, 100.0)
    try:
        limited.bounded(time.sleep)(0.01)
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] < 100.0
        signal.raise_signal(signal.SIGALRM)
        assert rang == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, interval)


def test_a_process_that_was_stopped_gets_its_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a stopped process goes on, and its environment is not to blame."""
    monkeypatch.setattr(limited, "WAITING", SHORT)
    monkeypatch.setattr(limited, "SECONDS", LONG)

    def stopped() -> float:
        watch = limited._Watch.present
        assert watch is not None
        watch.begun -= LONG  # so long ago by the clock
        signal.raise_signal(signal.SIGALRM)
        return signal.getitimer(signal.ITIMER_REAL)[0]

    assert 0.0 < limited.bounded(stopped)() <= SHORT
