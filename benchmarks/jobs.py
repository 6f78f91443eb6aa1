"""Many cells at once: throughput, scheduling, start-up and shared memory of the local launcher.

    python benchmarks/jobs.py --markdown
    python benchmarks/jobs.py throughput startup --rounds 5

throughput  two real cells of the mini track (tiny-llama, a reduced budget) at once on two cores,
            against the same two one after another on one: A B A B, medians of the wall time from
            the first cell's first event to the end of the last
schedule    eight simulated cells of one to four seconds on two workers, against the best division
            that exists; what a cell does is sleep (``--burn`` computes)
startup     from handing a cell to a worker to its first event: for a cell after the first, and for
            a worker that is started anew because its predecessor was killed
memory      proportional set size of two workers and their nursery, with shared start weights and
            without (``--memory-model``; fetch it first)
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from crlbench import __version__, seeding
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import Track, control_leaves, override
from crlbench.contract.records import Cell, Status
from crlbench.launch.local import LocalLauncher
from crlbench.launch.worker import RUN_CELL
from crlbench.run.environment import cores, cpu_model, packages
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe

HERE = "jobs"
"""This file as workers import it: the folder of the program is on their path."""
SECOND = 10
"""Grid points of a simulated cell in a second."""
REDUCED = {
    "budget.grid": "10",
    "budget.iterations_per_point": "2",
    "evaluation.curve_items": "64",
    "evaluation.end_items": "64",
    "evaluation.end_draws": "1",
    "evaluation.retain": "[]",
}
TINY = REDUCED | {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "2",
    "budget.iterations_per_point": "1",
    "evaluation.curve_items": "4",
    "evaluation.end_items": "4",
}


class Row(NamedTuple):
    """One line of the table."""

    what: str
    measured: str
    target: str = ""


class Watched(NamedTuple):
    """A grid that ran: its outcomes and its events with the seconds at which they came."""

    outcomes: list[Outcome]
    events: list[tuple[float, Cell, dict[str, Any]]]
    end: float

    @property
    def working(self) -> float:
        """Seconds from the first event of a cell itself to the end of the last cell."""
        return self.end - next(at for at, _, e in self.events if e["kind"] != "start")

    def startups(self) -> list[float]:
        """Seconds from each start to the next event of that cell, in the order of starts."""
        found = []
        for i, (at, cell, event) in enumerate(self.events):
            if event["kind"] == "start":
                later = (t for t, c, _ in self.events[i + 1 :] if c.folder == cell.folder)
                found.append(next(later) - at)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (3)")
    parser.add_argument("--burn", action="store_true", help="simulated cells compute")
    parser.add_argument("--memory-model", default="smollm2-135m-instruct", metavar="NAME")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="crlbench-jobs-") as folder:
        for part in options.parts or PARTS:
            for row in PARTS[part](options, Path(folder) / part):
                rows.append(row)
                if not options.markdown:
                    print(f"{row.what}: {row.measured}", flush=True)
    if options.markdown:
        print(markdown(rows))


def throughput(options: argparse.Namespace, folder: Path) -> list[Row]:
    """The same two cells one after another on one core, and at once on two."""
    watch(cells_of(folder / "0", folder / "start", REDUCED), jobs=2)  # fills the start scores
    walls: dict[int, list[float]] = {1: [], 2: []}
    worked: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        for jobs in walls:
            cells = cells_of(folder / f"{number}-{jobs}", folder / "start", REDUCED)
            seen = watch(cells, jobs, f"{HERE}:clocked")
            walls[jobs].append(seen.working)
            worked[jobs].append(sum(e["cpu_s"] for _, _, e in seen.events if e["kind"] == "cpu"))
    rows = []
    for jobs, name in ((1, "one after another on one core"), (2, "at once on two cores")):
        wall, cpu = statistics.median(walls[jobs]), statistics.median(worked[jobs])
        text = f"{wall:.1f} s ({spread(walls[jobs])}), {cpu:.1f} s of processor time"
        rows.append(Row(f"two cells {name}", text))
    ratios = [a / b for a, b in zip(walls[1], walls[2], strict=True)]
    text = f"{statistics.median(ratios):.2f} ({spread(ratios, 2)})"
    return [*rows, Row("throughput of two cores over one", text, "1.90")]


def schedule(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Eight cells whose lengths follow from their plain data."""
    function = f"{HERE}:{'burn' if options.burn else 'rest'}"
    losses = []
    for number in range(options.rounds):
        (pattern, _) = cells_of(folder / str(number), folder / "start", TINY)
        drawn = seeding.uniforms(number, 8, "grid")
        cells = [simulated(pattern, i, SECOND + int(3 * SECOND * u)) for i, u in enumerate(drawn)]
        wall = watch(cells, 2, function, warm=None).working
        losses.append(1 - best_end([seconds_of(cell) for cell in cells]) / wall)
    text = f"{statistics.median(losses):.1%}, at most {max(losses):.1%} of {options.rounds} draws"
    return [Row("lost to scheduling, eight simulated cells on two cores", text, "under 5 %")]


