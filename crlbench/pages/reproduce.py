"""The command that makes an entry's runs again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from crlbench.contract.conditions import Track, stated_values
from crlbench.contract.records import RunRecord
from crlbench.verdict.board_conditions import measured_tasks
from crlbench.verdict.resources import known_track
from crlbench.verdict.runs import Run

CONDITIONS = "conditions."
SMOKE_LEAF = "budget.grid"
"""A shortened run whose grid was changed comes from --smoke, any other from --limit."""


def command(runs: Sequence[Run]) -> str:
    """One ``crlbench evaluate`` line for the runs of one model and recipe, all arms."""
    record = runs[0].record
    parts = ["crlbench", "evaluate", "--model", _model(record)]
    parts += ["--track", _track_name(record), "--recipe", record.algo.name]
    differing = changed_conditions(record)
    if all(run.status.state == "partial" for run in runs):
        return shlex.join(parts + _shortened(record, differing))
    parts += ["--seeds", str(1 + max(run.seed for run in runs))]
    parts += _tasks(runs) + _arms(runs)
    for name, value in differing.items():
        parts += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(parts)


def changed_conditions(record: RunRecord) -> dict[str, Any]:
    """Conditions that differ from the track's own, by the names that ``--set`` takes."""
    track = _track(record)
    if track is None:
        return {}
    track_values = track.conditions.values()
    values = stated_values(record.fingerprint.leaves)
    return {
        name: values[name]
        for name in sorted(values)
        if name in track_values and track_values[name] != values[name]
    }


def _track(record: RunRecord) -> Track | None:
    """The track at the version that ran; where that is not here, as it is now."""
    name, version = record.protocol.track, record.protocol.track_version
    return known_track(name, version) or known_track(name)


def _track_name(record: RunRecord) -> str:
    """``mini``; ``mini@1`` where another version is the current one and this one is archived."""
    name, version = record.protocol.track, record.protocol.track_version
    there, now = known_track(name, version), known_track(name)
    return name if there is None or there == now else f"{name}@{version}"


def _model(record: RunRecord) -> str:
    subject = record.subject
    if not subject.listed and subject.hf_id and subject.revision:
        return f"{subject.hf_id}@{subject.revision}"
    return subject.spec


def _shortened(record: RunRecord, differing: dict[str, Any]) -> list[str]:
    if SMOKE_LEAF in differing:
        return ["--smoke"]
    items = record.fingerprint.leaves.get(f"{CONDITIONS}evaluation.curve_items")
    return ["--limit", str(items)]


def _tasks(runs: Sequence[Run]) -> list[str]:
    """Named only where they are not simply the tasks of the track."""
    names = sorted({run.task for run in runs}) + [*measured_tasks(runs[0].record)]
    track = _track(runs[0].record)
    if track is not None and names == sorted(track.tasks):
        return []
    return ["--tasks", ",".join(names)]


def _arms(runs: Sequence[Run]) -> list[str]:
    names = sorted({run.arm for run in runs}, reverse=True)
    return [] if names == ["real"] else ["--arm", ",".join(names)]
