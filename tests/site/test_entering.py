"""A model is told the track of its size, with the arms that a rank there needs."""

from __future__ import annotations

import pytest

from crlbench.site.entering import way_in, ways_in


@pytest.mark.parametrize(
    ("parameters", "track"),
    [
        (None, "mini"),
        (1_010_000, "mini"),
        (135_000_000, "small"),
        (494_000_000, "small"),
        (600_000_000, "core"),
        (1_540_000_000, "core"),
        (8_000_000_000, "core"),
    ],
)
def test_each_size_has_a_track(parameters: int | None, track: str) -> None:
    assert way_in(parameters).track == track


def test_arms_and_ranks_are_those_of_the_track() -> None:
    ways = {way.track: way for way in ways_in()}
    assert ways["mini"].arms == "real,placebo,mode,stress" and ways["mini"].ranked
    assert ways["small"].arms == "real,placebo" and ways["small"].ranked
    assert not ways["core"].ranked and "unranked" in ways["core"].about
