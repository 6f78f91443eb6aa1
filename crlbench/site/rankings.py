"""Rankings of entries, each computed once for all builds in which these entries stand together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crlbench.base.parallel import each_of
from crlbench.disk.hashing import digest
from crlbench.site.cache import Cache
from crlbench.site.kept_tests import KeptTests
from crlbench.site.known import Known, packed_text
from crlbench.verdict.board import Ranked
from crlbench.verdict.entry import Entry
from crlbench.verdict.improvements import Improvement, improvement_of
from crlbench.verdict.ranking import AxisRanking


class KeptRankings:
    """Ranks entries as :mod:`crlbench.verdict.board` does."""

    def __init__(self, known: Known, cache: Cache, board: str) -> None:
        """
        Args:
            known: rankings of the build before.
            cache: has the tests that they were made of.
            board: names it among all boards that a cache may know.
        """
        self._known, self._cache, self._board = known, cache, board

    def rank(self, wanted: Sequence[Ranked]) -> list[AxisRanking]:
        """Every ranking, those that are not known by all processes."""
        keys = [
            _key(
                [one.axis, one.recipe, one.unranked, one.replicates, one.declared], one.entries
            )
            for one in wanted
        ]
        pairs = zip(keys, wanted, strict=True)
        missing = [
            (key, one) for key, one in pairs if key and not self._known.has(key, AxisRanking)
        ]

        def rank(pair: tuple[str, Ranked]) -> str:
            lasting = self._cache.lasting
            tests = KeptTests(self._cache, self._board, pair[1]) if lasting else None
            return packed_text(pair[1].rank(tests))

        for (key, _), text in zip(missing, each_of(rank, missing, few=2), strict=True):
            self._known.put(key, text)
        return [
            (self._known.get(key, AxisRanking) if key else None) or one.rank()
            for key, one in zip(keys, wanted, strict=True)
        ]

    def improvement(self, entries: Sequence[Entry]) -> Improvement:
        """As :func:`crlbench.verdict.improvements.improvement_of`."""
        if not (key := _key(["improvement"], entries)):
            return improvement_of(entries)
        if (known := self._known.get(key, Improvement)) is None:
            known = improvement_of(entries)
            self._known.put(key, packed_text(known))
        return known


def _key(given: list[Any], entries: Sequence[Entry]) -> str:
    """Digest of what a result rests on; empty where an entry is not kept."""
    keys = [entry.evidence.key for entry in entries]
    return digest([given, keys]) if all(keys) else ""
