"""What is kept of one submitted entry: its numbers, its records, and the files that need no other.

An entry's numbers are a function of its own runs alone. So are the pages of its runs, its scores
and its rows in the tables of a board. One process makes them while the runs are in memory, and
writes them to one parcel. Boards, rankings, pairs and all other pages are made from parcels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.arms import ARMS
from crlbench.contract.records import RunRecord, Status, Subject, TaskRef
from crlbench.contract.verification import Proof
from crlbench.disk.parcels import BadParcel, Parcel, read_array
from crlbench.site.cache import Cache
from crlbench.stats.intervals import Replicates
from crlbench.verdict.axes import AXES, Axis, Evidence
from crlbench.verdict.entry import Entry
from crlbench.verdict.kept_runs import KeptRun, columns_of
from crlbench.verdict.packing import KeptEvidence, Packer, Unpacker
from crlbench.verdict.runs import Run
from crlbench.verdict.transfers import transfer_cells

LEVEL = 1
"""Of the compression of records and pages: both are written once and read often."""
RECORDS = 256
"""Records that a process keeps; pages ask for those of one entry again and again."""

WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading raises where something else was kept than an entry; :class:`BadParcel` is one."""

READ: dict[str, Callable[[Any], Any]] = {
    "status": Status.model_validate,
    "subject": Subject.model_validate,
    "task_ref": TaskRef.model_validate,
}
"""Columns of runs that are written once for all that share them, and how they are read."""

Files = dict[str, dict[str, bytes]]
"""By group and path from the root of the site."""


