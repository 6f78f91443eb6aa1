"""Boards that differ in the learning rate alone: one question asked at several rates."""

from __future__ import annotations

from dataclasses import dataclass

from crlbench.disk.hashing import canonical_json
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.entry import Entry

RATE = "conditions.optimization.learning_rate"
"""The leaf of a fingerprint."""


@dataclass(frozen=True)
class Family:
    """A board, and the same conditions at other learning rates."""

    home: StoredBoard
    """At the rate of the track, where there is such a board."""
    by_rate: dict[float, StoredBoard]
    """All of them, ascending; ``home`` is among them."""

    @property
    def rate(self) -> float:
        return rate(self.home)

    def entries(self, model: str, recipe: str) -> dict[float, Entry]:
        """The entries of one model and recipe by learning rate."""
        return {
            value: entry
            for value, stored in self.by_rate.items()
            for entry in stored.entries(recipe)
            if entry.model == model
        }

    @property
    def names(self) -> list[tuple[str, str]]:
        """Model and recipe of every entry at any rate, each once."""
        found = {(e.model, e.recipe) for b in self.by_rate.values() for e in b.board.entries}
        return sorted(found)


def rate(stored: StoredBoard) -> float:
    """The learning rate of a board; of the track's optimizer, not of the critic."""
    return float(_leaves(stored)[RATE])


def families(site: Site) -> list[Family]:
    """Every board once, in the order of the site."""
    groups: dict[str, list[StoredBoard]] = {}
    for stored in site.boards:
        groups.setdefault(_shared(stored), []).append(stored)
    return [_family(members) for members in groups.values()]


def _family(members: list[StoredBoard]) -> Family:
    """Home is what the track says: the closed division, which another rate is never in."""
    home = min(members, key=lambda one: one.board.division == "open")
    return Family(home, {rate(one): one for one in sorted(members, key=rate)})


def _shared(stored: StoredBoard) -> str:
    """Everything that the boards of a family have in common, as text."""
    rest = {name: value for name, value in _leaves(stored).items() if name != RATE}
    return canonical_json([rest, stored.board.hardware])


def _leaves(stored: StoredBoard) -> dict[str, object]:
    return stored.runs.runs[0].record.fingerprint.leaves
