"""Functions that a grid's workers run in tests: small, real, and without a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crlbench.errors import Interrupted, ValidationError
from crlbench.records import Cell, Status

Emit = Callable[[dict[str, Any]], None]
Stop = Callable[[], bool]


def _mark(cell: Cell, name: str, text: str = "") -> Path:
    folder = Path(cell.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def ended(state: str = "completed", rule: str | None = None) -> Any:
    return SimpleNamespace(status=Status(state=state, rule=rule, at=3 if rule else None))


def work(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Three iterations; writes which process did it and with how many threads."""
    for iteration in range(1, 4):
        emit({"kind": "progress", "iteration": iteration, "iterations": 3, "reward": 0.5,
              "score": 0.25, "phase": "train"})
    _mark(cell, "pid", f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}")
    return ended()


def threads(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Writes torch's own number of threads."""
    import torch

    _mark(cell, "threads", str(torch.get_num_threads()))
    return ended()


def out_of_space(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """A library writes to a device that is full."""
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")


def chatty(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Prints through Python and from a child process, as libraries do."""
    print(f"chat {cell.task} out")
    print(f"chat {cell.task} err", file=sys.stderr)
    subprocess.run(["echo", f"chat {cell.task} child"], check=True)
    return ended()


def fail_by_rule(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    return ended("failed", "kl_cap")


def bad_in_addition(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """One task's data are bad, the other's are fine; counting has a bug."""
    if cell.task == "addition":
        raise ValidationError("id.jsonl was changed")
    if cell.task == "counting":
        raise KeyError("bug")
    return ended()


def die_once(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """As an out-of-memory kill does it; the second attempt finds the first one's trace."""
    if not (Path(cell.folder) / "tried").exists():
        _mark(cell, "tried")
        os.kill(os.getpid(), signal.SIGKILL)
    return ended()


def die_always(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def until_stopped(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """An endless run that checkpoints when it is told to stop."""
    _mark(cell, "running", str(os.getpid()))
    emit({"kind": "progress", "iteration": 1, "iterations": 3, "reward": 0.5, "score": None,
          "phase": "train"})
    while not should_stop():
        time.sleep(0.02)
    _mark(cell, "checkpoint")
    raise Interrupted("stopped after iteration 7")


def deaf(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Never looks whether it should stop."""
    _mark(cell, "running", str(os.getpid()))
    emit({"kind": "progress", "iteration": 1, "iterations": 3, "reward": 0.5, "score": None,
          "phase": "train"})
    time.sleep(600)
