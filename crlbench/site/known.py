"""Results of several entries by key, from the build before: pairs, rankings.

Each rests on entries that are kept, so its key is made of theirs. A build keeps the results that it
used, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from crlbench.base.parallel import each_of
from crlbench.disk.parcels import BadParcel, packed, plain_value, unpacked
from crlbench.site.cache import Cache
from crlbench.verdict.packing import Packer, unpack_plain

PART = "results"
LEVEL = 3
"""Of their compression."""
T = TypeVar("T")


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

    def has(self, key: str, kind: type) -> bool:
        """Whether the value of a key is known, which is then used.

        Args:
            kind: what the value is; one of another kind is not known.
        """
        if key not in self._used and isinstance(self._read(self._before.get(key, "null")), kind):
            self._used[key] = self._before[key]
        return key in self._used

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value of a key, which is then used; None where there is none of its kind."""
        return cast("T", self._read(self._used[key])) if self.has(key, kind) else None

    def _read(self, text: str) -> Any:
        """A value of its text; None for a text that was changed."""
        with suppress(BadParcel):
            return unpack_plain(plain_value(text))
        return None

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
            self._put({PART: packed(content, LEVEL)})
            self._before = dict(self._used)


def read_known(cache: Cache, name: str) -> Known:
    """What a cache holds under a name; nothing where there is no sound parcel."""
    texts = None
    if (parcel := cache.find(name)) is not None:
        with suppress(BadParcel, ValueError, TypeError):
            keys, *lines = unpacked(parcel.part(PART)).decode().split("\n")
            texts = dict(zip(plain_value(keys), lines, strict=True))
    return Known(texts, partial(cache.put, name))
