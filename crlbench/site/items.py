"""The scores of an entry's completions as a script, from which a browser computes Λ again.

Everything that Λ is made of: per run the scores of every item at every evaluation and of every
draw of the start model, with the grid; per task floor, ceiling and budget, and the state in which
the two generators of its bootstrap begin. ``static/recompute.js`` reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from crlbench.seeding import derive
from crlbench.site.embedded import script
from crlbench.site.pages import File, Made, items_path
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.intervals import LEVEL, ROOT_SEED
from crlbench.stats.measures import ID
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_runs import TaskRuns

KEPT = "scores of items"
"""Group of the script among the files that are kept of an entry."""


def pages(site: Site) -> Iterator[Made]:
    """One script per entry that has a Λ."""
    for stored in site.boards:
        for entry in stored.board.entries:
            if entry.lam.value is not None:
                yield partial(_files, stored, entry)


def _files(stored: StoredBoard, entry: Entry) -> Iterator[File]:
    if (shelf := stored.shelves.get(entry.name)) is not None:
        yield from starmap(File, shelf.files(KEPT))
        return
    yield entry_file(stored, entry)
    stored.forget(entry)


def entry_file(stored: StoredBoard, entry: Entry) -> File:
    """The script of an entry that has a Λ."""
    path = items_path(stored.id, entry.model, entry.recipe)
    return File(path, script("items", content(entry), f"{stored.id}/{entry.name}"))


def content(entry: Entry) -> dict[str, Any]:
    """What Λ of an entry is computed from."""
    evidence = entry.evidence
    return {
        "replicates": evidence.count,
        "level": LEVEL,
        "rule": evidence.interval,
        "tasks": [_task(runs, evidence.seed) for runs in evidence.tasks.values()],
    }


def _task(task: TaskRuns, seed: int = ROOT_SEED) -> dict[str, Any]:
    curves = [
        run.curve_items()[: m.curve.measured]
        for run, m in zip(task.runs, task.measures, strict=True)
    ]
    starts = [run.split_items(ID, end=False) for run in task.runs]
    items, kind = curves[0].shape[1], kind_of([*curves, *starts])
    first = task.runs[0].record.task
    return {
        "name": task.task,
        "floor": first.floor,
        "ceiling": first.ceiling,
        "budget": task.measures[0].budget,
        "items": items,
        "kind": kind,
        "streams": {
            "seeds": _stream(derive(seed, task.task, "seeds", len(task.runs))),
            "items": _stream(derive(seed, task.task, "items", items)),
        },
        "runs": [
            {
                "seed": m.seed,
                "x": list(m.curve.x),
                "measured": m.curve.measured,
                "draws": len(start),
                "curve": pack(rows, kind),
                "start": pack(start, kind),
            }
            for m, rows, start in zip(task.measures, curves, starts, strict=True)
        ],
    }


def kind_of(vectors: Sequence[np.ndarray]) -> str:
    """How scores are written without loss: ``bits`` where all are 0 or 1, else the short floats."""
    if all(((v == 0) | (v == 1)).all() for v in vectors):
        return "bits"
    return "f32" if all((v.astype(np.float32) == v).all() for v in vectors) else "f64"


def pack(vector: np.ndarray, kind: str) -> str:
    """Base64 of scores in order: bits with the highest first, or little-endian floats."""
    if kind == "bits":
        raw = np.packbits(vector.astype(np.uint8).ravel())
    else:
        raw = vector.ravel().astype({"f32": "<f4", "f64": "<f8"}[kind])
    return base64.b64encode(raw.tobytes()).decode()


def _stream(seed: int) -> dict[str, str]:
    """Start state of numpy's PCG64 of a seed."""
    state = np.random.PCG64(seed).state["state"]
    return {name: f"{state[name]:032x}" for name in ("state", "inc")}
