"""Rankings of entries, each computed once for all builds in which these entries stand together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crlbench.disk.hashing import digest
from crlbench.site.known import Known
from crlbench.verdict.axes import Axis
from crlbench.verdict.board import Improvement, improvement_of, rank_entries
from crlbench.verdict.entry import Entry
from crlbench.verdict.packing import Packer, unpack_plain
from crlbench.verdict.ranking import AxisRanking


class KeptRankings:
    """Ranks entries as :mod:`crlbench.verdict.board` does."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def rank(
        self,
        axis: Axis,
        recipe: str,
        entries: Sequence[Entry],
        unranked: str | None,
        replicates: int,
    ) -> AxisRanking:
        """As :func:`crlbench.verdict.board.rank_entries`."""
        given = [axis, recipe, unranked, replicates]
        return self._of(
            entries, given, lambda: rank_entries(axis, recipe, entries, unranked, replicates)
        )

    def improvement(self, entries: Sequence[Entry]) -> Improvement:
        """As :func:`crlbench.verdict.board.improvement_of`."""
        return self._of(entries, ["improvement"], lambda: improvement_of(entries))

    def _of(self, entries: Sequence[Entry], given: list[Any], compute: Callable[[], Any]) -> Any:
        keys = [entry.evidence.key for entry in entries]
        if not all(keys):
            return compute()
        key = digest([given, keys])
        packed = self._known.get(key)
        if packed is not None:
            return unpack_plain(packed)
        made = compute()
        self._known.put(key, Packer().pack(made))
        return made
