"""Putting an entry on its shelf: everything that :class:`crlbench.site.shelf.Shelf` reads.

An entry's numbers are a function of its own runs alone. So are the pages of its runs, its scores
and its rows in the tables of a board. One process makes them while the runs are in memory, and
writes them to one parcel.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.disk.parcels import packed
from crlbench.site.briefs import make_brief
from crlbench.site.cache import Cache
from crlbench.site.shelf import GROUPS, KNOWN, READ
from crlbench.stats.intervals import Replicates
from crlbench.verdict.axes import AXES, Axis, Evidence
from crlbench.verdict.entry import Entry
from crlbench.verdict.kept_runs import columns_of
from crlbench.verdict.packing import REPLICATED, Packer
from crlbench.verdict.runs import Run
from crlbench.verdict.transfers import transfer_cells

APART = ("plan", "panels")
"""What stands outside of the head: little asks for it."""
Files = dict[str, dict[str, bytes]]
"""By group and path from the root of the site."""


def keep(
    cache: Cache,
    key: str,
    runs: tuple[Run, ...],
    arms: tuple[Entry | None, *tuple[Entry, ...]],
    head: dict[str, Any],
    files: Files,
) -> None:
    """Write the parcel of an entry.

    Args:
        key: names the parcel, and everything that it rests on.
        runs: of all arms, in order, each with its record.
        arms: the entry and its control arms.
        head: what a shelf has as properties: name, plan, date, badge, submitter, panels.
        files: what rests on the entry alone.

    Raises:
        EnvironmentUnfit: it cannot be written.
    """
    if arms[0] is not None:
        keep_replicates(arms[0].evidence)
        arms[0].evidence.transfers = transfer_cells(arms[0])
    packer, fields = Packer(runs), dict[str, Any]()
    for number, arm in enumerate(arms):
        fields |= {} if arm is None else _pack_arm(packer, number, arm)
    fields |= {name: head[name] for name in APART}
    contents, places = [], {}
    start = 0
    for group, by_path in files.items():
        for name, content in by_path.items():
            contents.append(packed(content))
            places.setdefault(group, []).append([name, start, len(contents[-1])])
            start += len(contents[-1])
    records = b"\n".join(run.record.model_dump_json().encode() for run in runs)
    rows, shared = _table(runs, head["folder"])
    whole = {name: part for name, part in head.items() if name not in ("folder", *APART)} | {
        "runs": rows,
        "shared": shared,
        "conditions": _conditions(runs),
        "arms": [None if arm is None else _known(packer, arm) for arm in arms],
        "brief": None if arms[0] is None else packer.pack_alone(make_brief(arms[0], runs)),
        "has_plan": bool(head["plan"]),
        "small": packer.small.index,
        "large": packer.large.index,
        "files": places,
    }
    parts = {
        "head": packed(json.dumps(whole).encode()),
        **{name: packed(json.dumps(part).encode()) for name, part in fields.items()},
        "small": packer.small.content(),
        "records": packed(records),
        "files": b"".join(contents),
        **_large_parts(packer),
    }
    cache.put(key, parts)


def _large_parts(packer: Packer) -> dict[str, bytes]:
    """Large arrays, a part each: what is not asked for is not compared with its digest."""
    content, parts = packer.large.content(), {}
    for number, (kind, shape, offset, _) in enumerate(packer.large.index):
        if offset is not None:
            size = math.prod(shape) * np.dtype(kind).itemsize
            parts[f"large {number}"] = content[offset : offset + size]
    return parts


def _known(packer: Packer, arm: Entry) -> dict[str, Any]:
    """What is known of an arm without reading more."""
    bare = {name: None for name in REPLICATED}
    fields = {name: getattr(arm, name) for name in (*KNOWN, "task_names")}
    fields["axes"] = {axis: replace(score, **bare) for axis, score in arm.axes.items()}
    return {name: packer.pack_alone(field) for name, field in fields.items()}


def _pack_arm(packer: Packer, number: int, arm: Entry) -> dict[str, Any]:
    """The other fields of an arm and of its evidence, by the names of their parts."""
    fields = {
        f"arm {number} {group}": packer.pack_alone(tuple(getattr(arm, name) for name in names))
        for group, names in GROUPS.items()
    }
    fields |= {
        f"arm {number} replicates of {axis}": packer.pack_alone((score.drawn, score.spread))
        for axis, score in arm.axes.items()
    }
    evidence = packer.pack_evidence(arm.evidence)
    return fields | {f"evidence {number} {name}": part for name, part in evidence.items()}


def keep_replicates(evidence: Evidence) -> None:
    """Compute the replicates that pairs of an entry will ask for, and keep them with it."""
    kept: dict[tuple[Axis, str, int], Replicates] = {}
    for task, runs in evidence.tasks.items():
        for axis in AXES:
            if axis == "stability" and runs.stability is None:
                continue
            for n in {len(runs.measures), evidence.prefix[task]} - {0}:
                if (part := evidence.replicates(axis, task, n)) is not None:
                    kept[axis, task, n] = part
    evidence.kept = kept


def _table(
    runs: tuple[Run, ...], folder: Path
) -> tuple[list[dict[str, Any]], dict[str, list[Any]]]:
    """The columns of each run, and the values that many runs share."""
    shared: dict[str, list[Any]] = {name: [] for name in (*READ, "environment")}
    rows = []
    for run in runs:
        columns = columns_of(run) | {"folder": run.folder.relative_to(folder).as_posix()}
        for name, values in shared.items():
            if columns[name] not in values:
                values.append(columns[name])
            columns[name] = values.index(columns[name])
        rows.append(columns)
    return rows, shared


def _conditions(runs: tuple[Run, ...]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for run in runs:
        protocol = run.record.protocol
        one = [
            run.record.fingerprint.hash,
            *(protocol.track, protocol.track_version, protocol.division),
            run.environment.get("hardware_class"),
        ]
        if one not in found:
            found.append(one)
    return found
