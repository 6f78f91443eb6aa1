"""Numbers of a verdict as plain data: what its JSON files hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from crlbench.base.added import is_absent


def plain(value: Any) -> Any:
    """Only what JSON knows: dataclasses as objects, arrays and tuples as lists, NaN as None.

    The metadata ``json`` of a field names another function for it; None leaves it out. A field that
    was added later is left out at its default.
    """
    if dataclasses.is_dataclass(value):
        fields = [f for f in dataclasses.fields(value) if not is_absent(f, getattr(value, f.name))]
        writers = [(f.name, f.metadata.get("json", plain)) for f in fields]
        return {name: write(getattr(value, name)) for name, write in writers if write}
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
