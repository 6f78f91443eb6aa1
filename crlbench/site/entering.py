"""Which track a model of some size enters, and with which arms."""

from __future__ import annotations

from typing import NamedTuple

from crlbench.verdict.protocols import RULES
from crlbench.verdict.resources import known_track

SIZES = (
    (1e7, "Up to 10M parameters", "mini"),
    (0.55e9, "10M to 0.5B", "small"),
    (float("inf"), "More", "core"),
)
"""Upper ends in parameters, their words, and the track of models up to there."""


class Way(NamedTuple):
    """How a model gets onto a board."""

    sizes: str
    """Models that it is for, in words."""
    track: str
    arms: str
    """Of ``--arm``: those that a rank on all axes needs."""
    about: str
    """The track's own summary, as a sentence."""
    ranked: bool


def way_in(parameters: int | None) -> Way:
    """The way of a model of that size; None: not known, the smallest one's."""
    return next(_way(words, name) for most, words, name in SIZES if (parameters or 0) <= most)


def ways_in() -> list[Way]:
    """The ways of all sizes, from small to large."""
    return [_way(words, name) for _, words, name in SIZES]


def _way(sizes: str, name: str) -> Way:
    track = known_track(name)
    if track is None:
        return Way(sizes, name, "real", "", False)
    arms = ",".join(RULES[track.protocol].arms)
    return Way(sizes, name, arms, f"{track.summary}.", track.ranked)
