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
from crlbench.verdict.packing import Packer, unpack_plain

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


def packed_text(value: Any) -> str:
    """A value as :class:`Known` keeps it."""
    return json.dumps(Packer().pack(value))


class Known:
    """Values by key, as text that is read when a value is asked for."""

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        put: Callable[[dict[str, bytes]], object] | None = None,
    ) -> None:
        """
        Args:
            texts: what is known.
            put: writes the parts of a parcel; None: nothing is kept.
        """
        self._before, self._used, self._put = dict(texts or {}), dict[str, str](), put

    def has(self, key: str) -> bool:
        """Whether the value of a key is known, which is then used."""
        if key in self._before:
            self._used[key] = self._before[key]
        return key in self._used

    def get(self, key: str) -> Any:
        """The value of a key, which is then used; None where there is none."""
        return unpack_plain(json.loads(self._used[key])) if self.has(key) else None

    def put(self, key: str, text: str) -> None:
        """Take what :func:`packed_text` gave for a value that was computed."""
        self._used[key] = text

    def write(self) -> None:
        """Keep what was used.

        Raises:
            EnvironmentUnfit: it cannot be written.
        """
        if self._put is not None and self._used.keys() != self._before.keys():
            lines = [json.dumps([*self._used]), *self._used.values()]
            content = "\n".join(lines).encode()
            self._put({PART: zstandard.ZstdCompressor().compress(content)})
            self._before = dict(self._used)


def read_known(cache: Cache, name: str) -> Known:
    """What a cache holds under a name; nothing where there is no sound parcel."""
    texts = None
    if (parcel := cache.find(name)) is not None:
        with suppress(BadParcel, ValueError, TypeError, RecursionError, zstandard.ZstdError):
            content = zstandard.ZstdDecompressor().decompress(parcel.part(PART))
            keys, *lines = content.decode().split("\n")
            texts = dict(zip(json.loads(keys), lines, strict=True))
    return Known(texts, partial(cache.put, name))
