"""A number and how sure it is; and results as plain data."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from crlbench.stats.intervals import Interval

IN_MEMORY = {"json": False}
"""Metadata of fields that pairs and figures need and that JSON leaves out."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; both None where they cannot be given honestly."""

    value: float | None
    interval: Interval | None
    n: int
    """Seeds (the smallest number over the tasks)."""


def plain(value: Any) -> Any:
    """Only what JSON knows: dataclasses as objects, arrays and tuples as lists, NaN as None.

    Fields that are marked :data:`IN_MEMORY` are left out.
    """
    if dataclasses.is_dataclass(value):
        shown = [f for f in dataclasses.fields(value) if f.metadata.get("json", True)]
        return {f.name: plain(getattr(value, f.name)) for f in shown}
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
