"""Which designs a track is made for, and which of them have no result on a board yet."""

from __future__ import annotations

from typing import NamedTuple

from crlbench.verdict.board import Board
from crlbench.verdict.resources import known_track


class Declared(NamedTuple):
    """The designs of a track, as a board has them."""

    designs: tuple[str, ...]
    """All that the track names."""
    missing: tuple[str, ...]
    """Those without an entry, in the order of the track."""

    @property
    def present(self) -> int:
        """How many have an entry."""
        return len(self.designs) - len(self.missing)


def declared_designs(board: Board, recipe: str) -> Declared | None:
    """What the track of a board says of its designs; None where it names none, is not known at
    this version, or something differs from it (the open division)."""
    track = known_track(board.track, board.track_version)
    if track is None or not track.designs or board.division == "open":
        return None
    found = {entry.slug for entry in board.entries if entry.recipe == recipe}
    return Declared(track.designs, tuple(name for name in track.designs if name not in found))
