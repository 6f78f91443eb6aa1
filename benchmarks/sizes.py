"""The study "Does a larger model learn more?": make what is missing, or write its page.

    python benchmarks/sizes.py run --out DIR    pretrain, train, and keep a row of every run
                                                (--jobs N, --max-hours H)
    python benchmarks/sizes.py report           the page, once every run has its row

docs/studies/sizes.md says what was fixed before the first run. ``run`` goes on where it stopped,
and prints no score. ``report`` refuses to look while rows are missing.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr

from crlbench.base.wording import NONE, count, listed, number
from crlbench.errors import CrlbenchError, Incomplete, UsageError
from crlbench.run.environment import cpu_model
from crlbench.stats.designs import Design, DesignEstimate, design_difference
from crlbench.stats.intervals import Interval
from crlbench.stats.needs import LEAST_NEW
from crlbench.verdict.load import load_runs
from crlbench.verdict.novelties import find_new_items
from crlbench.verdict.run_measures import TaskItems
from crlbench.verdict.runs import Run

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).with_suffix(".csv")
PAGE = ROOT / "docs" / "studies" / "sizes-results.md"
MOMENTS = ROOT / "models" / "tiny" / "moments.py"
DESIGNS = ("llama", "gemma")
SIZES = {"0.3M": "-0.3m", "1M": "-1m", "3M": "-3m"}
"""Size -> how the names of its models end."""
RATES = {"0.3M": 1e-3, "1M": 5e-4, "3M": 5e-4}
"""Size -> peak learning rate of its pretraining, of both designs."""
MOMENT = 2000
"""Updates after which a model is taken."""
CHECKPOINTS = ("i0o0", "i2o2", "i3o3")
"""Independent ones. The rates were chosen on i1o1."""
TASKS = ("addition", "counting", "modular", "chains", "sequences", "clock", "brackets", "common")
SEED = 0
"""One seed of each: pretrainings are what differs."""
MARGIN = 0.05
Key = tuple[str, str, str]
"""Model, checkpoint and task."""


class RunRow(NamedTuple):
    """What is kept of a run."""

    model: str
    checkpoint: str
    task: str
    state: str
    start: float
    """u of the start model, sampled."""
    learned: float
    """L, all items."""
    new_items: int
    lambda_new: float | None
    """None for fewer than 64 new items."""
    seconds: float
    """Wall time of training."""
    record: str
    """What it was taken from."""
    weights: str
    """SHA-256 of the start weights."""
    processor: str
    """Of the machine of the pretraining and the run, and its widest instructions."""

    @property
    def key(self) -> Key:
        return self.model, self.checkpoint, self.task


def model_of(design: str, size: str) -> str:
    return f"tiny2-{design}{SIZES[size]}"


def read_rows(path: Path) -> dict[Key, RunRow]:
    """The rows that are kept; empty where there are none yet."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            RunRow(*r[:4], float(r[4]), float(r[5]), int(r[6]), float(r[7]) if r[7] else None,
                   float(r[8]), *r[9:])
            for r in list(csv.reader(file))[1:]
        ]  # fmt: skip
    return {row.key: row for row in rows}


