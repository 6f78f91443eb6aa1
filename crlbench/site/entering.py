"""Which track a model of some size enters, and with which arms."""

from __future__ import annotations

from typing import NamedTuple

from crlbench.verdict.protocols import RULES
from crlbench.verdict.resources import known_track

SIZES = ((1e7, "mini"), (1e9, "small"), (float("inf"), "core"))
"""Upper ends in parameters, and the track of models up to there."""


class Way(NamedTuple):
    """How a model gets onto a board."""

    track: str
    arms: str
    """Of ``--arm``: those that a rank on all axes needs."""
    about: str
    """The track's own summary, as a sentence."""
    ranked: bool


def way_in(parameters: int | None) -> Way:
    """The way of a model of that size; None: not known, the smallest one's."""
    name = next(name for most, name in SIZES if (parameters or 0) <= most)
    return _way(name)


def ways_in() -> list[Way]:
    """The ways of all sizes, from small to large."""
    return [_way(name) for _, name in SIZES]


def _way(name: str) -> Way:
    track = known_track(name)
    if track is None:
        return Way(name, "real", "", False)
    return Way(name, ",".join(RULES[track.protocol].arms), f"{track.summary}.", track.ranked)