class Shelf:
    """An entry as it is kept."""

    def __init__(self, parcel: Parcel, folder: Path) -> None:
        """
        Args:
            folder: of the entry's files.

        Raises:
            BadParcel: the parcel holds no entry.
        """
        self.parcel, self._folder, self._touched = parcel, folder, False
        try:
            self._head: dict[str, Any] = json.loads(_unpacked(parcel.part("head")))
        except (ValueError, RecursionError, zstandard.ZstdError) as error:
            raise BadParcel(f"{parcel.path}: {error}") from None

    def check(self) -> None:
        """Read all that boards are made of; it is kept.

        Raises:
            BadParcel: the parcel is sound, and holds something else than an entry.
        """
        try:
            _ = (self.name, self.conditions, self.plan, self.date, self.badge, self.submitter)
            _ = (self.panels, self.runs, self.arms)
        except WRONG as error:
            raise BadParcel(f"{self.parcel.path}: holds no entry: {error!r}") from None

    @property
    def name(self) -> str:
        """``model/recipe``."""
        return self._head["name"]

    @property
    def conditions(self) -> list[list[Any]]:
        """Fingerprint, track, its version, division, class of hardware: each combination once."""
        return self._head["conditions"]

    @property
    def plan(self) -> dict[str, Any]:
        """The stored plan."""
        return self._head["plan"]

    @property
    def date(self) -> str:
        """The time of the last event in its ledger."""
        return self._head["date"]

    @property
    def badge(self) -> Proof | None:
        return self._head["badge"]

    @property
    def submitter(self) -> str:
        return self._head["submitter"]

    @property
    def panels(self) -> dict[str, Any]:
        """What of the entry's page is made of its records."""
        return self._head["panels"]

    @cached_property
    def runs(self) -> tuple[KeptRun, ...]:
        """All runs of all arms, in order."""
        shared = {
            name: [READ.get(name, dict)(plain) for plain in values]
            for name, values in self._head["shared"].items()
        }
        return tuple(
            KeptRun(
                columns | {name: values[columns[name]] for name, values in shared.items()},
                self._loader(number),
                self._folder / columns["folder"],
            )
            for number, columns in enumerate(self._head["runs"])
        )

    def _loader(self, number: int) -> Callable[[], RunRecord]:
        return lambda: _record(self, number)

    @cached_property
    def arms(self) -> tuple[Entry | None, *tuple[Entry, ...]]:
        """The entry, None without runs of its real arm; then its control arms."""
        unpacker = self._unpacker()
        real, *controls = (unpacker.unpack(arm) for arm in self._head.pop("arms"))
        return real, *controls

    @cached_property
    def _evidence(self) -> list[KeptEvidence]:
        """Of the arms that have runs, read when it is asked for."""

        def loader(number: int) -> Callable[[], Evidence]:
            return lambda: self._read_evidence(number)

        key = self.parcel.path.stem
        return [KeptEvidence(f"{key} {number}", loader(number)) for number in range(len(ARMS))]

    def _read_evidence(self, number: int) -> Evidence:
        packed = json.loads(_unpacked(self.parcel.part(f"evidence {number}")))
        return self._unpacker().unpack_evidence(packed)

    def _unpacker(self) -> Unpacker:
        return Unpacker(
            runs=self.runs.__getitem__,
            vanished=lambda number, index: self.runs[number].vanished(index),
            small=lambda number: self._array("small", number),
            large=lambda number: self._array("large", number),
            evidence=self._evidence.__getitem__,
        )

    def _array(self, size: str, number: int) -> np.ndarray:
        self._touched = True
        return read_array(self.parcel.part(size), self._head[size][number])

    def release(self) -> None:
        """Let go of the replicates that were read; they are read again where they are asked for."""
        if self._touched:
            self._touched = False
            self.parcel.release()

    def files(self, group: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of its files of a group, as :func:`keep` was given them."""
        part = self.parcel.part("files")
        for path, place, size in self._head["files"].get(group, ()):
            yield path, _unpacked(part[place : place + size])

    def record_lines(self) -> list[bytes]:
        """The records of its runs as text."""
        return _unpacked(self.parcel.part("records")).split(b"\n")


def _unpacked(part: memoryview) -> bytes:
    return zstandard.ZstdDecompressor().decompress(part)


@lru_cache(maxsize=2)
def _lines(shelf: Shelf) -> list[bytes]:
    return shelf.record_lines()


@lru_cache(maxsize=RECORDS)
def _record(shelf: Shelf, number: int) -> RunRecord:
    """A record of a shelf; it was checked when it was put there, and the parcel has digests."""
    return RunRecord.model_validate_json(_lines(shelf)[number])


def keep(
    cache: Cache,
    key: str,
    runs: tuple[Run, ...],
    arms: tuple[Entry | None, *tuple[Entry, ...]],
    head: dict[str, Any],
    files: Files,
) -> None:
    """Write the parcel of an entry.

    Args:
        key: names the parcel, and everything that it rests on.
        runs: of all arms, in order, each with its record.
        arms: the entry and its control arms.
        head: what :class:`Shelf` has as properties: name, plan, date, badge, submitter, panels.
        files: what rests on the entry alone.

    Raises:
        EnvironmentUnfit: it cannot be written.
    """
    if arms[0] is not None:
        keep_replicates(arms[0].evidence)
        arms[0].evidence.transfers = transfer_cells(arms[0])
    packer, compress = Packer(runs), zstandard.ZstdCompressor(level=LEVEL).compress
    packed_arms = [packer.pack(arm) for arm in arms]
    evidence = [packer.pack_evidence(one) for one in packer.evidence]
    contents, places = [], {}
    start = 0
    for group, by_path in files.items():
        for name, content in by_path.items():
            contents.append(compress(content))
            places.setdefault(group, []).append([name, start, len(contents[-1])])
            start += len(contents[-1])
    records = b"\n".join(run.record.model_dump_json().encode() for run in runs)
    rows, shared = _table(runs, head["folder"])
    whole = head | {
        "runs": rows,
        "shared": shared,
        "conditions": _conditions(runs),
        "arms": packed_arms,
        "small": packer.small.index,
        "large": packer.large.index,
        "files": places,
    }
    del whole["folder"]
    parts = {
        "head": compress(json.dumps(whole).encode()),
        **{f"evidence {i}": compress(json.dumps(e).encode()) for i, e in enumerate(evidence)},
        "small": packer.small.content(),
        "large": packer.large.content(),
        "records": compress(records),
        "files": b"".join(contents),
    }
    cache.put(key, parts)


def keep_replicates(evidence: Evidence) -> None:
    """Compute the replicates that pairs of an entry will ask for, and keep them with it."""
    kept: dict[tuple[Axis, str, int], Replicates] = {}
    for task, runs in evidence.tasks.items():
        for axis in AXES:
            if axis == "stability" and runs.stability is None:
                continue
            for n in {len(runs.measures), evidence.prefix[task]} - {0}:
                if (part := evidence.replicates(axis, task, n)) is not None:
                    kept[axis, task, n] = part
    evidence.kept = kept


def _table(
    runs: tuple[Run, ...], folder: Path
) -> tuple[list[dict[str, Any]], dict[str, list[Any]]]:
    """The columns of each run, and the values that many runs share."""
    shared: dict[str, list[Any]] = {name: [] for name in (*READ, "environment")}
    rows = []
    for run in runs:
        columns = columns_of(run) | {"folder": run.folder.relative_to(folder).as_posix()}
        for name, values in shared.items():
            if columns[name] not in values:
                values.append(columns[name])
            columns[name] = values.index(columns[name])
        rows.append(columns)
    return rows, shared


def _conditions(runs: tuple[Run, ...]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for run in runs:
        protocol = run.record.protocol
        one = [
            run.record.fingerprint.hash,
            *(protocol.track, protocol.track_version, protocol.division),
            run.environment.get("hardware_class"),
        ]
        if one not in found:
            found.append(one)
    return found

