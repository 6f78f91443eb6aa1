"""Completions that each task's verifier judges in a second, on one core.

    python benchmarks/verifiers.py --markdown

The completions of a task are a fixed mix of texts of at most 64 bytes, made from its first ID
items: gold answers, golds with one slip, and texts that answer nothing, a third each; longer
golds are left out (a task that has no others is measured on its shortest ones). They are judged by
``crlbench.reward.score.score``, as in training.

Time is the process's own processor time, and the fastest of several rounds counts: other work on
the machine changes little. Verifiers that take more than a millisecond are heavy: they may use
other processes and remember what they judged, so wall time of one round counts. Tasks of exact and
numeric answers must reach 100,000 a second; ``--check`` ends with 1 where one does not.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from crlbench import __version__, seeding
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task, has_rows
from crlbench.reward.score import score

TARGET = 100_000
"""Completions a second for a verifier of exact and numeric answers."""
MAX_BYTES = 64
SHORTEST = 16
"""Golds of a task that has only longer ones."""
LIGHT = ("exact", "numeric", "pairs")
"""Functions of crlbench.reward.verify: a task that imports nothing else to judge is light."""
TRIALS, TRIAL, HEAVY_SECONDS = 3, 12, 0.001
"""A verifier is heavy where every trial of so many completions takes longer than this for each."""
ALPHABETS = ("0123456789 ,.-=<>", "abcdefghij klmnop", "The answer is 0123456789.\n")

Case = tuple[str, str]


class Row(NamedTuple):
    """One line of the table."""

    task: str
    kind: str
    completions: int
    per_second: float

    @property
    def verdict(self) -> str:
        """Whether a light verifier reaches the target; heavy ones are reported."""
        if self.kind != "light":
            return "reported"
        return "reached" if self.per_second >= TARGET else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="names (all whose rows are here)")
    parser.add_argument("--completions", type=int, default=3000, help="a task's mix (3000)")
    parser.add_argument("--heavy", type=int, default=600, help="those of a heavy task (600)")
    parser.add_argument("--rounds", type=int, default=7, help="of which the fastest counts (7)")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--check", action="store_true", help="end with 1 below the target")
    options = parser.parse_args()
    catalog = Catalog()
    names = options.tasks or [name for name in catalog.list("task") if is_here(catalog, name)]
    rows = [measure(catalog.load_task(name), options) for name in names]
    show = markdown if options.markdown else text
    print(show(sorted(rows, key=lambda row: -row.per_second)))
    if options.check and any(row.verdict == "MISSED" for row in rows):
        sys.exit(1)


def is_here(catalog: Catalog, name: str) -> bool:
    """Whether a task is frozen and its rows are on this machine."""
    folder = catalog.find("task", name).path
    return (folder / "frozen.toml").exists() and has_rows(catalog.task_card(name), folder)


def measure(task: Task, options: argparse.Namespace) -> Row:
    """The throughput of one task's verifier."""
    cases = mix(task, options.completions)
    judge(task, cases[:TRIAL])  # loads the task's code, and what that loads
    kind = kind_of(task, [cases[i * TRIAL : (i + 1) * TRIAL] for i in range(1, TRIALS + 1)])
    if kind == "heavy":
        cases = cases[(TRIALS + 1) * TRIAL :][: options.heavy]
        best = seconds(lambda: judge(task, cases), time.perf_counter)
    else:
        rounds = range(options.rounds)
        best = min(seconds(lambda: judge(task, cases), time.process_time) for _ in rounds)
    return Row(task.name, kind, len(cases), len(cases) / best)


def judge(task: Task, cases: list[Case]) -> None:
    """Score the cases as training does."""
    score(task.verify, [text for text, _ in cases], [gold for _, gold in cases], task.name)


def seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Time of one call by a clock."""
    begun = clock()
    call()
    return clock() - begun


def kind_of(task: Task, trials: list[list[Case]]) -> str:
    """``heavy`` by its card or above a millisecond, ``light`` for exact and numeric answers, else
    ``own``."""
    times = [seconds(partial(judge, task, trial), time.perf_counter) for trial in trials]
    if task.card.heavy or min(times) > HEAVY_SECONDS * TRIAL:
        return "heavy"
    return "light" if any(name in vars(task.code) for name in LIGHT) else "own"


def mix(task: Task, count: int) -> list[Case]:
    """``count`` (text, answer) pairs: golds, golds with a slip and random texts in turn."""
    answers = sorted({row["answer"] for row in task.rows("id")}, key=lambda gold: (len(gold), gold))
    golds = [gold for gold in answers if len(gold.encode()) <= MAX_BYTES] or answers[:SHORTEST]
    rng = seeding.rng(0, "benchmark", task.name)
    cases = []
    for i in range(count):
        answer = golds[(i // 3) % len(golds)]
        cases.append(((answer, slip(answer, rng), noise(rng))[i % 3], answer))
    return cases


def slip(answer: str, rng: Any) -> str:
    """The answer with one character dropped."""
    place = rng.randrange(len(answer))
    return answer[:place] + answer[place + 1 :]


def noise(rng: Any) -> str:
    """A text of up to 64 characters that answers nothing in particular."""
    alphabet = rng.choice(ALPHABETS)
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, MAX_BYTES)))


def text(rows: list[Row]) -> str:
    """Aligned columns."""
    lines = [f"{'task':<16} {'verifier':<9} {'completions':>11} {'a second':>10}  target"]
    lines += [
        f"{row.task:<16} {row.kind:<9} {row.completions:>11,} {row.per_second:>10,.0f}"
        f"  {row.verdict}"
        for row in rows
    ]
    return "\n".join(lines)


def markdown(rows: list[Row]) -> str:
    """A table with the machine below it."""
    lines = ["| task | verifier | completions | a second | target |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.task} | {row.kind} | {row.completions:,} | {row.per_second:,.0f} | {row.verdict} |"
        for row in rows
    ]
    return "\n".join([*lines, "", machine()])


def machine() -> str:
    """What the figures were measured on."""
    versions = f"Python {platform.python_version()}, crlbench {__version__}"
    return f"{processor()}, one core; {versions}; {date.today().isoformat()}."


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
