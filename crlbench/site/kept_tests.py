"""Tests of all pairs of a recipe, kept for a build in which more entries stand beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crlbench.disk.hashing import digest
from crlbench.disk.parcels import ArrayWriter, BadParcel, Parcel, read_array
from crlbench.site.cache import Cache
from crlbench.stats.step_down import Measured, Stairs
from crlbench.stats.swaps import Tested
from crlbench.verdict.board import Ranked

FEWEST = 20
"""Entries; 190 pairs of fewer are computed in a tenth of a second."""
COLUMNS = ("shared", "difference", "square", "t", "raw", "adjusted")
"""Arrays of a test."""
STAIRS = ("starts", "columns", "values")
"""Arrays of how its largest statistics grow."""


class KeptTests:
    """Keeps the last test of one axis of a recipe: :class:`crlbench.verdict.ranking.Tests`."""

    def __init__(self, cache: Cache, results: str, ranked: Ranked) -> None:
        """
        Args:
            results: names the folder of results.
            ranked: its entries are on one board, and all of them are kept.
        """
        self._cache = cache
        entries = ranked.entries
        self._keys = {entry.name: entry.evidence.key for entry in entries}
        given = [results, ranked.axis, ranked.recipe, ranked.replicates]
        self._name = f"test-{digest(given)}"

    def before(self, names: Sequence[str]) -> tuple[Tested, np.ndarray] | None:
        """The last test, where all its entries are among these, in the same order."""
        if len(names) < FEWEST or (parcel := self._cache.find(self._name)) is None:
            return None
        place = {self._keys[name]: number for number, name in enumerate(names)}
        try:
            keys, tested = _read(parcel)
            places = np.array([place[key] for key in keys])
        except (BadParcel, LookupError, TypeError, ValueError, RecursionError):
            return None
        pairs = len(places) * (len(places) - 1) // 2
        whole = len(tested.measured.shared) == pairs and bool((np.diff(places) > 0).all())
        return (tested, places) if whole else None

    def keep(self, names: Sequence[str], tested: Tested) -> None:
        """Put a test in place of the last one.

        Raises:
            EnvironmentUnfit: it cannot be written.
        """
        if len(names) >= FEWEST:
            self._cache.put(self._name, _parts([self._keys[name] for name in names], tested))


def _parts(keys: Sequence[str], tested: Tested) -> Mapping[str, bytes]:
    arrays, found = ArrayWriter(), tested.measured
    for name in COLUMNS:
        arrays.add(getattr(found, name))
    for name in STAIRS:
        arrays.add(getattr(found.stairs, name))
    index = {
        "keys": keys,
        "tasks": tested.tasks,
        "columns": tested.columns,
        "nothing": tested.nothing,
        "critical": found.critical,
        "arrays": arrays.index,
    }
    return {"index": json.dumps(index).encode(), "arrays": arrays.content()}


def _read(parcel: Parcel) -> tuple[list[str], Tested]:
    """Keys of the entries, and their test."""
    index: dict[str, Any] = json.loads(bytes(parcel.part("index")))
    arrays = [read_array(parcel.part("arrays"), entry) for entry in index["arrays"]]
    stairs = Stairs(**dict(zip(STAIRS, arrays[len(COLUMNS) :], strict=True)))
    columns = dict(zip(COLUMNS, arrays, strict=False))
    measured = Measured(critical=index["critical"], stairs=stairs, **columns)
    tasks = tuple((name, size) for name, size in index["tasks"])
    return index["keys"], Tested(tasks, index["columns"], index["nothing"], measured)
