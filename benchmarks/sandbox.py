"""Programs a second that the sandbox judges, on one worker and on two.

    python benchmarks/sandbox.py

Three kinds of work: a short program against three assertions (``judge``), one call of a
function (``call``), and, where CRLBENCH_DATA names a folder with HumanEval.jsonl.gz, its
published solutions against its published tests (``humaneval``). Starting the servers is not
counted. Prints one line of Markdown for each.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crlbench.reward.sandbox import Limits, Sandbox

PROGRAM = "def f(x):\n    return x * 2\n"
TESTS = "assert f(2) == 4\nassert f('ab') == 'abab'\nassert f((1,)) == (1, 1)\n"
COUNT = 400
WORKERS = (1, 2)


def judged(sandbox: Sandbox, _: int) -> bool:
    """One right program passes its tests."""
    return sandbox.judge(PROGRAM, TESTS, ["f"]).passed


def called(sandbox: Sandbox, _: int) -> bool:
    """One function is called once."""
    return sandbox.call(PROGRAM, "f", [(2,)])[0].value == 4


def solved(sandbox: Sandbox, row: dict[str, Any]) -> bool:
    """A published solution passes its published tests."""
    program, entry = row["prompt"] + row["canonical_solution"], row["entry_point"]
    nodes = ast.parse(row["prompt"]).body
    helpers = [ast.unparse(node) for node in nodes if getattr(node, "name", "") != entry]
    tests = "\n".join([*helpers, row["test"], f"check({entry})"])
    return sandbox.judge(program, tests, [entry]).passed


def rate(ask: Callable[[Sandbox, Any], bool], jobs: Sequence[Any], workers: int) -> float:
    """Jobs a second, over so many sandboxes that are warm."""
    with contextlib.ExitStack() as stack:
        sandboxes = [stack.enter_context(Sandbox(Limits(cpu_s=5.0))) for _ in range(workers)]
        for sandbox in sandboxes:
            ask(sandbox, jobs[0])
        shares = [jobs[i::workers] for i in range(workers)]
        started = time.monotonic()
        with ThreadPoolExecutor(workers) as threads:
            found = threads.map(
                lambda sandbox, share: all(ask(sandbox, job) for job in share), sandboxes, shares
            )
            if not all(found):
                raise SystemExit("a right program was rejected")
        return len(jobs) / (time.monotonic() - started)


def humaneval() -> list[dict[str, Any]]:
    """The published problems; none where they are not at hand."""
    folder = os.environ.get("CRLBENCH_DATA")
    path = Path(folder) / "humaneval" / "HumanEval.jsonl.gz" if folder else None
    if path is None or not path.is_file():
        return []
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def main() -> None:
    work: dict[str, tuple[Callable[[Sandbox, Any], bool], Sequence[Any]]] = {
        "judge": (judged, range(COUNT)),
        "call": (called, range(COUNT)),
    }
    if rows := humaneval():
        work["humaneval"] = (solved, rows)
    print("| work | programs |" + "".join(f" a second, {n} worker(s) |" for n in WORKERS))
    print("|---|---|" + "---|" * len(WORKERS))
    for name, (ask, jobs) in work.items():
        rates = [f" {rate(ask, jobs, workers):.0f} |" for workers in WORKERS]
        print(f"| {name} | {len(jobs)} |{''.join(rates)}", flush=True)


if __name__ == "__main__":
    main()
