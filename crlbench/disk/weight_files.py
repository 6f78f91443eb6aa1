"""Weight files as they travel with the package: plain, or compressed in the plain file's place.

``model.safetensors.xz`` holds the bytes of ``model.safetensors`` and takes two thirds of its room.
``xz -dk`` unpacks it. Digests are always of the plain bytes, so both forms are the same weights.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from crlbench.disk.unpacking import decompress_xz

SUFFIX = ".xz"
MAX_PLAIN_BYTES = 2**26
"""Longest weight file that has a compressed form; those of bundled models have 6 MB."""
FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 3, "lp": 1, "pb": 1},)
"""Two-byte numbers: the place of a byte in its number says most about its value."""


def compressed_form(path: Path) -> Path | None:
    """What stands in the place of the weight file ``path``; None where it stands itself."""
    compressed = path.with_name(path.name + SUFFIX)
    return compressed if not path.exists() and compressed.is_file() else None


def compress(content: bytes) -> bytes:
    """The compressed form of a weight file.

    Raises:
        ValueError: it is longer than what :func:`plain_content` reads.
    """
    if len(content) > MAX_PLAIN_BYTES:
        raise ValueError(f"{len(content)} bytes; at most {MAX_PLAIN_BYTES} are compressed")
    return lzma.compress(content, check=lzma.CHECK_CRC64, filters=FILTERS)


def plain_content(compressed: Path) -> bytes:
    """The bytes of the weight file that a compressed form holds.

    Raises:
        BadArchive: it is damaged or cut off, more than one stream, or holds too much.
        OSError: it may not be read.
    """
    return decompress_xz(compressed.read_bytes(), MAX_PLAIN_BYTES)
