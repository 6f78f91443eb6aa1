"""The files of a run that follow from its record, its cell and this machine."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from crlbench.contract.records import CURVE_COLUMNS, Cell, CurvePoint
from crlbench.disk.hashing import canonical_json
from crlbench.disk.toml import dump_toml
from crlbench.run import environment

_DECIDED = (
    "model",
    "recipe",
    "task",
    "arm",
    "seed_index",
    "track",
    "track_version",
    "division",
    "partial",
    "fingerprint",
    "plan_hash",
    "conditions",
    "recipe_config",
)


def curve_csv(curve: Sequence[CurvePoint]) -> bytes:
    """The curve as a table for spreadsheets."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CURVE_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(point.model_dump() for point in curve)
    return text.getvalue().encode()


def config_toml(cell: Cell) -> bytes:
    """Everything that was decided for this run, to read and to diff."""
    data = cell.model_dump(mode="json")
    return dump_toml({name: data[name] for name in _DECIDED}).encode()


def environment_json(machine: Mapping[str, Any]) -> bytes:
    """What a run was made on, with all installed packages."""
    described = dict(machine) | {"packages": environment.packages()}
    return (canonical_json(described) + "\n").encode()
