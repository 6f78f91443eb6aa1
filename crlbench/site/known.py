"""Results of several entries by key, from the build before: pairs, rankings.

Each rests on entries that are kept, so its key is made of theirs. A build keeps the results that it
used, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import zstandard

from crlbench.base.parallel import each_of
from crlbench.disk.parcels import BadParcel
from crlbench.site.cache import Cache

PART = "results"


class Job(NamedTuple):
    """Computes results of several entries."""

    make: Callable[[], Any]
    """Runs in any process."""
    keep: Callable[[Any], object]
    """Takes what was made."""


def complete(jobs: Sequence[Job], processes: int | None = None) -> None:
    """Do all jobs, those that take longest first.

    Args:
        processes: as many as there are cores where it is None.
    """
    made = each_of(lambda job: job.make(), jobs, processes, few=2)
    for job, result in zip(jobs, made, strict=True):
        job.keep(result)


class Known:
    """Packed results by key."""

    def __init__(
        self,
        packed: Mapping[str, Any] | None = None,
        put: Callable[[dict[str, bytes]], object] | None = None,
    ) -> None:
        """
        Args:
            packed: what is known.
            put: writes the parts of a parcel; None: nothing is kept.
        """
        self._before, self._used, self._put = dict(packed or {}), dict[str, Any](), put

    def get(self, key: str) -> Any:
        """The packed result of a key, which is then used; None where there is none."""
        if key in self._before:
            self._used[key] = self._before[key]
        return self._used.get(key)

    def put(self, key: str, packed: Any) -> None:
        """A result that was computed."""
        self._used[key] = packed

    def write(self) -> None:
        """Keep what was used.

        Raises:
            EnvironmentUnfit: it cannot be written.
        """
        if self._put is not None and self._used.keys() != self._before.keys():
            content = zstandard.ZstdCompressor().compress(json.dumps(self._used).encode())
            self._put({PART: content})
            self._before = dict(self._used)


def read_known(cache: Cache, name: str) -> Known:
    """What a cache holds under a name; nothing where there is no sound parcel."""
    packed = None
    if (parcel := cache.find(name)) is not None:
        with suppress(BadParcel, ValueError, RecursionError, zstandard.ZstdError):
            packed = json.loads(zstandard.ZstdDecompressor().decompress(parcel.part(PART)))
    return Known(packed if isinstance(packed, dict) else None, partial(cache.put, name))
