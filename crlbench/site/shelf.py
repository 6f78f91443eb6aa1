"""What is kept of one submitted entry: its numbers, its records, and the files that need no other.

An entry's numbers are a function of its own runs alone. So are the pages of its runs, its scores
and its rows in the tables of a board. One process makes them while the runs are in memory, and
writes them to one parcel. Boards, rankings, pairs and all other pages are made from parcels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.records import RunRecord, Status, Subject, TaskRef
from crlbench.contract.verification import Proof
from crlbench.disk.parcels import BadParcel, Parcel, read_array
from crlbench.site.briefs import Brief, make_brief
from crlbench.site.cache import Cache
from crlbench.stats.intervals import Replicates
from crlbench.verdict.axes import AXES, Axis, Evidence
from crlbench.verdict.entry import Entry
from crlbench.verdict.kept_runs import KeptRun, columns_of
from crlbench.verdict.packing import (
    FIELDS,
    REPLICATED,
    KeptEntry,
    KeptEvidence,
    KeptScore,
    Packer,
    Unpacker,
)
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

KNOWN = (
    *("name", "model", "display_name", "family", "kind", "recipe", "arm", "standing", "why"),
    *("decides", "notes", "declared", "n", "failed", "vanished", "missing", "partial", "absent"),
    *("axes", "placebo"),
)
"""Fields of an entry that are read at once."""
GROUPS = {
    "tasks": ("tasks",),
    "efficiency": ("efficiency",),
    "stability": ("stability",),
    "generalization": ("generalization",),
    "rest": ("start", "end", "gain", "gain_u", "lam", "lam_mean"),
}
"""Fields that are read when one of their group is asked for."""
APART = ("plan", "panels")
"""What stands outside of the head: little asks for it."""
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}

Files = dict[str, dict[str, bytes]]
"""By group and path from the root of the site."""


class Shelf:
    """An entry as it is kept."""

    def __init__(self, parcel: Parcel, folder: Path, remake: Callable[[], Path]) -> None:
        """
        Args:
            folder: of the entry's files.
            remake: writes the parcel anew, where a part that is asked for was changed, and says
                where.

        Raises:
            BadParcel: the parcel holds no entry.
        """
        self.parcel, self._folder, self._remake, self._touched = parcel, folder, remake, False
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
            _ = (self.name, self.conditions, self.date, self.badge, self.submitter)
            _ = (self.has_plan, self.runs, self.arms)
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
    def has_plan(self) -> bool:
        return self._head["has_plan"]

    @property
    def plan(self) -> dict[str, Any]:
        """The stored plan; empty where there is none."""
        return self._read("plan")

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

    @cached_property
    def brief(self) -> Brief:
        """The entry in short."""
        return self._unpacker().unpack(self._head["brief"])

    @cached_property
    def panels(self) -> dict[str, Any]:
        """What of the entry's page is made of its records."""
        return self._read("panels")

    @cached_property
    def runs(self) -> tuple[KeptRun, ...]:
        """All runs of both arms, in order."""
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
    def arms(self) -> tuple[Entry | None, Entry | None]:
        """The entry, and its placebo arm; None for an arm without runs."""
        real, placebo = (self._arm(number, arm) for number, arm in enumerate(self._head["arms"]))
        return real, placebo

    def _arm(self, number: int, known: dict[str, Any] | None) -> Entry | None:
        """An entry, whose numbers are read when something asks for them."""
        if known is None:
            return None
        fields = {name: self._unpacker().unpack(part) for name, part in known.items()}
        evidence = KeptEvidence(
            f"{self.parcel.path.stem} {number}", partial(self._read_evidence, number)
        )
        given = {name: fields[name] for name in KNOWN} | {"_task_names": fields["task_names"]}
        given["axes"] = {
            axis: KeptScore.of(score, partial(self._read_replicates, number, axis))
            for axis, score in fields["axes"].items()
        }
        return KeptEntry.of(given | {"evidence": evidence}, partial(self._read_arm, number))

    def _read_arm(self, number: int, name: str) -> dict[str, Any]:
        """A field of an arm, with those that are read with it."""
        packed = self._read(f"arm {number} {GROUP_OF[name]}")
        return dict(zip(GROUPS[GROUP_OF[name]], self._unpacker().unpack(packed), strict=True))

    def _read_replicates(self, number: int, axis: Axis, _: str) -> dict[str, Any]:
        """The replicates of an arm's headline."""
        drawn, spread = self._unpacker().unpack(self._read(f"arm {number} replicates of {axis}"))
        return {"drawn": drawn, "spread": spread}

    def _read_evidence(self, number: int, name: str) -> Mapping[str, Any]:
        """A field of the evidence of an arm, with those that are read with it."""
        place = FIELDS.get(name, name)
        return self._unpacker().unpack_field(place, self._read(f"evidence {number} {place}"))

    def _read(self, name: str) -> Any:
        return json.loads(_unpacked(self._part(name)))

    def _part(self, name: str) -> memoryview:
        """A part of the parcel.

        Raises:
            BadParcel: it was changed, and is not there either once the parcel was made anew.
        """
        try:
            return self.parcel.part(name)
        except BadParcel:
            self.parcel = Parcel(self._remake())
            return self.parcel.part(name)

    def _unpacker(self) -> Unpacker:
        return Unpacker(
            runs=self.runs.__getitem__,
            vanished=lambda number, index: self.runs[number].vanished(index),
            small=lambda number: read_array(self._part("small"), self._head["small"][number]),
            large=self._large,
        )

    def _large(self, number: int) -> np.ndarray:
        """An array that is a part of its own."""
        self._touched = True
        kind, shape, offset, value = self._head["large"][number]
        if offset is None:
            return read_array(memoryview(b""), [kind, shape, None, value])
        return read_array(self._part(f"large {number}"), [kind, shape, 0, None])

    def release(self) -> None:
        """Let go of the replicates that were read; they are read again where they are asked for."""
        if self._touched:
            self._touched = False
            self.parcel.release()

    def files(self, group: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of its files of a group, as :func:`keep` was given them."""
        part = self._part("files")
        for path, place, size in self._head["files"].get(group, ()):
            yield path, _unpacked(part[place : place + size])

    def record_lines(self) -> list[bytes]:
        """The records of its runs as text."""
        return _unpacked(self._part("records")).split(b"\n")


class KeptPlans(Mapping[str, dict[str, Any]]):
    """Plans by entry, read when something asks for them."""

    def __init__(self, shelves: Mapping[str, Shelf]) -> None:
        self._shelves = shelves

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._shelves[name].plan

    def __iter__(self) -> Iterator[str]:
        return iter(self._shelves)

    def __len__(self) -> int:
        return len(self._shelves)


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
    arms: tuple[Entry | None, Entry | None],
    head: dict[str, Any],
    files: Files,
) -> None:
    """Write the parcel of an entry.

    Args:
        key: names the parcel, and everything that it rests on.
        runs: of both arms, in order, each with its record.
        arms: the entry and its placebo arm.
        head: what :class:`Shelf` has as properties: name, plan, date, badge, submitter, panels.
        files: what rests on the entry alone.

    Raises:
        EnvironmentUnfit: it cannot be written.
    """
    if arms[0] is not None:
        keep_replicates(arms[0].evidence)
        arms[0].evidence.transfers = transfer_cells(arms[0])
    packer, compress = Packer(runs), zstandard.ZstdCompressor(level=LEVEL).compress
    packed = dict[str, Any]()
    for number, arm in enumerate(arms):
        packed |= {} if arm is None else _pack_arm(packer, number, arm)
    packed |= {name: head[name] for name in APART}
    contents, places = [], {}
    start = 0
    for group, by_path in files.items():
        for name, content in by_path.items():
            contents.append(compress(content))
            places.setdefault(group, []).append([name, start, len(contents[-1])])
            start += len(contents[-1])
    records = b"\n".join(run.record.model_dump_json().encode() for run in runs)
    rows, shared = _table(runs, head["folder"])
    whole = {name: part for name, part in head.items() if name not in ("folder", *APART)} | {
        "runs": rows,
        "shared": shared,
        "conditions": _conditions(runs),
        "arms": [None if arm is None else _known(packer, arm) for arm in arms],
        "brief": None if arms[0] is None else packer.pack_alone(make_brief(arms[0])),
        "has_plan": bool(head["plan"]),
        "small": packer.small.index,
        "large": packer.large.index,
        "files": places,
    }
    parts = {
        "head": compress(json.dumps(whole).encode()),
        **{name: compress(json.dumps(part).encode()) for name, part in packed.items()},
        "small": packer.small.content(),
        "records": compress(records),
        "files": b"".join(contents),
        **_large_parts(packer),
    }
    cache.put(key, parts)


def _large_parts(packer: Packer) -> dict[str, bytes]:
    """Large arrays, a part each: what is not asked for is not compared with its digest."""
    content, parts = packer.large.content(), {}
    for number, (kind, shape, offset, _) in enumerate(packer.large.index):
        if offset is not None:
            size = math.prod(shape) * np.dtype(kind).itemsize
            parts[f"large {number}"] = content[offset : offset + size]
    return parts


def _known(packer: Packer, arm: Entry) -> dict[str, Any]:
    """What is known of an arm without reading more."""
    bare = {name: None for name in REPLICATED}
    fields = {name: getattr(arm, name) for name in (*KNOWN, "task_names")}
    fields["axes"] = {axis: replace(score, **bare) for axis, score in arm.axes.items()}
    return {name: packer.pack_alone(field) for name, field in fields.items()}


def _pack_arm(packer: Packer, number: int, arm: Entry) -> dict[str, Any]:
    """The other fields of an arm and of its evidence, by the names of their parts."""
    fields = {
        f"arm {number} {group}": packer.pack_alone(tuple(getattr(arm, name) for name in names))
        for group, names in GROUPS.items()
    }
    fields |= {
        f"arm {number} replicates of {axis}": packer.pack_alone((score.drawn, score.spread))
        for axis, score in arm.axes.items()
    }
    evidence = packer.pack_evidence(arm.evidence)
    return fields | {f"evidence {number} {name}": part for name, part in evidence.items()}


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
