"""Boards that differ in the learning rate alone: one question asked at several rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crlbench.disk.hashing import canonical_json
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.entry import Entry

RATE = "conditions.optimization.learning_rate"
"""Leaf of a fingerprint that a family varies."""


Found = TypeVar("Found")


@dataclass(frozen=True)
class Family:
    """A board, and the same conditions at other learning rates."""

    home: StoredBoard
    """The board at the rate of the track, if there is one."""
    by_rate: dict[float, StoredBoard]
    """All boards by rate, ascending; ``home`` is among them."""

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
        pairs = {(e.model, e.recipe) for b in self.by_rate.values() for e in b.board.entries}
        return sorted(pairs)


def rate(stored: StoredBoard) -> float:
    """The learning rate of a board; of the track's optimizer, not of the critic."""
    return float(_leaves(stored)[RATE])


def families(site: Site) -> list[Family]:
    """Every board once, in the order of the site."""
    groups: dict[str, list[StoredBoard]] = {}
    for stored in site.boards:
        groups.setdefault(_common_conditions(stored), []).append(stored)
    return [_family(members) for members in groups.values()]


def by_recipe(site: Site, make: Callable[[StoredBoard, str], Found | None]) -> list[list[Found]]:
    """What ``make`` finds for the recipes of each board at the learning rate of its track.

    Boards without anything are left out.
    """
    boards = [
        [one for recipe in family.home.recipes if (one := make(family.home, recipe)) is not None]
        for family in families(site)
    ]
    return [board for board in boards if board]


def _family(members: list[StoredBoard]) -> Family:
    """Home is what the track says: the closed division, which another rate is never in."""
    home = min(members, key=lambda one: one.board.division == "open")
    return Family(home, {rate(one): one for one in sorted(members, key=rate)})


def _common_conditions(stored: StoredBoard) -> str:
    """Everything that the boards of a family have in common, as text."""
    rest = {name: value for name, value in _leaves(stored).items() if name != RATE}
    return canonical_json([rest, stored.board.hardware])


def _leaves(stored: StoredBoard) -> dict[str, object]:
    return stored.runs.runs[0].record.fingerprint.leaves