def write_rows(path: Path, rows: Mapping[Key, RunRow]) -> None:
    """Write all rows in one step."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(RunRow._fields)
        writer.writerows(rows[key] for key in sorted(rows))
    part.replace(path)


def row_of(model: str, checkpoint: str, run: Run) -> RunRow:
    """The row of a run, from its stored items."""
    items, record = TaskItems([run], {}), run.record
    (measured,), found = items.measures, find_new_items(items)
    if found is None or measured.L is None:
        raise UsageError(f"{run.name}: no greedy answers of its start, or no area. Run it again.")
    seeds, walls = found.novelty.seeds, record.volatile["wall_s"]
    return RunRow(
        model, checkpoint, run.task, record.status.state, measured.H, measured.L,
        found.novelty.new_items, seeds[0] if seeds else None, round(walls[-1], 1),
        record.record_id, *record.subject.weights_sha256.values(),
        f"{record.environment['cpu']}, {record.environment['cpu_capability']}",
    )  # fmt: skip


class Start(NamedTuple):
    """One pretraining of one size of one design."""

    design: str
    size: str
    checkpoint: str

    @property
    def model(self) -> str:
        return model_of(self.design, self.size)

    @property
    def name(self) -> str:
        return f"{self.model}-{self.checkpoint}"

    @property
    def architecture(self) -> str:
        """As ``models/tiny`` names it."""
        return f"tiny-{self.design}{SIZES[self.size].removesuffix('-1m')}"


def missing(rows: Mapping[Key, RunRow]) -> list[Start]:
    """Starts without all rows, in the order in which they are made."""
    starts = [Start(d, s, c) for c, s, d in product(CHECKPOINTS, SIZES, DESIGNS)]
    return [one for one in starts if any((one.model, one.checkpoint, t) not in rows for t in TASKS)]


def make(out: Path, path: Path, jobs: int, end: float | None) -> None:
    """Make what is missing, one checkpoint after the other: its pretrainings, then its runs.

    Raises:
        Incomplete: the time was over.
        UsageError: a command left less than it should.
    """
    write_rows(path, of_one_class(read_rows(path), processor()))
    for checkpoint in CHECKPOINTS:
        starts = [one for one in missing(read_rows(path)) if one.checkpoint == checkpoint]
        with ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(lambda start: _pretrain(start, out, end), starts):
                pass
        for start in starts:
            _check_time(end)
            _run(start, out, path, jobs, end)
    print("complete")


def of_one_class(rows: Mapping[Key, RunRow], here: str) -> dict[Key, RunRow]:
    """The rows without those of unfinished checkpoints that another class of machine has made."""
    begun = {start.checkpoint for start in missing(rows)}
    return {
        key: row
        for key, row in rows.items()
        if row.checkpoint not in begun or row.processor == here
    }


def processor() -> str:
    """The class of this machine, as rows name it."""
    return f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"


def _run(start: Start, out: Path, path: Path, jobs: int, end: float | None) -> None:
    folder = out / "runs" / start.name
    _evaluate(_weights(start, out), folder, jobs, end)
    rows = read_rows(path)
    for run in load_runs(folder):
        if (run.arm, run.seed) == ("real", SEED) and run.record.status.state != "partial":
            row = row_of(start.model, start.checkpoint, run)
            rows[row.key] = row
    write_rows(path, rows)
    if start in missing(rows):
        _check_time(end)
        raise UsageError(f"{start.name}: runs are missing; the reason stands above")


def _check_time(end: float | None) -> None:
    if end is not None and time.monotonic() >= end:
        raise Incomplete("out of time (--max-hours); the same command continues")


def _weights(start: Start, out: Path) -> Path:
    """The folder of a start's weights."""
    return out / "weights" / start.name / f"{start.architecture}-{start.checkpoint}-{MOMENT}"


def _pretrain(start: Start, out: Path, end: float | None) -> None:
    """Make the weights of a start where they are missing."""
    place = out / "weights" / start.name
    scores = place / "scores.jsonl"
    if scores.exists():
        return
    _check_time(end)
    init, order = start.checkpoint[1:].split("o")
    _quietly([
        *(str(MOMENTS), "--design", start.architecture, "--init", init, "--order", order),
        *("--rate", str(RATES[start.size]), "--moments", str(MOMENT), "--items", "8"),
        *("--out", str(place)),
    ])  # fmt: skip
    if not scores.exists():
        raise UsageError(f"{start.name}: no weights; the reason stands above")


def _evaluate(weights: Path, folder: Path, jobs: int, end: float | None) -> None:
    command = [
        *("-m", "crlbench", "evaluate", "--model", str(weights)),
        *("--track", "mini", "--recipe", "ppo"),
        *("--arm", "real", "--seeds", "1", "--jobs", str(jobs), "--out", str(folder)),
        *("--logger", "none", "--no-progress", "--quiet"),
    ]
    if end is not None:
        command += ["--max-hours", f"{max(1.0, end - time.monotonic()) / 3600:.5f}"]
    _quietly(command)


def _quietly(command: Sequence[str]) -> None:
    """Run a command without its tables of scores: nobody looks before the end."""
    subprocess.run([sys.executable, *command], check=False, stdout=subprocess.DEVNULL)


# -- the page ------------------------------------------------------------------------------------


def usable_tasks(rows: Mapping[Key, RunRow], designs: Sequence[str]) -> tuple[str, ...]:
    """Tasks on which every checkpoint of every size of some designs has enough new items."""
    models = {model_of(design, size) for design in designs for size in SIZES}
    return tuple(
        task
        for task in TASKS
        if all(row.new_items >= LEAST_NEW for key, row in rows.items()
               if key[0] in models and key[2] == task)
    )  # fmt: skip


