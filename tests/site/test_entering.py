"""A model is told the track of its size, with the arms that a rank there needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def commands_of(page: str) -> list[str]:
    """The lines of the block that says how to add a model."""
    (block,) = re.findall(r"<code>(pip install.*?)</code></pre>", page, re.DOTALL)
    return block.splitlines()


def test_the_front_page_has_a_line_for_each_command(files: Mapping[str, bytes]) -> None:
    lines = commands_of(files["index.html"].decode())
    assert all(re.match("(pip install|crlbench [a-z]+|#) ", line) for line in lines), lines
    assert "# one of these, by the size of the model" in lines
    evaluated = [line for line in lines if line.startswith("crlbench evaluate ")]
    assert [re.search(r"--track (\w+)", line)[1] for line in evaluated] == ["mini", "small", "core"]
    assert lines[-1].startswith("crlbench submit FOLDER --submitter @you")


def test_another_page_has_the_commands_of_its_board(files: Mapping[str, bytes]) -> None:
    path = next(name for name in files if re.fullmatch(r"boards/[^/]+/ppo\.html", name))
    lines = commands_of(files[path].decode())
    assert [line.split()[:2] for line in lines] == [
        ["pip", "install"], ["crlbench", "add"], ["crlbench", "evaluate"], ["crlbench", "submit"]
    ]  # fmt: skip
