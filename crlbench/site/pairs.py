"""Pairs of entries, each compared once: for all pages of a site, and for the next build of it.

A pair rests on its two entries alone, so its key is made of theirs. Pairs that pages are known to
show are compared first, by all processes; any other is compared where a page asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from crlbench.disk.hashing import digest
from crlbench.site.known import Job, Known, packed_text
from crlbench.verdict.axes import MARGIN
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Pair, compare_pair

TOGETHER = 24
"""Pairs that a process compares at a time: those of few entries, whose replicates it then holds."""


class Wanted(NamedTuple):
    """A pair that a page shows: the second minus the first."""

    first: Entry
    second: Entry
    tasks: tuple[str, ...] | None = None
    """Only these; None for all that both have."""

    @property
    def key(self) -> str:
        """Digest of what the pair rests on; empty where an entry is not kept."""
        keys = self.first.evidence.key, self.second.evidence.key
        return digest([*keys, self.tasks, MARGIN]) if all(keys) else ""

    def compare(self) -> Pair:
        """The pair, computed."""
        return compare_pair(self.first, self.second, tasks=self.tasks)


class Pairs:
    """Compares entries for the pages of a build."""

    def __init__(self, known: Known | None = None) -> None:
        """
        Args:
            known: pairs of the build before; None: there are none.
        """
        self._known = Known() if known is None else known

    def compare(self, first: Entry, second: Entry, tasks: Sequence[str] | None = None) -> Pair:
        """Second minus first, as :func:`crlbench.verdict.pairs.compare_pair`."""
        wanted = Wanted(first, second, None if tasks is None else tuple(tasks))
        return self._known.get(wanted.key, Pair) or wanted.compare()

    def jobs(self, wanted: Iterable[Wanted], done: Callable[[], object]) -> list[Job]:
        """What compares the pairs that are wanted and not known; all that is wanted is kept.

        Args:
            done: called after some pairs, to let go of their replicates.
        """
        by_key = {pair.key: pair for pair in wanted if pair.key}
        missing = sorted(
            (key for key in by_key if not self._known.has(key, Pair)),
            key=lambda key: (by_key[key].first.name, by_key[key].second.name),
        )
        blocks = [missing[at : at + TOGETHER] for at in range(0, len(missing), TOGETHER)]

        def compare(keys: list[str]) -> list[str]:
            texts = [packed_text(by_key[key].compare()) for key in keys]
            done()
            return texts

        def keep(keys: list[str], texts: list[str]) -> None:
            for key, text in zip(keys, texts, strict=True):
                self._known.put(key, text)

        return [Job(partial(compare, keys), partial(keep, keys)) for keys in blocks]
