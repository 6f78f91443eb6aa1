"""Packing: an entry that comes back is the one that was packed, array by array."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench.disk.parcels import BadParcel, read_array
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.packing import (
    FIELDS,
    KeptEntry,
    KeptEvidence,
    Packer,
    Unpacker,
    unpack_plain,
)
from crlbench.verdict.pairs import compare_pair
from crlbench.verdict.plain_data import plain
from tests.support.simulate import Plan, write_board

REPLICATES = 5_000
"""So many that replicates are large arrays."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("packing")
    return load_runs(write_board(root, Plan("tiny-a"), Plan("tiny-b", slope=0.9)))


@pytest.fixture(scope="module")
def board(runs: Runs) -> Board:
    return summarise_board(runs, REPLICATES)


def through_json(entry: Entry, runs: Runs) -> Entry:
    """The entry with every field read by itself, when it is asked for."""
    packer = Packer(runs.runs)
    names = [field.name for field in dataclasses.fields(Entry) if field.name != "evidence"]
    fields = {name: packer.pack_alone(getattr(entry, name)) for name in names}
    packed = json.loads(json.dumps(fields))
    evidence = json.loads(json.dumps(packer.pack_evidence(entry.evidence)))
    parts = {"small": packer.small, "large": packer.large}

    def array(size: str, number: int) -> np.ndarray:
        return read_array(memoryview(parts[size].content()), parts[size].index[number])

    def unpacker() -> Unpacker:
        return Unpacker(
            runs=runs.runs.__getitem__,
            vanished=lambda *_: pytest.fail("no run vanished"),
            small=lambda number: array("small", number),
            large=lambda number: array("large", number),
        )

    def read(name: str) -> Mapping[str, Any]:
        return unpacker().unpack_field(FIELDS.get(name, name), evidence[FIELDS.get(name, name)])

    known = {"evidence": KeptEvidence("key", read), "_task_names": entry.task_names}
    return KeptEntry.of(known, lambda name: {name: unpacker().unpack(packed[name])})


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal to the last bit, arrays within them too."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "__dict__") and not hasattr(one, "record"):
        return type(one) is type(other) and alike(vars(one), vars(other))
    return bool(one == other)


def test_an_entry_comes_back_whole(board: Board, runs: Runs) -> None:
    for entry in board.entries:
        back = through_json(entry, runs)
        assert plain(back) == plain(entry)
        assert back.summary() == entry.summary()
        for axis, score in entry.axes.items():
            assert alike(back.axes[axis].drawn, score.drawn)
            assert alike(back.axes[axis].spread, score.spread)
        assert alike(back.evidence.tasks, entry.evidence.tasks)
        for task, part in itertools.product(entry.task_names, (*entry.axes, "parts")):
            columns = back.evidence.seeds(part, task)
            assert columns is not None and alike(columns, entry.evidence.seeds(part, task))
        assert back.evidence.prefix == entry.evidence.prefix


def test_replicates_come_back_with_what_is_one_in_them(board: Board, runs: Runs) -> None:
    entry = board.entries[0]
    task = entry.stability.rated[0]
    n = len(entry.evidence.tasks[task].measures)
    axes = ("efficiency", "stability", "generalization")
    made = {(axis, task, n): entry.evidence.replicates(axis, task) for axis in axes}
    entry.evidence.kept = made
    back = through_json(entry, runs).evidence
    entry.evidence.kept = {}
    assert {*back.kept} == {*made}
    assert all(alike(back.kept[key], part) for key, part in made.items())
    part = back.replicates("stability", task)
    assert part.drawn is part.seeds


def test_a_part_of_an_entry_that_came_back_is_made_as_of_any_other(
    board: Board, runs: Runs
) -> None:
    entry = board.entries[0]
    back = through_json(entry, runs)
    one, other = (dataclasses.replace(whole, tasks=whole.tasks[:1]) for whole in (back, entry))
    assert one.task_names == other.task_names != entry.task_names
    assert plain(one) == plain(other)
    for nothing in (back, back.evidence, one):
        with pytest.raises(AttributeError):
            _ = nothing.no_field


def test_a_pair_of_entries_that_came_back_is_the_same(board: Board, runs: Runs) -> None:
    first, second = board.entries
    pair = compare_pair(first, second)
    assert compare_pair(*(through_json(entry, runs) for entry in (first, second))) == pair
    packed = json.loads(json.dumps(Packer().pack(pair)))
    assert unpack_plain(packed) == pair


def test_a_ranking_comes_back(board: Board) -> None:
    for ranking in board.rankings["ppo"].values():
        assert unpack_plain(json.loads(json.dumps(Packer().pack(ranking)))) == ranking


@pytest.mark.parametrize("packed", [["x", 1], [999, 1], ["o", 3], ["r", 0], [0, 1], ["a", 0]])
def test_other_data_is_refused(packed: Any) -> None:
    with pytest.raises(BadParcel):
        unpack_plain(packed)


def test_an_object_of_another_class_is_not_packed() -> None:
    with pytest.raises(TypeError, match="Path is not kept|PosixPath is not kept"):
        Packer().pack({"where": Path("/")})
