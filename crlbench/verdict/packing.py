"""Entries as plain data and arrays, and back: what a board computed once is kept so.

Plain data is what JSON knows. A list stands for an object and begins with a letter, or with the
number of a class in :data:`CLASSES`; only these classes come back, without a call to any of their
code. Runs are numbers: whoever unpacks has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from crlbench.base.forms import fields_of, form_of
from crlbench.disk.parcels import ArrayWriter, BadParcel
from crlbench.stats.correlations import Correlation
from crlbench.stats.generalization import (
    Forgetting,
    ModelGeneralization,
    RunGeneralization,
    Templates,
)
from crlbench.stats.intervals import Interval, IntervalRule, Replicates
from crlbench.stats.measures import Curve, Honesty, ItemTable, SplitMeasure
from crlbench.stats.novelty import Novelty
from crlbench.stats.pass_at_k import PassAtK
from crlbench.stats.profiles import Profile
from crlbench.stats.stability import ModelStability, RunStability, TaskStability
from crlbench.stats.stability_shares import TaskStress
from crlbench.stats.thresholds import Arrival
from crlbench.stats.tiers import Leader, Ranking, Standing
from crlbench.verdict.axes import AXES, Axis, AxisScore, Estimate, Evidence, Generalization
from crlbench.verdict.blind import BlindGain
from crlbench.verdict.cells import vanished
from crlbench.verdict.charged import Charged
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_ranking import AxisDesigns, TaskRanks
from crlbench.verdict.design_rows import CheckpointScore, DesignRow
from crlbench.verdict.design_spread import DesignSpread, SpreadPart
from crlbench.verdict.discovery import Discovery
from crlbench.verdict.efficiency import Efficiency, Speed, TaskEfficiency
from crlbench.verdict.entry import Control, Entry
from crlbench.verdict.entry_novelty import EntryNovelty
from crlbench.verdict.improvements import Improvement
from crlbench.verdict.pairs import Effect, Pair, PairAxis
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.run_measures import RunMeasure
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import SeedCurve, TaskRuns
from crlbench.verdict.task_summary import SeedSummary, SplitSummary, TaskSummary

SEEDS: tuple[Axis | Literal["parts"], ...] = (*AXES, "parts")
"""What of all runs of a task is kept as columns."""
FIELDS = dict.fromkeys(("prefix", "count", "seed", "weights", "interval"), "draws")
"""Fields of evidence by the names under which they lie, where these differ."""
CLASSES: tuple[type, ...] = (
    *(Entry, Control, Estimate, AxisScore, Generalization),
    *(TaskRuns, SeedCurve, RunMeasure, Curve, SplitMeasure, Honesty, ItemTable),
    *(TaskSummary, SeedSummary, SplitSummary),
    *(Efficiency, TaskEfficiency, Speed, Profile, Arrival),
    *(ModelStability, TaskStability, RunStability),
    *(ModelGeneralization, RunGeneralization, Forgetting, Templates),
    *(Interval, Replicates),
    *(Pair, PairAxis, Effect),
    *(AxisRanking, Ranking, Standing, Leader, Improvement),
    *(EntryNovelty, Novelty, PassAtK, Correlation, TaskStress),
    *(AxisDesigns, DesignRow, CheckpointScore, DesignPair, Discovery, TaskRanks),
    *(DesignSpread, SpreadPart),
    *(BlindGain, Charged),
)
"""Dataclasses that entries, pairs and rankings are made of."""
_FIELDS = tuple(tuple(field.name for field in dataclasses.fields(kind)) for kind in CLASSES)
EVIDENCE = {
    "tasks": dict[str, TaskRuns],
    "prefix": dict[str, int],
    "count": int,
    "seed": int,
    "weights": tuple[float, ...],
    "interval": IntervalRule,
    "columns": dict[tuple[str, str], np.ndarray] | None,
    "transfers": dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] | None,
}
"""What fields of evidence are once they are read; replicates are looked at one by one."""
_NUMBERS = {kind: number for number, kind in enumerate(CLASSES)}
_PLAIN = {str, int, float, bool, type(None)}
LARGE = 2**15
"""Arrays of this many bytes stand apart: few pages need them."""


class Packer:
    """Turns entries into plain data; arrays are collected beside it.

    Fields of an entry are packed one by one, with :meth:`pack_alone`, where they are to be read so.
    Its evidence, which is most of it and seldom asked for, is packed with :meth:`pack_evidence`.
    """

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        """
        Args:
            runs: that the entries were made of, in the order in which they are kept.
        """
        self.small, self.large = ArrayWriter(), ArrayWriter()
        self._runs = {run.record.record_id: number for number, run in enumerate(runs)}
        self._known: dict[int, int] = {}
        self._objects: list[Any] = []

    def pack(self, value: Any) -> Any:
        """Plain data.

        Raises:
            TypeError: a value of no kind that is kept.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _NUMBERS:
            return self._object(value)
        if kind is tuple or kind is list:
            letter = "t" if kind is tuple else "l"
            return [letter, *map(self.pack, value)]
        if kind is dict:
            return ["d", [[self.pack(key), self.pack(part)] for key, part in value.items()]]
        if isinstance(value, np.ndarray):
            large = value.nbytes >= LARGE
            return ["A" if large else "a", (self.large if large else self.small).add(value)]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Run):
            return self._run(value)
        raise TypeError(f"{kind.__name__} is not kept")

    def pack_alone(self, value: Any) -> Any:
        """As :meth:`pack`, and what comes of it refers to no other."""
        self._known, self._objects = {}, []
        return self.pack(value)

    def pack_evidence(self, evidence: Evidence) -> dict[str, Any]:
        """Plain data of the evidence of an entry, by field; none refers to another."""
        return {
            "tasks": self.pack_alone(evidence.tasks),
            "columns": self._by_tuple(_columns(evidence)),
            "kept": self._by_tuple(evidence.kept),
            "transfers": self._by_tuple(evidence.transfers),
            "draws": [
                self.pack_alone(evidence.prefix),
                *(evidence.count, evidence.seed, list(evidence.weights), evidence.interval),
            ],
        }

    def _by_tuple(self, parts: Mapping[tuple[Any, ...], Any] | None) -> list[Any] | None:
        return parts and [[[*key], self.pack_alone(part)] for key, part in parts.items()]

    def _object(self, value: Any) -> list[Any]:
        """An object; one that stands in several places is written once."""
        if id(value) in self._known:
            return ["o", self._known[id(value)]]
        number = _NUMBERS[type(value)]
        packed = [number, *(self.pack(getattr(value, name)) for name in _FIELDS[number])]
        self._known[id(value)] = len(self._objects)
        self._objects.append(value)
        return packed

    def _run(self, run: Run) -> list[Any]:
        number = self._runs[run.record.record_id]
        return ["v", number, run.seed] if vanished(run) else ["r", number]


