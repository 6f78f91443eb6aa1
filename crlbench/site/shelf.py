"""What is kept of one submitted entry: its numbers, its records, and the files that need no other.

Boards, rankings, pairs and all pages are made from such parcels, which
:mod:`crlbench.site.shelving` writes. What little asks for is read when something does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, get_type_hints
from weakref import WeakSet

import numpy as np

from crlbench.base.forms import form_of
from crlbench.contract.records import RunRecord, Status, Subject, TaskRef
from crlbench.contract.verification import Proof
from crlbench.disk.parcels import BadParcel, Parcel, plain_value, read_array, unpacked
from crlbench.site.briefs import FIELDS as BRIEF
from crlbench.site.briefs import Brief
from crlbench.verdict.axes import Axis, AxisScore
from crlbench.verdict.entry import Entry
from crlbench.verdict.kept_runs import KeptRun
from crlbench.verdict.packing import FIELDS, KeptEntry, KeptEvidence, KeptScore, Unpacker

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
    *("axes", "placebo", "mode", "wrong", "novelty", "checkpoint", "is_whole"),
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
ENTRY, SCORE = get_type_hints(Entry), get_type_hints(AxisScore)
"""What fields of an entry and of the score of an axis are."""
HEAD = {
    **{"name": str, "date": str, "submitter": str, "has_plan": bool, "badge": Proof | None},
    "conditions": list[list[str | int | None]],
    "runs": list[dict[str, Any]],
    "shared": dict[str, list[Any]],
    "arms": list[dict[str, Any] | None],
    "files": dict[str, list[list[str | int]]],
    **{"small": list[list[Any]], "large": list[list[Any]]},
}
"""What a parcel says of an entry before anything is unpacked."""
COLUMN = {
    **dict.fromkeys(("model", "recipe", "arm", "task", "version", "folder"), str),
    **dict.fromkeys(("seed", "completions"), int),
}
"""What is known of a run by itself."""
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


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
        self.parcel, self._folder, self._remake = parcel, folder, remake
        self._head: dict[str, Any] = plain_value(unpacked(parcel.part("head")))

    def check(self) -> None:
        """Read all that boards are made of; it is kept.

        Raises:
            BadParcel: the parcel is sound, and holds something else than an entry.
        """
        try:
            self._check_head()
            _ = (self.runs, self.arms, self.brief)
        except WRONG as error:
            raise BadParcel(f"{self.parcel.path}: holds no entry: {error!r}") from None

    def _check_head(self) -> None:
        if self.name != "/".join(self._folder.parts[-2:]):
            raise BadParcel(f"is of {self.name!r:.80}")
        _require(self._head, HEAD, "an entry")

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
        found = self._unpacker().unpack(self._head["brief"])
        if self._head["arms"][0] is not None or found is not None:
            _require(found, BRIEF, "the entry in short")
        return found

    @cached_property
    def panels(self) -> dict[str, Any]:
        """What of the entry's page is made of its records."""
        return self._read("panels")

    @cached_property
    def runs(self) -> tuple[KeptRun, ...]:
        """All runs of all arms, in order."""
        for columns in self._head["runs"]:
            _require(columns, COLUMN, "a run")
            if ".." in Path(columns["folder"]).parts or Path(columns["folder"]).is_absolute():
                raise BadParcel("a run lies elsewhere")
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
        real, *controls = (self._arm(number, arm) for number, arm in enumerate(self._head["arms"]))
        return real, *(arm for arm in controls if arm is not None)

    def _arm(self, number: int, known: dict[str, Any] | None) -> Entry | None:
        """An entry, whose numbers are read when something asks for them."""
        if known is None:
            return None
        fields = {name: self._unpacker().unpack(part) for name, part in known.items()}
        _require(fields, {name: ENTRY[name] for name in KNOWN}, "an entry")
        _require(fields, {"task_names": tuple[str, ...]}, "an entry")
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
        group, names = GROUP_OF[name], GROUPS[GROUP_OF[name]]
        parts = self._unpacker().unpack(self._read(f"arm {number} {group}"))
        fields = dict(zip(names, parts, strict=True))
        _require(fields, {name: ENTRY[name] for name in names}, "an entry")
        return fields

    def _read_replicates(self, number: int, axis: Axis, _: str) -> dict[str, Any]:
        """The replicates of an arm's headline."""
        drawn, spread = self._unpacker().unpack(self._read(f"arm {number} replicates of {axis}"))
        fields = {"drawn": drawn, "spread": spread}
        _require(fields, {name: SCORE[name] for name in fields}, "a score")
        return fields

    def _read_evidence(self, number: int, name: str) -> Mapping[str, Any]:
        """A field of the evidence of an arm, with those that are read with it."""
        place = FIELDS.get(name, name)
        return self._unpacker().unpack_field(place, self._read(f"evidence {number} {place}"))

    def _read(self, name: str) -> Any:
        return plain_value(unpacked(self._part(name)))

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
        _touched.add(self)
        kind, shape, offset, value = self._head["large"][number]
        if offset is None:
            return read_array(memoryview(b""), [kind, shape, None, value])
        return read_array(self._part(f"large {number}"), [kind, shape, 0, None])

    def files(self, group: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of its files of a group, as :func:`keep` was given them."""
        part = self._part("files")
        for path, place, size in self._head["files"].get(group, ()):
            yield path, unpacked(part[place : place + size])

    def record_lines(self) -> list[bytes]:
        """The records of its runs as text."""
        return unpacked(self._part("records")).split(b"\n")


_touched: WeakSet[Shelf] = WeakSet()
"""Shelves whose large arrays were read."""


def release_shelves() -> None:
    """Let go of the replicates that were read; they are read again where they are asked for."""
    for shelf in list(_touched):
        shelf.parcel.release()
    _touched.clear()


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


def _require(values: Any, forms: Mapping[str, Any], what: str) -> None:
    """Refuse values by name that are not as they were kept.

    Args:
        forms: an annotation by name.

    Raises:
        BadParcel: they are something else.
    """
    for name, form in forms.items():
        known = isinstance(values, Mapping) and name in values
        if not known or not form_of(form)(values[name]):
            raise BadParcel(f"{name} of {what} is not as it was kept")


@lru_cache(maxsize=2)
def _lines(shelf: Shelf) -> list[bytes]:
    return shelf.record_lines()


@lru_cache(maxsize=RECORDS)
def _record(shelf: Shelf, number: int) -> RunRecord:
    """A record of a shelf; it was checked when it was put there, and the parcel has digests."""
    return RunRecord.model_validate_json(_lines(shelf)[number])
