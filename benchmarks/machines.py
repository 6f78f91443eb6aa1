"""How far runs of two classes of machine are apart: stored runs, made again here.

    python benchmarks/machines.py OUT.jsonl [ENTRY ...] [--seed-index 0] [--updates R]

Each run is made again to its end and laid beside the stored one: digests of the first iterations,
figures of every iteration, items of every evaluation, both ends, Λ and Λ_new. With --updates, its
first R iterations alone. One line of JSON for each.
Classes that this machine does not have are had by the kernels that torch and MKL choose, as in
``ATEN_CPU_CAPABILITY=default python benchmarks/machines.py ...``. docs/trust.md has the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.catalog.find import Catalog
from crlbench.commands.verify_recompute import model_of
from crlbench.contract.machine import KERNELS
from crlbench.contribute.results.layout import find_entries
from crlbench.proof.entry import homes_of
from crlbench.proof.likeness import Stored, captured, captured_new, other_class
from crlbench.proof.replay import Trace, cell_of, replays
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

RESULTS = Path("leaderboard/results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("entries", type=Path, nargs="*")
    parser.add_argument("--seed-index", type=int, default=0, help="-1: all seeds")
    parser.add_argument("--updates", type=int, help="iterations; left out: whole runs")
    parser.add_argument("--arm", choices=("real", "placebo"))
    parser.add_argument("--tasks", nargs="*")
    options = parser.parse_args()
    catalog = Catalog([])
    for entry in options.entries or find_entries(RESULTS):
        for run in chosen(entry, options):
            row = compare(run, remade(run, entry, catalog, options.updates))
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row | {"entry": str(entry)}) + "\n")
            print(row["run"], row["lam"], row["curve_items"], flush=True)


def chosen(entry: Path, options: argparse.Namespace) -> Iterator[Run]:
    for run in load_runs(entry).runs:
        record = run.record
        wanted = options.seed_index in (-1, record.seed.index) and options.arm in (None, record.arm)
        if wanted and (not options.tasks or record.task.name in options.tasks):
            yield run


def remade(run: Run, entry: Path, catalog: Catalog, updates: int | None) -> Trace:
    """The run, made again: its first iterations, or all of them."""
    homes = homes_of(load_runs(entry))
    tasks = next(iter(homes.values())).plan["board_tasks"]
    with tempfile.TemporaryDirectory(prefix="crlbench-machines-") as folder:
        cell = cell_of(run.record, model_of(run), tasks, catalog, Path(folder), updates)
        ((_, trace),) = replays([cell])
        return trace


def compare(run: Run, trace: Trace) -> dict[str, Any]:
    """What is apart, and by how much."""
    record, ours = run.record, {point.x: point for point in trace.curve}
    pairs = [(p, ours[p.x], run.items(p.items_ref, "curve")) for p in record.curve if p.x in ours]
    digests = list(zip(run.digests() or (), trace.digests, strict=False))
    whole = trace.whole.get("splits", {})
    stored = Stored(record, [], run.items)
    lam: list[float | None] = [None]
    lam_new: Sequence[float | None] = [None]
    if whole:
        start, bounds = whole["id"]["start"], (record.task.floor, record.task.ceiling)
        lam = [captured(curve, start, *bounds) for curve in (record.curve, trace.curve)]
        lam_new = captured_new(stored, trace)
    return {
        "run": run.name,
        "track": record.protocol.track,
        "precision": record.fingerprint.leaves["conditions.hardware.precision"],
        "theirs": _class(record.environment),
        "here": _class(trace.environment),
        "switches": {name: os.environ[name] for name in KERNELS if name in os.environ},
        "other_class": sorted(other_class(stored, trace)),
        "digests_equal": [
            {n: getattr(a, n) == getattr(b, n) for n in ("prompts", "completions", "rewards",
                                                        "losses", "parameters")}
            for a, b in digests
        ],
        "loss_gaps": [
            max((abs(float.fromhex(x) - float.fromhex(y)) for x, y in
                 zip(a.losses, b.losses, strict=False)), default=0.0)
            for a, b in digests
        ],
        "losses": [[len(a.losses), len(b.losses)] for a, b in digests],
        "health": {
            name: [_gap(a, b) for a, b in zip(column, trace.health[name], strict=False)]
            for name, column in record.health.items() if name in trace.health
        },
        "uniform_groups": trace.health["uniform_groups"],
        "closest": trace.closest,
        "curve_items": [
            int((np.asarray(v) != trace.vector(p.items_ref)).sum()) for p, _, v in pairs
        ],
        "curve": [a.score - b.score for a, b, _ in pairs],
        "curve_n": [int(v.size) for *_, v in pairs],
        "splits": {
            name: {
                side: None if getattr(split, side) is None or whole[name][side] is None
                else getattr(split, side) - whole[name][side]
                for side in ("start", "end")
            } | {"n": split.n * split.draws}
            for name, split in record.splits.items() if name in whole
        },
        "lam": math.nan if None in lam else lam[0] - lam[1],
        "lam_new": math.nan if None in lam_new else lam_new[0] - lam_new[1],
        "status": [record.status.model_dump(), trace.status.model_dump()],
    }


def _class(environment: dict[str, Any]) -> list[Any]:
    return [environment.get(name) for name in ("cpu", "cpu_capability", "machine")]


def _gap(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return 0.0 if a is b else None
    return abs(a - b)


if __name__ == "__main__":
    main()
