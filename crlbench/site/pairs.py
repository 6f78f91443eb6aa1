"""Pairs of entries, each compared once: for all pages of a site, and for the next build of it.

A pair rests on its two entries alone, so its key is made of theirs. Pairs that pages are known to
show are compared first, by all processes; any other is compared where a page asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import zstandard

from crlbench.base.parallel import each_of
from crlbench.disk.hashing import digest
from crlbench.disk.parcels import BadParcel, Parcel, write_parcel
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.entry import Entry
from crlbench.verdict.packing import Packer, Unpacker
from crlbench.verdict.pairs import Pair, compare_pair

TOGETHER = 24
"""Pairs that a process compares at a time: those of few entries, whose replicates it then holds."""
PART = "pairs"


class Wanted(NamedTuple):
    """A pair that a page shows: the second minus the first."""

    first: Entry
    second: Entry
    tasks: tuple[str, ...] | None = None
    """Only these; None for all that both have."""

    @property
    def key(self) -> str:
        """Digest of what the pair rests on; empty where an entry is not kept."""
        keys = self.first.evidence.key, self.second.evidence.key
        return digest([*keys, self.tasks, MARGIN]) if all(keys) else ""

    def compare(self) -> Pair:
        """The pair, computed."""
        return compare_pair(self.first, self.second, tasks=self.tasks)


class Pairs:
    """The pairs of a build."""

    def __init__(self, packed: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            packed: by key, the pairs that are known.
        """
        self._packed = dict(packed or {})

    def compare(
        self, first: Entry, second: Entry, tasks: Sequence[str] | None = None
    ) -> Pair:
        """Second minus first, as :func:`crlbench.verdict.pairs.compare_pair`."""
        wanted = Wanted(first, second, None if tasks is None else tuple(tasks))
        packed = self._packed.get(wanted.key)
        return wanted.compare() if packed is None else _unpack(packed)

    def complete(
        self, wanted: Iterable[Wanted], done: Callable[[], object], jobs: int | None = None
    ) -> bool:
        """Compare what is wanted and not known, and forget what is not wanted.

        Args:
            done: called after some pairs, to let go of their replicates.
            jobs: processes; as many as there are cores where it is None.

        Returns:
            Whether anything changed.
        """
        by_key = {pair.key: pair for pair in wanted if pair.key}
        missing = sorted(
            (key for key in by_key if key not in self._packed),
            key=lambda key: (by_key[key].first.name, by_key[key].second.name),
        )
        known = {key: packed for key, packed in self._packed.items() if key in by_key}
        changed = bool(missing) or len(known) < len(self._packed)
        blocks = [missing[at : at + TOGETHER] for at in range(0, len(missing), TOGETHER)]

        def compare(keys: list[str]) -> list[Any]:
            packed = [_pack(by_key[key].compare()) for key in keys]
            done()
            return packed

        for keys, values in zip(blocks, each_of(compare, blocks, jobs), strict=True):
            known |= zip(keys, values, strict=True)
        self._packed = known
        return changed

    def write(self, path: Any) -> None:
        """Write all pairs to a parcel.

        Raises:
            OSError: it cannot be written.
        """
        content = zstandard.ZstdCompressor().compress(json.dumps(self._packed).encode())
        write_parcel(path, {PART: content})


def read_pairs(path: Any) -> Pairs:
    """The pairs of a parcel; none where there is no sound one."""
    try:
        parcel = Parcel(path)
        parcel.check()
        content = zstandard.ZstdDecompressor().decompress(parcel.part(PART))
        return Pairs(json.loads(content))
    except (BadParcel, ValueError, zstandard.ZstdError):
        return Pairs()


def _pack(pair: Pair) -> Any:
    return Packer(()).pack(pair)


def _unpack(packed: Any) -> Pair:
    def none(*_: int) -> Any:
        raise IndexError("a pair has no runs and no arrays")

    return Unpacker(none, none, none, none).unpack(packed)
