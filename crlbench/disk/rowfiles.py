"""Split files as they stand on the disk: plain JSON lines, or compressed where they are long.

A task's rows are text that people open and read, so a short file stays plain. One of more than
64 KiB stands as ``train.jsonl.zst`` in its place: one zstandard frame that states its size, about a
twentieth of its length. Digests and line numbers are always of the content, so that both forms are
the same file to every reader. ``zstd -dc`` shows it, and ``crlbench show task`` prints rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import zstandard

from crlbench.disk.unpacking import decompress
from crlbench.errors import ValidationError

SUFFIX = ".zst"
MAX_PLAIN_BYTES = 2**16
"""Longest content that is written as it is."""
MAX_ROWS_BYTES = 2**26
"""Longest content of a split file or a file of pairs, and longest code of a task."""
LEVEL = 19


def forms(path: Path) -> tuple[Path, Path]:
    """The two places of the split file ``path``: plain, and compressed."""
    return path, path.with_name(path.name + SUFFIX)


def written(path: Path, content: bytes) -> Path:
    """The one of its forms in which freezing writes a split file."""
    plain, compressed = forms(path)
    return plain if len(content) <= MAX_PLAIN_BYTES else compressed


def standing(path: Path) -> Path:
    """The form in which a split file stands; ``path`` itself where it is missing.

    Raises:
        ValidationError: both forms stand there.
    """
    there = [form for form in forms(path) if os.path.exists(form)]
    if len(there) > 1:
        raise ValidationError(
            f"{there[0]} and {there[1]} both stand there, and a split has one file. Delete the one "
            "that is not meant; crlbench freeze writes the right one and deletes the other."
        )
    return there[0] if there else path


def packed(content: bytes) -> bytes:
    """The compressed form: the same bytes for the same content and version of zstandard.

    Raises:
        ValueError: longer than what :func:`unpacked` reads.
    """
    if len(content) > MAX_ROWS_BYTES:
        raise ValueError(f"{len(content)} bytes; no split file holds more than {MAX_ROWS_BYTES}")
    return zstandard.ZstdCompressor(level=LEVEL).compress(content)


def unpacked(data: bytes) -> bytes:
    """The content of the compressed form.

    Raises:
        BadArchive: it is damaged or cut off, more than one frame, or holds too much.
    """
    return decompress(data, MAX_ROWS_BYTES)
