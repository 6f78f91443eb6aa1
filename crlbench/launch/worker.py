"""The life of a worker process: wait for a cell, run it, report, until told to quit.

Only names and plain data come in and go out. A worker ignores Ctrl-C (its launcher decides) and
dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

from crlbench.contract.events import Event
from crlbench.contract.records import Cell
from crlbench.run.launcher import Report
from crlbench.run.plan import LOG_NAME
from crlbench.run.store import explained, explanation, is_refusal, make_folder

RUN_CELL = "crlbench.run.execute:run_cell"
"""The function a worker runs on each cell: ``(cell, emit, should_stop) -> RunRecord``."""

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Ask for pages of 2 MB where the system leaves it to programs: with small ones a quarter of an
update of a 135M model goes into faults. Other C libraries do not read it."""


def environment_of(threads: int) -> dict[str, str]:
    """What a worker's libraries read when they are loaded."""
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    memory = {} if "GLIBC_TUNABLES" in os.environ else {"GLIBC_TUNABLES": HUGE_PAGES}
    return dict.fromkeys(_THREAD_VARIABLES, str(threads)) | quiet | memory


def work(pipe: connection.Connection, function: str, parent: int, threads: int) -> None:
    """Be a worker of the process ``parent``; says its own number first."""
    import queue
    import threading

    die_with_parent(parent)
    ignore_stop_signals()
    stop = threading.Event()
    inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    pipe.send(("hello", os.getpid()))
    threading.Thread(target=_listen, args=(pipe, inbox, stop), daemon=True).start()
    while (content := inbox.get()) is not None:
        pipe.send(("end", _outcome_of(function, content, pipe, stop, threads)))


def ignore_stop_signals() -> None:
    """Leave Ctrl-C to the launcher; for a process that was started with these signals blocked."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def die_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when its parent dies."""
    import ctypes

    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def named(function: str) -> Callable[..., Any]:
    """The function of an import path such as ``package.module:function``."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _listen(pipe: connection.Connection, inbox: Any, stop: Any) -> None:
    """Take the launcher's messages; leave at once when it is gone."""
    parent = multiprocessing.parent_process()
    watched: list[Any] = [pipe] + ([parent.sentinel] if parent else [])
    while True:
        ready = connection.wait(watched)
        try:
            kind, content = pipe.recv() if pipe in ready else ("gone", None)
        except (EOFError, OSError):
            kind = "gone"
        if kind == "gone":
            os._exit(1)
        if kind == "stop":
            stop.set()
        else:
            inbox.put(content if kind == "run" else None)


def _outcome_of(
    function: str, content: dict[str, Any], pipe: connection.Connection, stop: Any, threads: int
) -> Report:
    """Run one cell and describe how it ended, in plain data."""
    import traceback

    from crlbench.errors import INTERNAL, CrlbenchError, Interrupted

    def emit(event: Event) -> None:
        # What JSON does not hold is an error here as it is where events travel as text.
        pipe.send(("event", json.loads(json.dumps(event, allow_nan=False))))

    try:
        cell = Cell.model_validate(content)
        with _logged(Path(cell.folder)):
            run = named(function)
            _limit_threads(threads)
            record = run(cell, emit, stop.is_set)
    except Interrupted as error:
        return {"state": "interrupted", "message": str(error), "exit_code": error.exit_code}
    except Exception as raised:
        details = traceback.format_exc()
        shown = explanation(raised, content["folder"]) if is_refusal(raised) else raised
        message, code = f"internal error: {type(shown).__name__}: {shown}", INTERNAL
        if isinstance(shown, CrlbenchError):
            message, code = str(shown), shown.exit_code
        return {"state": "error", "message": message, "exit_code": code, "traceback": details}
    if record.status.state == "failed":
        rule, at = record.status.rule, record.status.at
        return {"state": "failed", "message": f"failed by the rule {rule} at iteration {at}"}
    return {"state": "done"}


@contextlib.contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Send all that this process and its libraries print to the cell's log, not the terminal."""
    make_folder(folder)
    with explained(folder / LOG_NAME):
        log = os.open(folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(log, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, original in kept.items():
            os.dup2(original, number)
            os.close(original)
        os.close(log)


def _limit_threads(threads: int) -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