def values_of(
    rows: Mapping[Key, RunRow], designs: Sequence[str], size: str, tasks: Sequence[str], name: str
) -> np.ndarray:
    """(3, K, 1) a number of the runs of one size, mean over designs."""
    table = [
        [[getattr(rows[model_of(d, size), c, t], name) for t in tasks] for c in CHECKPOINTS]
        for d in designs
    ]
    return np.array(table, dtype=np.float64).mean(axis=0)[..., None]


def differences(
    rows: Mapping[Key, RunRow], designs: Sequence[str], tasks: Sequence[str], name: str
) -> dict[str, DesignEstimate]:
    """Each size minus each smaller one; the variance is pooled over the three."""
    sides = {
        size: Design(size, CHECKPOINTS, tuple(tasks), values_of(rows, designs, size, tasks, name))
        for size in SIZES
    }
    return {
        f"{large} − {small}": design_difference(
            sides[small], sides[large], [s for n, s in sides.items() if n not in (small, large)]
        )
        for small, large in (("0.3M", "1M"), ("1M", "3M"), ("0.3M", "3M"))
    }


def verdict(found: DesignEstimate) -> str:
    """What an interval says, by the rule that was fixed before."""
    if found.interval is None:
        return f"no interval: {found.reason}"
    low, high = found.interval.low, found.interval.high
    if low > 0 or high < 0:
        return "larger" if low > 0 else "smaller"
    return f"no difference of {MARGIN}" if max(-low, high) < MARGIN else "open"


def start_and_gain(rows: Mapping[Key, RunRow], tasks: Sequence[str]) -> float:
    """Spearman's correlation of start u with Λ_new over all checkpoints, means over tasks."""
    means = [
        [values_of(rows, (design,), size, tasks, name).mean(axis=(1, 2)) for design in DESIGNS
         for size in SIZES]
        for name in ("start", "lambda_new")
    ]  # fmt: skip
    return float(spearmanr(*map(np.concatenate, means)).statistic)


def side(found: DesignEstimate) -> int:
    """1 for an interval above 0, -1 for one below, 0 otherwise."""
    if found.interval is None:
        return 0
    return (found.interval.low > 0) - (found.interval.high < 0)


