"""TOML files: read within limits, and written in one canonical form."""

from __future__ import annotations

import json
import os
import re
from datetime import date
from pathlib import Path
from typing import Any

from crlbench.disk.reading import MAX_TOML_BYTES, Malformed, read_bytes, toml_table
from crlbench.errors import ValidationError


def read_toml(path: Path, limit: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """A TOML file of at most ``limit`` bytes as a dict, with a message for each way of failing."""
    if not os.path.exists(path):
        raise ValidationError(f"{path}: the file does not exist.")
    try:
        return toml_table(read_bytes(path, limit))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}.") from None


def dump_toml(data: dict[str, Any]) -> str:
    """Canonical TOML: plain fields first, then tables, both in the order given.

    Holds strings, booleans, integers, floats, dates, lists of these, nested tables, and tables in
    lists, each on one line; None is left out. The same data always gives the same bytes.
    """
    return "\n".join(_table([], data)).lstrip("\n") + "\n"


def _table(path: list[str], data: dict[str, Any]) -> list[str]:
    plain = {k: v for k, v in data.items() if v is not None and not isinstance(v, dict)}
    needs_header = path and (plain or not data)
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if needs_header else []
    lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in data.items():
        if isinstance(value, dict):
            lines += _table([*path, name], value)
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string in ASCII; unlike JSON, TOML has no pairs of surrogates."""
    parts = re.split("([\U00010000-\U0010ffff])", text)  # such characters at odd places
    escaped = (
        f"\\U{ord(part):08x}" if place % 2 else json.dumps(part)[1:-1]
        for place, part in enumerate(parts)
    )
    return f'"{"".join(escaped)}"'


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)
