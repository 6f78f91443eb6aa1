"""Limits for programs that strangers wrote and that run in this process: chat templates.

The sandbox that transformers renders them in keeps them from everything but time and memory, and
from neither of these.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jinja2 import Environment, TemplateError

from crlbench.errors import ValidationError

SECONDS = 0.25
"""CPU time of one rendering, which takes about a millisecond."""
MEMORY = 2**28
"""Bytes that one rendering may add."""
LONGEST = 2**16
"""Characters that a template may print besides the messages themselves."""


@contextmanager
def bounded() -> Iterator[None]:
    """Run a block within :data:`SECONDS` and :data:`MEMORY`.

    Time is bounded in the main thread, which alone gets signals, and memory where the system says
    how much is used (Linux).

    Raises:
        TimeoutError: it computed for longer.
        MemoryError: it asked for more.
    """
    with _memory(), _time():
        yield


@contextmanager
def _time() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _late(*_: object) -> None:
    raise TimeoutError(f"it computes for more than {SECONDS} seconds")


@contextmanager
def _memory() -> Iterator[None]:
    try:
        used = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    except OSError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + MEMORY
    if soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refuse_powers(template: str) -> None:
    """Refuse a template that raises to a power: one such step can take hours without an end.

    Raises:
        ValidationError: it does.
    """
    if "**" in template:
        with suppress(TemplateError):  # transformers says what is wrong with it
            if any(
                kind == "operator" and text == "**" for _, kind, text in Environment().lex(template)
            ):
                raise ValidationError("it raises numbers to powers (**), which none needs to")