def judge(rows: Mapping[Key, RunRow], tasks: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each statement of the plan, and what became of it: supported, refuted or open."""

    def largest(designs: Sequence[str], name: str) -> DesignEstimate:
        chosen = TASKS if name == "start" else tasks
        return differences(rows, designs, chosen, name)["3M − 0.3M"]

    start, learned = (largest(DESIGNS, name) for name in ("start", "lambda_new"))
    words = {1: "supported", -1: "refuted", 0: "open"}
    yield "Z1. A larger model starts higher.", words[side(start)]
    alike = verdict(learned) == f"no difference of {MARGIN}"
    yield (
        "Z2. A larger model learns more of what is new.",
        words[-1 if alike else side(learned)],
    )
    own = [largest((one,), "lambda_new") for one in DESIGNS]
    opposite = side(own[0]) * side(own[1]) < 0
    same = own[0].value * own[1].value > 0
    yield "Z3. Both designs say the same.", words[-1 if opposite else int(same)]


def page(rows: Mapping[Key, RunRow]) -> Iterator[str]:
    """The lines of the page."""
    tasks = usable_tasks(rows, DESIGNS)
    left = [task for task in TASKS if task not in tasks]
    yield "# Does a larger model learn more? The rows"
    yield ""
    yield f"`python benchmarks/sizes.py report` writes this page from {count(len(rows), 'run')}."
    yield "[sizes.md](sizes.md) says what was fixed before the first of them, and what weakens it."
    yield ""
    if left:
        yield f"Left out of differences in Λ_new: {listed(left)}, where a checkpoint has fewer than"
        yield f"{LEAST_NEW} new items. Starts are of all eight tasks."
        yield ""
    for checkpoint in CHECKPOINTS:
        made = {row.processor for row in rows.values() if row.checkpoint == checkpoint}
        yield f"- `{checkpoint}` was made on: {listed(sorted(made))}"
    yield ""
    yield "## What became of the statements"
    yield ""
    yield "| statement | |"
    yield "|---|---|"
    for statement, word in judge(rows, tasks):
        yield f"| {statement} | {word} |"
    yield ""
    yield "## Differences"
    yield ""
    yield "Means over tasks and three pretrainings; the first rows are means over both designs."
    yield "The variance is pooled over the three sizes. L is the area of all items, on the tasks of"
    yield "Λ_new."
    yield ""
    yield "| number | designs | sizes | difference | these tasks, 95 % | similar tasks, 95 % | |"
    yield "|---|---|---|---|---|---|---|"
    for designs in (DESIGNS, *((one,) for one in DESIGNS)):
        for name, sign in (("start", "start u"), ("lambda_new", "Λ_new"), ("learned", "L")):
            chosen = TASKS if name == "start" else tasks
            for label, found in differences(rows, designs, chosen, name).items():
                ends = [_ends(one) for one in (found.interval, found.wider)]
                value = number(found.value, 3, signed=True)
                cells = [sign, " and ".join(designs), label, value, *ends, verdict(found)]
                yield f"| {' | '.join(cells)} |"
    yield ""
    checkpoints = len(SIZES) * len(DESIGNS) * len(CHECKPOINTS)
    yield f"Start u and Λ_new of the {checkpoints} checkpoints, means over the tasks of Λ_new: rank"
    yield f"correlation {number(start_and_gain(rows, tasks))}."
    yield ""
    yield "## Every size"
    yield ""
    yield "Λ_new on the tasks above; start u and L on all eight; the fewest new items of a task;"
    yield "failed runs; wall time of a run."
    yield ""
    columns = ["model", "Λ_new", *(f"Λ_new {c}" for c in CHECKPOINTS), "start u", "L"]
    yield f"| {' | '.join([*columns, 'fewest new', 'failed', 'seconds'])} |"
    yield "|" + "---|" * (len(columns) + 3)
    for design, size in product(DESIGNS, SIZES):
        yield _size_row(rows, design, size, tasks)
    yield ""
    yield "## Every task"
    yield ""
    yield "Λ_new, mean over three pretrainings; in brackets start u. A dash: fewer than 64 new"
    yield "items."
    yield ""
    yield f"| model | {' | '.join(TASKS)} |"
    yield "|" + "---|" * (len(TASKS) + 1)
    for design, size in product(DESIGNS, SIZES):
        cells = [_task_cell(rows, model_of(design, size), task) for task in TASKS]
        yield f"| `{model_of(design, size)}` | {' | '.join(cells)} |"


def _ends(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    return f"[{number(interval.low, 3)}, {number(interval.high, 3)}]"


def _size_row(rows: Mapping[Key, RunRow], design: str, size: str, tasks: Sequence[str]) -> str:
    model = model_of(design, size)
    own = [row for key, row in rows.items() if key[0] == model]
    table = values_of(rows, (design,), size, tasks, "lambda_new")[..., 0].mean(axis=1)
    cells = [number(float(v), 3) for v in (table.mean(), *table)]
    cells += [number(fmean(row.start for row in own), 3), number(fmean(r.learned for r in own), 3)]
    cells += [str(min(row.new_items for row in own)), str(sum(r.state == "failed" for r in own))]
    return f"| `{model}` | {' | '.join(cells)} | {fmean(row.seconds for row in own):.0f} |"


def _task_cell(rows: Mapping[Key, RunRow], model: str, task: str) -> str:
    own = [rows[model, checkpoint, task] for checkpoint in CHECKPOINTS]
    new = [math.nan if row.lambda_new is None else row.lambda_new for row in own]
    mean = fmean(new)
    return f"{number(None if math.isnan(mean) else mean)} ({number(fmean(r.start for r in own))})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--out", type=Path, default=Path("runs/sizes"), help="folder of the runs")
    parser.add_argument("--rows", type=Path, default=ROWS, help="file of what is kept")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side (1)")
    parser.add_argument("--max-hours", type=float, help="stop after this time; run continues")
    options = parser.parse_args(arguments)
    end = None if options.max_hours is None else time.monotonic() + 3600 * options.max_hours
    try:
        if options.what == "run":
            make(options.out, options.rows, options.jobs, end)
        else:
            rows = read_rows(options.rows)
            if pairs := missing(rows):
                raise Incomplete(
                    f"{count(len(pairs), 'checkpoint')} without all rows, and the plan allows no "
                    "look before the end. Run: python benchmarks/sizes.py run"
                )
            PAGE.write_text("\n".join(page(rows)) + "\n", "utf-8")
            print(PAGE)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
