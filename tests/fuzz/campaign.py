"""Many inputs for many targets: workers in processes of their own, and a table of the outcome."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.fuzz import guard
from tests.fuzz.target import Target
from tests.fuzz.worker import Outcome, made, prepared, saved, work

CHUNK = 20_000
"""Inputs that a worker reads before another process takes over."""
SILENCE = 60.0
"""Seconds at one input after which a worker is ended: it is stuck where no signal reaches it."""
PATIENCE = 600.0
"""Seconds for the seeds of a target, each of which is read as it is."""
DEATHS = 10
"""A target whose workers died so often is given up."""

_fork = multiprocessing.get_context("fork")


@dataclass
class Job:
    """A range of inputs that a process is reading."""

    target: Target
    numbers: range
    process: Any
    pipe: Any
    at: Any
    seen: tuple[int, float]


def shares(targets: Sequence[Target], inputs: int) -> dict[str, int]:
    """How many inputs each target gets: at least one, all together at least ``inputs``."""
    whole = sum(target.share for target in targets)
    return {t.name: max(1, -int(-inputs * t.share // whole)) for t in targets}


def run(
    targets: Sequence[Target], inputs: int, seed: int, root: Path, failures: Path, jobs: int
) -> dict[str, Outcome]:
    """Read ``inputs`` inputs, divided among targets by their shares; what happened, by target.

    Args:
        root: an empty folder for the corpus and the working folders.
        failures: where inputs are saved that break something.
        jobs: processes at once.
    """
    corpus = root / "corpus"
    corpus.mkdir()
    found = {target.name: Outcome() for target in targets}
    os.environ["TRANSFORMERS_VERBOSITY"] = "critical"  # it quotes what it reads
    for module in sorted({module for target in targets for module in target.imports}):
        import_module(module)
    for target in targets:  # one after the other: two targets may share parts of the corpus
        _in_a_process(prepared, target, corpus, guard.make_places(root))
    waiting = list(_ranges(targets, shares(targets, inputs)))[::-1]
    running: list[Job] = []
    deaths = dict.fromkeys(found, 0)
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_started(*waiting.pop(), corpus, root, failures, seed))
        for job in _ended(running):
            running.remove(job)
            outcome, rest = _result(job)
            if rest is not None:
                name = job.target.name
                number, outcome.refused, outcome.accepted = job.at
                deaths[name] += 1
                path = _in_a_process(_save, job.target, corpus, root, failures, seed, number)
                outcome.failures.setdefault(rest, []).append(str(path))
                after = range(number + 1, job.numbers.stop)
                outcome.inputs = number + 1 - job.numbers.start
                if after and deaths[name] < DEATHS:
                    waiting.append((job.target, after))
            found[job.target.name].add(outcome)
    return found


def _ranges(targets: Sequence[Target], counts: dict[str, int]) -> Iterator[tuple[Target, range]]:
    for target in targets:
        for start in range(0, counts[target.name], CHUNK):
            yield target, range(start, min(start + CHUNK, counts[target.name]))


def _started(
    target: Target, numbers: range, corpus: Path, root: Path, failures: Path, seed: int
) -> Job:
    here, there = _fork.Pipe(duplex=False)
    at = _fork.Array("q", [numbers.start, 0, 0], lock=False)
    place = guard.make_places(root)
    process = _fork.Process(
        target=_send, args=(there, work, target, corpus, place, failures, seed, numbers, at)
    )
    process.start()
    there.close()
    return Job(target, numbers, process, here, at, (-1, time.monotonic()))


def _send(pipe: Any, function: Any, *arguments: Any) -> None:
    pipe.send(function(*arguments))
    pipe.close()


def _ended(running: Sequence[Job]) -> list[Job]:
    """The jobs that have finished, died, or were ended because they stood still."""
    ready = wait([job.pipe for job in running], timeout=1.0)
    for job in running:
        if job.at[0] != job.seen[0]:
            job.seen = (job.at[0], time.monotonic())
        elif time.monotonic() - job.seen[1] > SILENCE:
            job.process.kill()
    return [job for job in running if job.pipe in ready]


def _result(job: Job) -> tuple[Outcome, str | None]:
    """What a worker sent, or how it died."""
    try:
        return job.pipe.recv(), None
    except EOFError:
        job.process.join()
        return Outcome(), f"the process died (exit {job.process.exitcode})"
    finally:
        job.process.join()


def _save(target: Target, corpus: Path, root: Path, failures: Path, seed: int, number: int) -> Path:
    place = guard.make_places(root)
    data = made(target, prepared(target, corpus, place), seed, number)
    return saved(failures, target, number, data)


def _in_a_process(function: Any, *arguments: Any) -> Any:
    """What a function returns, computed where nothing that it loads stays."""
    here, there = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_send, args=(there, function, *arguments))
    process.start()
    there.close()
    try:
        if not here.poll(PATIENCE):
            process.kill()
            raise RuntimeError(f"{function.__name__} of {arguments[0].name} stands still")
        return here.recv()
    except EOFError:
        raise RuntimeError(f"{function.__name__} of {arguments[0].name} failed") from None
    finally:
        process.join()


def table(found: dict[str, Outcome]) -> str:
    """The outcome of every target, and all together."""
    total = Outcome()
    for outcome in found.values():
        total.add(outcome)
    lines = [
        "| target | inputs | refused | accepted | failed | worst CPU s | peak MB | inputs/CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in [*found.items(), ("all", total)]:
        failed = one.inputs - one.refused - one.accepted
        rate = one.inputs / one.seconds if one.seconds else 0.0
        lines.append(
            f"| {name} | {one.inputs:,} | {one.refused:,} | {one.accepted:,} | {failed:,} "
            f"| {one.worst:.2f} | {one.peak / 2**20:.0f} | {rate:,.0f} |"
        )
    return "\n".join(lines)


def processes() -> int:
    """Processes that this machine runs at once, two at most."""
    return min(2, os.cpu_count() or 1)