def _columns(evidence: Evidence) -> dict[tuple[str, str], np.ndarray]:
    """What :meth:`Evidence.seeds` gives, by its arguments."""
    found = {(part, task): evidence.seeds(part, task) for part in SEEDS for task in evidence.tasks}
    return {key: column for key, column in found.items() if column is not None}


class KeptEvidence(Evidence):
    """Evidence that is read, field by field, when something asks for it."""

    def __init__(self, key: str, load: Callable[[str], Mapping[str, Any]]) -> None:
        """
        Args:
            key: names everything that it rests on.
            load: reads the field of a name, and others that lie beside it; LookupError: there is
                none.
        """
        self.key, self._load = key, load

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _load_field(self, name)

    def seeds(self, part: Axis | Literal["parts"], task: str) -> np.ndarray | None:
        return self.columns.get((part, task))


class KeptEntry(Entry):
    """An entry whose numbers are read, field by field, when something asks for them."""

    @staticmethod
    def of(fields: Mapping[str, Any], load: Callable[[str], Mapping[str, Any]]) -> KeptEntry:
        """
        Args:
            fields: what is known of it, ``_task_names`` among them.
            load: as for :class:`KeptEvidence`.
        """
        made = object.__new__(KeptEntry)
        made.__dict__.update(fields, _load=load)
        return made

    @property
    def task_names(self) -> tuple[str, ...]:
        return self.__dict__.get("_task_names") or super().task_names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _load_field(self, name)


class KeptScore(AxisScore):
    """The headline of an axis whose replicates are read when something asks for them."""

    @staticmethod
    def of(score: AxisScore, load: Callable[[str], Mapping[str, Any]]) -> KeptScore:
        """
        Args:
            score: without replicates.
            load: as for :class:`KeptEvidence`.
        """
        made = object.__new__(KeptScore)
        made.__dict__.update(vars(score), _load=load)
        for name in REPLICATED:
            del made.__dict__[name]
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in REPLICATED:
            raise AttributeError(name)
        return _load_field(self, name)


REPLICATED = ("drawn", "spread")
"""Fields of a score that are replicates."""


def _load_field(of: KeptEvidence | KeptEntry | KeptScore, name: str) -> Any:
    try:
        loaded = of._load(name)
    except LookupError:
        raise AttributeError(name) from None
    of.__dict__.update(loaded)
    return loaded[name]


