"""Tests of pairs that are kept: a ranking of more entries is the one that is computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crlbench.site import kept_tests
from crlbench.site.cache import Cache
from crlbench.site.kept_tests import KeptTests
from crlbench.stats.swaps import _Pairs
from crlbench.verdict.axes import AXES, Axis
from crlbench.verdict.board import Ranked, summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from tests.support.simulate import Plan, write_board

REPLICATES = 400


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Entry]:
    plans = [Plan(f"tiny-{name}", slope=0.7 + 0.1 * n, seeds=5) for n, name in enumerate("abcde")]
    board = summarise_board(load_runs(write_board(tmp_path_factory.mktemp("kept"), *plans)), 400)
    for entry in board.entries:
        entry.evidence.key = f"key of {entry.name}"
    return [replace(entry, standing="provisional") for entry in board.entries]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tests, "FEWEST", 2)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the pairs that were computed."""
    pairs: list[int] = []
    call = _Pairs.__call__

    def watched(self: _Pairs, some: np.ndarray, out: np.ndarray) -> list:
        pairs.extend(some)
        return call(self, some, out)

    monkeypatch.setattr(_Pairs, "__call__", watched)
    return pairs


def ranked(axis: Axis, entries: Sequence[Entry]) -> Ranked:
    return Ranked(axis, "ppo", entries, None, REPLICATES)


def kept_of(cache: Cache, one: Ranked) -> KeptTests:
    return KeptTests(cache, "results of board", one)


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("new", [0, 2, 4])
def test_a_ranking_with_a_new_entry_is_the_one_made_anew(
    entries: Sequence[Entry], tmp_path: Path, computed: list[int], axis: Axis, new: int
) -> None:
    cache, old = Cache(tmp_path), [one for n, one in enumerate(entries) if n != new]
    fewer, whole = ranked(axis, old), ranked(axis, entries)
    assert fewer.rank(kept_of(cache, fewer)) == fewer.rank()
    wanted = whole.rank()
    assert wanted.ranking.reason is None
    computed.clear()
    assert whole.rank(kept_of(cache, whole)) == wanted
    first, second = np.triu_indices(len(entries), 1)
    assert sorted(computed) == np.flatnonzero((first == new) | (second == new)).tolist()
    computed.clear()
    assert whole.rank(kept_of(cache, whole)) == wanted
    assert computed == []


def test_a_test_of_an_entry_that_is_gone_or_elsewhere_is_not_taken(
    entries: Sequence[Entry], tmp_path: Path
) -> None:
    cache, whole = Cache(tmp_path), ranked("efficiency", entries)
    whole.rank(kept_of(cache, whole))
    names = [entry.name for entry in entries]
    kept = kept_of(cache, whole)
    assert kept.before(names) is not None
    assert kept.before(names[1:]) is None
    assert kept.before(names[::-1]) is None
    assert KeptTests(cache, "other results", whole).before(names) is None


def test_a_damaged_test_is_not_taken(entries: Sequence[Entry], tmp_path: Path) -> None:
    cache, whole = Cache(tmp_path), ranked("stability", entries)
    whole.rank(kept_of(cache, whole))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-500] ^= 1
    path.write_bytes(content)
    assert kept_of(cache, whole).before([entry.name for entry in entries]) is None
    cache.put(path.stem, {"index": b"[]", "arrays": b""})
    assert kept_of(cache, whole).before([entry.name for entry in entries]) is None
