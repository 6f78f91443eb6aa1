"""Entries as plain data and arrays, and back: what a board computed once is kept so.

Plain data is what JSON knows. A list stands for an object and begins with a letter, or with the
number of a class in :data:`CLASSES`; only these classes come back, without a call to any of their
code. Runs are numbers: whoever unpacks has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from crlbench.disk.parcels import ArrayWriter, BadParcel
from crlbench.stats.correlations import Correlation
from crlbench.stats.generalization import (
    Forgetting,
    ModelGeneralization,
    RunGeneralization,
    Templates,
)
from crlbench.stats.intervals import Interval, Replicates
from crlbench.stats.measures import Curve, Honesty, ItemTable, SplitMeasure
from crlbench.stats.novelty import Novelty
from crlbench.stats.pass_at_k import PassAtK
from crlbench.stats.profiles import Profile
from crlbench.stats.stability import ModelStability, RunStability, TaskStability
from crlbench.stats.stability_shares import TaskStress
from crlbench.stats.thresholds import Arrival
from crlbench.stats.tiers import Leader, Ranking, Standing
from crlbench.verdict.axes import Axis, AxisScore, Estimate, Evidence, Generalization
from crlbench.verdict.board import Improvement
from crlbench.verdict.census import vanished
from crlbench.verdict.efficiency import Efficiency, Speed, TaskEfficiency
from crlbench.verdict.entry import Entry, Placebo
from crlbench.verdict.entry_novelty import EntryNovelty
from crlbench.verdict.pairs import Effect, Pair, PairAxis
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.run_measures import RunMeasure
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import SeedCurve, TaskRuns
from crlbench.verdict.task_summary import SeedSummary, SplitSummary, TaskSummary

CLASSES: tuple[type, ...] = (
    *(Entry, Placebo, Estimate, AxisScore, Generalization),
    *(TaskRuns, SeedCurve, RunMeasure, Curve, SplitMeasure, Honesty, ItemTable),
    *(TaskSummary, SeedSummary, SplitSummary),
    *(Efficiency, TaskEfficiency, Speed, Profile, Arrival),
    *(ModelStability, TaskStability, RunStability),
    *(ModelGeneralization, RunGeneralization, Forgetting, Templates),
    *(Interval, Replicates),
    *(Pair, PairAxis, Effect),
    *(AxisRanking, Ranking, Standing, Leader, Improvement),
    *(EntryNovelty, Novelty, PassAtK, Correlation, TaskStress),
)
"""Dataclasses that entries, pairs and rankings are made of."""
_FIELDS = tuple(tuple(field.name for field in dataclasses.fields(kind)) for kind in CLASSES)
_NUMBERS = {kind: number for number, kind in enumerate(CLASSES)}
_PLAIN = {str, int, float, bool, type(None)}
LARGE = 2**15
"""Arrays of this many bytes stand apart: few pages need them."""


class Packer:
    """Turns entries into plain data; arrays are collected beside it.

    The evidence of an entry is most of it and seldom asked for. It is packed by itself, with
    :meth:`pack_evidence`, and a number stands in its place.
    """

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        """
        Args:
            runs: that the entries were made of, in the order in which they are kept.
        """
        self.small, self.large = ArrayWriter(), ArrayWriter()
        self.evidence: list[Evidence] = []
        """Met so far, by their numbers."""
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
        if kind is Evidence:
            self.evidence.append(value)
            return ["e", len(self.evidence) - 1]
        raise TypeError(f"{kind.__name__} is not kept")

    def pack_evidence(self, evidence: Evidence) -> Any:
        """Plain data of the evidence of an entry, which refers to no other."""
        self._known, self._objects = {}, []
        fields = (evidence.tasks, evidence.prefix, evidence.count, evidence.seed)
        packed = [*map(self.pack, fields)]
        return [*packed, self._by_tuple(evidence.kept), self._by_tuple(evidence.transfers)]

    def _by_tuple(self, parts: Mapping[tuple[Any, ...], Any] | None) -> list[Any] | None:
        return parts and [[[*key], self.pack(part)] for key, part in parts.items()]

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


class KeptEvidence(Evidence):
    """Evidence that is read when something asks for it."""

    def __init__(self, key: str, load: Callable[[], Evidence]) -> None:
        """
        Args:
            key: names everything that it rests on.
            load: reads it.
        """
        self.key, self._load = key, load

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        loaded = {field: part for field, part in vars(self._load()).items() if field != "key"}
        self.__dict__.update(loaded)
        if name not in loaded:
            raise AttributeError(name)
        return loaded[name]


class Unpacker:
    """Turns plain data into entries again.

    Args:
        runs: the run of a number.
        vanished: the run that stands for one without a record, from a sibling's number and the
            index of its seed.
        small, large: the array of a number.
        evidence: the evidence of a number.
    """

    def __init__(
        self,
        runs: Callable[[int], Run],
        vanished: Callable[[int, int], Run],
        small: Callable[[int], np.ndarray],
        large: Callable[[int], np.ndarray],
        evidence: Callable[[int], Evidence],
    ) -> None:
        self._objects: list[Any] = []
        self._large: dict[int, np.ndarray] = {}
        self._by_letter: dict[str, Callable[..., Any]] = {
            "t": lambda *parts: tuple(self._all(parts)),
            "l": lambda *parts: self._all(parts),
            "d": lambda pairs: {key: self.unpack(part) for key, part in pairs},
            "a": small,
            "A": lambda number: self._large.setdefault(number, large(number)),
            "o": self._objects.__getitem__,
            "r": runs,
            "v": vanished,
            "e": evidence,
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
            made = object.__new__(CLASSES[number])
            # As a frozen dataclass sets its fields, at once.
            made.__dict__.update(zip(_FIELDS[number], self._all(value[1:]), strict=True))
            self._objects.append(made)
            return made
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadParcel(f"an entry is not as it was kept: {error}") from None

    def _all(self, parts: Sequence[Any]) -> list[Any]:
        return [self.unpack(part) if type(part) is list else part for part in parts]

    def unpack_evidence(self, packed: Any) -> Evidence:
        """The evidence that :meth:`Packer.pack_evidence` was given."""
        self._objects.clear()
        *fields, kept, transfers = packed
        evidence = Evidence(*map(self.unpack, fields))
        evidence.kept = KeptReplicates({tuple(key): part for key, part in kept or ()}, self)
        if transfers is not None:
            evidence.transfers = {tuple(key): self.unpack(part) for key, part in transfers}
        return evidence

    def unpack_alone(self, packed: Any) -> Any:
        """As :meth:`unpack`, of a value that shares nothing with any other."""
        self._objects.clear()
        self._large.clear()
        return self.unpack(packed)


def unpack_plain(packed: Any) -> Any:
    """A value without runs, arrays and evidence.

    Raises:
        BadParcel: as :meth:`Unpacker.unpack`, or it holds one of them.
    """
    return Unpacker(_nothing, _nothing, _nothing, _nothing, _nothing).unpack(packed)


def _nothing(*_: int) -> Any:
    raise IndexError("a run, an array or evidence stands where none is kept")


class KeptReplicates(Mapping[tuple[Axis, str, int], Replicates]):
    """Replicates that are read whenever something asks for them, and stay nowhere."""

    def __init__(self, packed: Mapping[Any, Any], unpacker: Unpacker) -> None:
        self._packed, self._unpacker = packed, unpacker

    def __getitem__(self, key: tuple[Axis, str, int]) -> Replicates:
        return self._unpacker.unpack_alone(self._packed[key])

    def __iter__(self) -> Iterator[tuple[Axis, str, int]]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