class Unpacker:
    """Turns plain data into entries again.

    Args:
        runs: the run of a number.
        vanished: the run that stands for one without a record, from a sibling's number and the
            index of its seed.
        small, large: the array of a number.
    """

    def __init__(
        self,
        runs: Callable[[int], Run],
        vanished: Callable[[int, int], Run],
        small: Callable[[int], np.ndarray],
        large: Callable[[int], np.ndarray],
    ) -> None:
        self._objects: list[Any] = []
        self._large: dict[int, np.ndarray] = {}
        self._by_letter: dict[str, Callable[..., Any]] = {
            "t": lambda *parts: tuple(self._all(parts)),
            "l": lambda *parts: self._all(parts),
            "d": lambda pairs: {key: self.unpack(part) for key, part in pairs},
            "a": lambda number: small(_place(number)),
            "A": lambda number: self._large.setdefault(number, large(_place(number))),
            "o": lambda number: self._objects[_place(number)],
            "r": lambda number: runs(_place(number)),
            "v": lambda number, index: vanished(_place(number), index),
        }

    def unpack(self, value: Any) -> Any:
        """The value that :meth:`Packer.pack` was given.

        Raises:
            BadParcel: the data is not as it was packed.
        """
        if type(value) is not list:
            return value
        try:
            number = value[0]
            if type(number) is not int:
                return self._by_letter[number](*value[1:])
            kind = CLASSES[_place(number)]
            made = object.__new__(kind)
            # As a frozen dataclass sets its fields, at once.
            made.__dict__.update(zip(_FIELDS[number], self._all(value[1:]), strict=True))
            for name, fits in fields_of(kind):
                if not fits(made.__dict__[name]):
                    raise BadParcel(f"{name} of a {kind.__name__} is not as it was kept")
            self._objects.append(made)
            return made
        except BadParcel:
            raise
        except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            raise BadParcel(f"an entry is not as it was kept: {error}") from None

    def _all(self, parts: Sequence[Any]) -> list[Any]:
        return [self.unpack(part) if type(part) is list else part for part in parts]

    def unpack_field(self, name: str, packed: Any) -> Mapping[str, Any]:
        """A field of evidence by name, with others that lie beside it.

        Args:
            packed: what :meth:`Packer.pack_evidence` gave under the name.

        Raises:
            BadParcel: the data is not as it was packed.
        """
        try:
            fields = self._fields(name, packed)
        except BadParcel:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadParcel(f"evidence is not as it was kept: {error}") from None
        for field, value in fields.items():
            if field in EVIDENCE and not form_of(EVIDENCE[field])(value):
                raise BadParcel(f"{field} of evidence is not as it was kept")
        return fields

    def _fields(self, name: str, packed: Any) -> Mapping[str, Any]:
        if name == "draws":
            prefix, count, seed, weights, interval = packed
            found = {"count": count, "seed": seed, "weights": tuple(weights), "interval": interval}
            return {"prefix": self.unpack_alone(prefix)} | found
        if name == "tasks":
            return {name: self.unpack_alone(packed)}
        pairs = {tuple(key): part for key, part in packed or ()}
        if name == "kept":
            return {name: KeptReplicates(pairs, self)}
        if packed is None:
            return {name: None}
        return {name: {key: self.unpack_alone(part) for key, part in pairs.items()}}

    def unpack_alone(self, packed: Any) -> Any:
        """As :meth:`unpack`, of a value that shares nothing with any other."""
        self._objects.clear()
        self._large.clear()
        return self.unpack(packed)


def unpack_plain(packed: Any) -> Any:
    """A value without runs and arrays.

    Raises:
        BadParcel: as :meth:`Unpacker.unpack`, or it holds one of them.
    """
    return Unpacker(_nothing, _nothing, _nothing, _nothing).unpack(packed)


def _place(number: Any) -> int:
    """A number as the place of something in a list."""
    if type(number) is not int or number < 0:
        raise BadParcel(f"{number!r:.40} is no place in a list")
    return number


def _nothing(*_: int) -> Any:
    raise IndexError("a run or an array stands where none is kept")


class KeptReplicates(Mapping[tuple[Axis, str, int], Replicates]):
    """Replicates that are read whenever something asks for them, and stay nowhere."""

    def __init__(self, packed: Mapping[Any, Any], unpacker: Unpacker) -> None:
        self._packed, self._unpacker = packed, unpacker

    def __getitem__(self, key: tuple[Axis, str, int]) -> Replicates:
        found = self._unpacker.unpack_alone(self._packed[key])
        if not isinstance(found, Replicates):
            raise BadParcel("replicates are not as they were kept")
        return found

    def __iter__(self) -> Iterator[tuple[Axis, str, int]]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
