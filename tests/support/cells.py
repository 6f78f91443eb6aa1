"""Functions that a grid's workers run in tests: small, real, and without a model."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crlbench.contract.events import Emit, Event, ProgressEvent
from crlbench.contract.records import Cell, Status
from crlbench.errors import Interrupted, ValidationError
from crlbench.run.needs import folders_of

Stop = Callable[[], bool]


def _mark(cell: Cell, name: str, text: str = "") -> Path:
    folder = Path(cell.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def _progress(iteration: int) -> ProgressEvent:
    return {"kind": "progress", "phase": "train", "iteration": iteration, "iterations": 3,
            "reward": 0.5, "score": 0.25, "completions": 256}


def ended(state: str = "completed", rule: str | None = None) -> Any:
    return SimpleNamespace(status=Status(state=state, rule=rule, at=3 if rule else None))


def work(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Three iterations; writes which process did it and with how many threads."""
    for iteration in range(1, 4):
        emit(_progress(iteration))
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
    """As an out-of-memory kill does it; the second attempt goes on where the first one was."""
    checkpoint = Path(cell.folder) / "checkpoint"
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for iteration in range(done + 1, 3):
        _mark(cell, "checkpoint", str(iteration))
        emit(_progress(iteration))
        if iteration == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return ended()


def die_always(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def fated(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Ends as ``recipe_config`` says, after all that it needs; counts its attempts."""
    for name, folder in folders_of(cell).items():
        stored = [Path(folder) / "done", Path(folder) / "record.json"]
        if not any(path.exists() for path in stored):
            raise ValidationError(f"begun before {name} has ended")
    tried = Path(cell.folder) / "begun"
    attempts = len(tried.read_text()) if tried.exists() else 0
    _mark(cell, "begun", (attempts + 1) * "x")
    fate = cell.recipe_config.get("fate", "done")
    if fate == "lost" or (fate == "once" and attempts == 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "error":
        raise ValidationError("id.jsonl was changed")
    if fate == "deaf":
        deaf(cell, emit, should_stop)
    if fate == "failed":
        return ended("failed", "kl_cap")
    time.sleep(0.05)  # whoever begins too early is seen
    _mark(cell, "done")
    return ended()


def stored(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """As :func:`fated`, and leaves a record where it comes to its end."""
    from tests.run.test_plan import finish

    found = fated(cell, emit, should_stop)
    finish(cell, status=found.status)
    return found


def until_answered(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Goes on only when its event has been heard."""
    Path(cell.folder).mkdir(parents=True, exist_ok=True)
    emit(_progress(1))
    deadline = time.monotonic() + 20
    while not (Path(cell.folder) / "answer").exists():
        if time.monotonic() > deadline:
            raise ValidationError("nobody heard the event")
        time.sleep(0.02)
    return ended()


def plain(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Writes the cell that it got, and sends a kind of its own with a tuple in it."""
    _mark(cell, "cell", cell.model_dump_json())
    emit({"kind": "plain", "values": (1, (2, None)), "text": "é"})  # type: ignore
    return ended()


def not_plain(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Sends an object that only pickles."""
    emit({"kind": "plain", "values": {1, 2}})  # type: ignore
    return ended()


def until_stopped(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """An endless run that checkpoints when it is told to stop."""
    _mark(cell, "running", str(os.getpid()))
    emit(_progress(1))
    while not should_stop():
        time.sleep(0.02)
    _mark(cell, "checkpoint")
    raise Interrupted("stopped after iteration 7")


def deaf(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Never looks whether it should stop."""
    _mark(cell, "running", str(os.getpid()))
    emit(_progress(1))
    while True:
        _mark(cell, "beat", str(time.monotonic_ns()))
        time.sleep(0.05)


def kill_the_nursery_once(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """The first attempt ends the process that forked this one, and with it this one."""
    if not (Path(cell.folder) / "tried").exists():
        _mark(cell, "tried", str(os.getppid()))
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    _mark(cell, "parent", str(os.getppid()))
    return ended()


def origin(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Writes whether what :func:`leave_a_mark` did came along, and by how many threads."""
    _mark(cell, "origin", f"{len(WARMED)} {threading.active_count()}")
    return ended()


WARMED: list[str] = []


def leave_a_mark(contents: Sequence[dict[str, Any]]) -> None:
    WARMED.extend(content["task"] for content in contents)


def leave_a_thread(contents: Sequence[dict[str, Any]]) -> None:
    """As a library does that keeps a pool."""
    leave_a_mark(contents)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def fail_to_load(contents: Sequence[dict[str, Any]]) -> None:
    raise RuntimeError("nothing can be loaded")


def shared_pages(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Writes which share of the start weights' pages another process has too.

    A model that is not there is run as a real cell.
    """
    from crlbench.run.execute import run_cell
    from crlbench.run.subject import load_subject

    if cell.model != "tiny-llama":
        return run_cell(cell, emit, should_stop)
    before = load_subject.cache_info().misses
    subject = load_subject(cell.model, cell.catalog, cell.conditions["hardware"]["precision"])
    loaded = load_subject.cache_info().misses - before
    shared = total = 0
    for weight in subject.backbone.parameters():
        flags = _pages(weight.data_ptr(), weight.numel() * weight.element_size())
        total += len(flags)
        shared += sum(flag >> 63 & 1 and not flag >> 56 & 1 for flag in flags)
    _mark(cell, "shared", f"{shared / total} {loaded}")
    return ended()


def _pages(address: int, size: int) -> list[int]:
    """Entries of /proc/self/pagemap: bit 63 is present, bit 56 mapped by this process alone."""
    page = os.sysconf("SC_PAGE_SIZE")
    first, last = address // page, (address + size - 1) // page
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(8 * first)
        content = file.read(8 * (last - first + 1))
    return list(struct.unpack(f"={len(content) // 8}Q", content))


def killed_after_a_point(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """A real run that is killed once, as soon as it has a checkpoint."""
    from crlbench.run.execute import run_cell

    def fatal(event: Event) -> None:
        emit(event)
        tried = Path(cell.folder) / "tried"
        if (Path(cell.folder) / "ckpt" / "last.ckpt").exists() and not tried.exists():
            tried.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    return run_cell(cell, fatal, should_stop)


def witness(cell: Cell, emit: Emit, should_stop: Stop) -> Any:
    """Writes what is on the disk when a run begins: the stored plan's hash and the ledger."""
    home = Path(cell.folder).parents[2]
    plan = json.loads((home / "plan.json").read_text())
    events = [json.loads(line) for line in (home / "ledger.jsonl").read_text().splitlines()]
    first = {"event": events[0]["event"], "plan_hash": events[0]["detail"]["plan_hash"]}
    _mark(cell, "seen", json.dumps({"stored": plan["plan_hash"], "first": first}))
    return ended()