def startup(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Of the second cell of a worker, and of a worker that replaces a killed one."""
    watch(cells_of(folder / "0", folder / "start", TINY), jobs=2)
    first, second, forked, spawned = [], [], [], []
    for number in range(options.rounds):
        home = folder / str(number)
        seen = watch(cells_of(home / "two", folder / "start", TINY), jobs=1).startups()
        first.append(seen[0])
        second.append(seen[1])
        for shared, found in ((True, forked), (False, spawned)):
            cells = cells_of(home / f"killed-{shared}", folder / "start", TINY)[:1]
            seen = watch(cells, 1, f"{HERE}:killed_once", shared=shared).startups()
            found.append(seen[1])
    return [
        Row("start-up, first cell", f"{statistics.median(first):.2f} s"),
        Row("start-up, cell after the first", f"{statistics.median(second):.2f} s", "under 2 s"),
        Row("start-up, new worker, forked", f"{statistics.median(forked):.2f} s", "under 2 s"),
        Row("start-up, new worker, spawned", f"{statistics.median(spawned):.2f} s"),
    ]


def memory(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Two workers of one model, and their nursery."""
    rows = []
    settings = TINY | {"hardware.precision": "bf16"}
    for shared in (True, False):
        name = "shared" if shared else "each its own"
        cells = cells_of(folder / name, folder / "start", settings, options.memory_model)
        seen = watch(cells, 2, f"{HERE}:weighed", shared=shared)
        for iteration, moment in ((0, "before the first iteration"), (1, "after it")):
            found = [e for _, _, e in seen.events if e.get("weighed") == iteration]
            sizes = [e["pss"] for e in found] + [max(e["parent_pss"] for e in found)] * shared
            parts = " + ".join(f"{size / 1e6:.0f}" for size in sizes)
            what = f"memory of two workers, {options.memory_model}, {name}, {moment}"
            rows.append(Row(what, f"{sum(sizes) / 1e6:.0f} MB ({parts})"))
    return rows


PARTS: dict[str, Callable[[argparse.Namespace, Path], list[Row]]] = {
    "throughput": throughput,
    "schedule": schedule,
    "startup": startup,
    "memory": memory,
}


def watch(cells: Sequence[Cell], jobs: int, function: str = RUN_CELL, **options: Any) -> Watched:
    """Run cells and note when what happened."""
    events: list[tuple[float, Cell, dict[str, Any]]] = []
    launcher = LocalLauncher(jobs, threads=1, function=function, **options)
    outcomes, end = [], 0.0
    for outcome in launcher.run(
        cells, lambda c, e: events.append((time.monotonic(), c, e)), lambda: 0
    ):
        outcomes.append(outcome)
        end = time.monotonic()
        if outcome.state not in ("done", "failed", "interrupted"):
            raise SystemExit(f"{outcome.cell.name}: {outcome.message}\n{outcome.traceback}")
    return Watched(outcomes, events, end)


def cells_of(
    out: Path, start: Path, settings: dict[str, str], model: str = "tiny-llama"
) -> list[Cell]:
    """Two seeds of one task of the mini track, with their own folders."""
    from crlbench.algo import recipes
    from crlbench.algo.recipe import to_config

    text = Catalog().find("track", "mini").path.read_text("utf-8")
    track = Track.model_validate(tomllib.loads(text))
    conditions = override(track.conditions, settings)
    control = control_leaves(track, conditions, {})
    board = Board(track, conditions, track.tasks, control, "open", partial=True)
    contender = Contender(model, model, "00000000", "0" * 64)
    recipe = NamedRecipe("ppo", to_config(recipes.load("ppo")))
    quiet = Execution(loggers=())
    plan = Declaration(board, contender, recipe, ("addition",), ("real",), 2, out, quiet).plan()
    changed = {"entry_sha256": None, "start_folder": str(start), "control": {}}
    return [cell.model_copy(update=changed) for cell in plan.cells]


def simulated(pattern: Cell, number: int, grid: int) -> Cell:
    """A cell of an invented task with so many grid points."""
    conditions = pattern.conditions | {"budget": pattern.conditions["budget"] | {"grid": grid}}
    changed = {"task": f"task-{number}", "conditions": conditions}
    changed |= {"folder": f"{pattern.folder}-{number}"}
    return pattern.model_copy(update=changed)


def seconds_of(cell: Cell) -> float:
    """How long a simulated cell takes."""
    return cell.conditions["budget"]["grid"] / SECOND


def best_end(seconds: list[float]) -> float:
    """The earliest end of all on two workers, by trying every division."""
    sums = {0.0}
    for length in seconds:
        sums |= {found + length for found in sums}
    return min(max(found, sum(seconds) - found) for found in sums)


def rest(cell: Cell, emit: Callable[[dict[str, Any]], None], _: Callable[[], bool]) -> Any:
    """A simulated cell that sleeps; run by workers."""
    emit({"kind": "begin"})
    time.sleep(seconds_of(cell))
    emit({"kind": "end"})
    return SimpleNamespace(status=Status(state="completed"))


def burn(cell: Cell, emit: Callable[[dict[str, Any]], None], _: Callable[[], bool]) -> Any:
    """A simulated cell that computes for so many seconds of processor time; run by workers."""
    emit({"kind": "begin"})
    end = time.process_time() + seconds_of(cell)
    while time.process_time() < end:
        sum(range(1000))
    emit({"kind": "end"})
    return SimpleNamespace(status=Status(state="completed"))


def clocked(
    cell: Cell, emit: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]
) -> Any:
    """A real cell that says how much processor time it took; run by workers."""
    from crlbench.run.execute import run_cell

    before = time.process_time()
    record = run_cell(cell, emit, should_stop)
    emit({"kind": "cpu", "cpu_s": time.process_time() - before})
    return record


