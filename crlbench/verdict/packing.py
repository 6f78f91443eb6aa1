"""Entries as plain data and arrays, and back: what a board computed once is kept so.

Plain data is what JSON knows. A list stands for an object and begins with a letter, or with the
number of a class in :data:`CLASSES`; only these classes come back, without a call to any of their
code. Runs are numbers: whoever unpacks has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crlbench.disk.parcels import ArrayWriter, BadParcel
from crlbench.stats.generalization import (
    Forgetting,
    ModelGeneralization,
    RunGeneralization,
    Templates,
)
from crlbench.stats.intervals import Interval, Replicates
from crlbench.stats.measures import Curve, Honesty, ItemTable, SplitMeasure
from crlbench.stats.profiles import Profile
from crlbench.stats.stability import ModelStability, RunStability, TaskStability
from crlbench.stats.thresholds import Arrival
from crlbench.verdict.axes import AxisScore, Estimate, Evidence, Generalization
from crlbench.verdict.census import vanished
from crlbench.verdict.efficiency import Efficiency, Speed, TaskEfficiency
from crlbench.verdict.entry import Entry, Placebo
from crlbench.verdict.pairs import Effect, Pair, PairAxis
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
)
"""Dataclasses that an entry and a pair of entries are made of."""
_FIELDS = tuple(tuple(field.name for field in dataclasses.fields(kind)) for kind in CLASSES)
_NUMBERS = {kind: number for number, kind in enumerate(CLASSES)}
_PLAIN = {str, int, float, bool, type(None)}
LARGE = 2**15
"""Arrays of this many bytes stand apart: few pages need them."""


class Packer:
    """Turns entries into plain data; arrays are collected beside it.

    Args:
        runs: that the entries were made of, in the order in which they are kept.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
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
        if kind is Evidence:
            fields = map(self.pack, (value.tasks, value.prefix, value.count, value.seed))
            return ["e", *fields, *map(self._by_tuple, (value.kept, value.transfers))]
        raise TypeError(f"{kind.__name__} is not kept")

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
        self._by_letter: dict[str, Callable[..., Any]] = {
            "t": lambda *parts: tuple(self._all(parts)),
            "l": lambda *parts: self._all(parts),
            "d": lambda pairs: {key: self.unpack(part) for key, part in pairs},
            "a": small,
            "A": large,
            "o": self._objects.__getitem__,
            "r": runs,
            "v": vanished,
            "e": self._evidence,
        }

    def unpack(self, value: Any) -> Any:
        """The value that :meth:`Packer.pack` was given.

        Raises:
            BadParcel: the data is not as it was packed.
        """
        if type(value) is not list:
            return value
        number = value[0]
        if type(number) is int:
            made = object.__new__(CLASSES[number])
            # As a frozen dataclass sets its fields, at once.
            made.__dict__.update(zip(_FIELDS[number], self._all(value[1:]), strict=True))
            self._objects.append(made)
            return made
        try:
            return self._by_letter[number](*value[1:])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadParcel(f"an entry is not as it was kept: {error}") from None

    def _all(self, parts: Sequence[Any]) -> list[Any]:
        return [self.unpack(part) if type(part) is list else part for part in parts]

    def _evidence(self, *parts: Any) -> Evidence:
        *fields, kept, transfers = parts
        evidence = Evidence(*map(self.unpack, fields))
        evidence.kept = self._by_key(kept or ())
        evidence.transfers = None if transfers is None else self._by_key(transfers)
        return evidence

    def _by_key(self, pairs: Sequence[Any]) -> dict[Any, Any]:
        return {tuple(key): self.unpack(part) for key, part in pairs}
