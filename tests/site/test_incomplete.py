"""A board of designs says which designs of its track have no result yet, in words and as data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.pages import design_words as say
from crlbench.site import archive, home, published
from crlbench.site.leaders import size_leaders
from crlbench.site.pages import whole
from crlbench.site.source import Site, StoredBoard, read_board
from crlbench.verdict.declared_designs import Declared, declared_designs
from crlbench.verdict.resources import known_track
from tests.site.stored import html

STORED = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-a8d2d33fcaa9"
MODEL = "tiny2-llama@b4fca4cc"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredBoard:
    """The board of `mini` with one of its designs."""
    folder = tmp_path_factory.mktemp("board") / STORED.name
    shutil.copytree(STORED / MODEL / "ppo", folder / MODEL / "ppo")
    return read_board(folder, Catalog())


def test_the_track_names_the_models_that_are_made_for_it() -> None:
    track = known_track("mini", 2)
    assert track is not None
    models = {card for card in Catalog().entries("model") if card.startswith("tiny2-")}
    sizes = {card for card in models if card.endswith(("-0.3m", "-1m", "-3m"))}
    assert {*track.designs} == models - sizes and (len(track.designs), len(sizes)) == (8, 6)
    assert known_track("mini", 1).designs == ()
    assert "designs" not in known_track("small").model_dump()


def test_a_board_says_which_of_them_are_missing(stored: StoredBoard) -> None:
    declared = declared_designs(stored.board, "ppo")
    assert declared is not None and declared.present == 1
    assert {*declared.designs} - {*declared.missing} == {"tiny2-llama"}
    sentence = say.incomplete(declared)
    assert sentence.startswith("Not complete: 1 of the 8 designs of this track has a result. ")
    site = Site((stored,), Catalog())
    pages = {page.path: html(site, page) for page in whole(home.pages(site))}
    assert len(pages) == 2 and all(sentence in page for page in pages.values())
    assert "Results so far: 1 of 8 designs." in pages["index.html"]
    _, page = whole(archive.pages(site))
    assert sentence in html(site, page)
    assert any("1 of 8 designs" in line for line in size_leaders(site)[0]["lines"])
    document = published.board(stored)
    assert document.designs == list(declared.designs)
    assert document.missing_designs == {"ppo": list(declared.missing)}


def test_nothing_is_missing_where_nothing_was_named(stored: StoredBoard) -> None:
    for change in ({"division": "open"}, {"track_version": 1}, {"track": "none"}):
        assert declared_designs(replace(stored.board, **change), "ppo") is None
    document = published.board(replace(stored, board=replace(stored.board, division="open")))
    assert document.designs == [] and document.missing_designs == {}
    assert say.incomplete(Declared(("a", "b"), ())) == ""