def killed_once(
    cell: Cell, emit: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]
) -> Any:
    """A real cell whose process is killed at its first event, the first time; run by workers."""
    from crlbench.run.execute import run_cell

    tried = Path(cell.folder) / "tried"

    def fatal(event: dict[str, Any]) -> None:
        emit(event)
        if not tried.exists():
            tried.write_text("", encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)

    return run_cell(cell, fatal, should_stop)


def weighed(cell: Cell, emit: Callable[[dict[str, Any]], None], _: Callable[[], bool]) -> Any:
    """A real cell that says its memory twice and stops then; run by workers."""
    from crlbench.run.execute import run_cell

    said: set[int] = set()

    def weigh(event: dict[str, Any]) -> None:
        emit(event)
        iteration = event.get("iteration", 0)
        if iteration not in said:
            said.add(iteration)
            time.sleep(3)  # until the other worker is there too
            sizes = {"pss": pss(os.getpid()), "parent_pss": pss(os.getppid())}
            emit({"kind": "memory", "weighed": iteration, **sizes})

    return run_cell(cell, weigh, lambda: 1 in said)


def pss(pid: int) -> int:
    """Bytes of a process's memory, what several have divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/smaps_rollup has no line Pss")


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The least and the largest."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def markdown(rows: Sequence[Row]) -> str:
    """The table, and what it was measured on."""
    installed = packages()
    versions = ", ".join(f"{name} {installed[name]}" for name in ("torch", "transformers"))
    lines = [
        "```sh",
        f"python benchmarks/jobs.py {' '.join(sys.argv[1:])}".rstrip(),
        "```",
        "",
        f"{cpu_model()}, {cores()} cores; Python {platform.python_version()}, {versions}, crlbench "
        f"{__version__}; {date.today()}.",
        "",
        "| measured | figure | target |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {r.what} | {r.measured} | {r.target} |" for r in rows)])


if __name__ == "__main__":
    main()
