"""Results of several entries by key, from the build before: pairs, rankings.

Each rests on entries that are kept, so its key is made of theirs. A build keeps the results that it
used, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

from crlbench.disk.parcels import BadParcel, Parcel, write_parcel

PART = "results"


class Known:
    """Packed results by key."""

    def __init__(self, packed: Mapping[str, Any] | None = None, path: Path | None = None) -> None:
        """
        Args:
            packed: what is known.
            path: the parcel that they are written to; None: they are not.
        """
        self._before, self._used, self._path = dict(packed or {}), dict[str, Any](), path

    def get(self, key: str) -> Any:
        """The packed result of a key, which is then used; None where there is none."""
        if key in self._before:
            self._used[key] = self._before[key]
        return self._used.get(key)

    def put(self, key: str, packed: Any) -> None:
        """A result that was computed."""
        self._used[key] = packed

    def write(self) -> None:
        """Keep what was used, where there is a place; without one the next build computes it."""
        if self._path is not None and self._used.keys() != self._before.keys():
            content = zstandard.ZstdCompressor().compress(json.dumps(self._used).encode())
            with suppress(OSError):
                write_parcel(self._path, {PART: content})
                self._before = dict(self._used)


def read_known(path: Path) -> Known:
    """What a parcel holds; nothing where there is no sound one."""
    packed = None
    with suppress(BadParcel, ValueError, zstandard.ZstdError):
        parcel = Parcel(path)
        parcel.check()
        packed = json.loads(zstandard.ZstdDecompressor().decompress(parcel.part(PART)))
    return Known(packed, path)
