"""Linked JSON lines: each carries the hash of the line before it.

A removed or changed line is detected. A line that ``kill -9`` cut off was never read and does not
count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crlbench.disk.hashing import digest
from crlbench.disk.reading import Malformed, json_value, read_bytes

GENESIS = "0" * 64
"""What the first line follows."""
MAX_BYTES = 8 * 2**20
"""A larger file is refused."""


def linked(entries: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` as the line after ``entries``: with its number and both hashes."""
    previous = entries[-1]["hash"] if entries else GENESIS
    line = {**body, "n": len(entries), "previous": previous}
    return line | {"hash": digest(line)}


def follows(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a line is sound and comes right after ``entries``."""
    body = {key: value for key, value in entry.items() if key != "hash"}
    try:
        sound = entry.get("hash") == digest(body)
    except (ValueError, RecursionError):  # a number that JSON does not know, or a depth
        return False
    previous = entries[-1]["hash"] if entries else GENESIS
    return sound and entry.get("previous") == previous and entry.get("n") == len(entries)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that were written whole; none where there is no file.

    Raises:
        EnvironmentUnfit: it may not be read.
        ValidationError: it is no regular file, or larger than any that was written.
    """
    if not os.path.lexists(path):
        return []
    content = read_bytes(path, MAX_BYTES, links=False)
    return content.rpartition(b"\n")[0].splitlines()


def parsed(line: bytes) -> dict[str, Any]:
    """A line's object; empty where it holds none."""
    try:
        entry = json_value(line)
    except Malformed:
        return {}
    return entry if isinstance(entry, dict) else {}
