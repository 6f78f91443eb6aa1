"""Data, archive, feed, sitemap and the page for wrong addresses."""

from __future__ import annotations

import html as markup
import json
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from crlbench import __version__, cli
from crlbench.contract.conditions import Track
from crlbench.site import archive, article, data, home, runs
from crlbench.site.build import build
from crlbench.site.pages import archive_path, board_path, task_path, whole
from crlbench.site.source import Site
from tests.site.browser import served
from tests.site.stored import html

ROOT = Path(__file__).parents[2]
URL = "https://example.org/board/"
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def placed(site: Site) -> Mapping[str, bytes]:
    """The site that knows where it stands."""
    return build(replace(site, url=URL))


@pytest.mark.slow
def test_downloads_are_what_the_command_writes(
    results: Path, site: Site, files: Mapping[str, bytes], tmp_path: Path
) -> None:
    board = site.boards[0].id
    for name in ("entries.csv", "runs.json", "curves.csv"):
        target = tmp_path / name
        what = name.split(".")[0]
        arguments = ["leaderboard", "export", "--results", str(results), "--what", what]
        assert cli.main([*arguments, "--board", board, "--out", str(target)]) == 0
        assert target.read_bytes() == files[f"data/{board}/{name}"]


def test_every_failed_and_preview_run_is_in_the_tables(
    site: Site, files: Mapping[str, bytes]
) -> None:
    stored = site.boards[0]
    table = json.loads(files[f"data/{stored.id}/runs.json"])
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert len(rows) == len(stored.runs.runs)
    assert any(row["state"] == "failed" and row["rule"] for row in rows)
    assert {row["arm"] for row in rows} == {"real", "placebo"}
    table = json.loads(files[f"data/{stored.id}/entries.json"])
    entries = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert all((row["tier"] is None) == bool(row["unranked"]) for row in entries)


def test_schemas_are_those_of_the_repository(files: Mapping[str, bytes]) -> None:
    for name in ("run-record", "plan"):
        stored = ROOT / "docs" / "schemas" / f"{name}.schema.json"
        assert files[f"data/schemas/{name}.schema.json"] == stored.read_bytes()


def test_the_citation_is_valid_and_the_page_has_the_same() -> None:
    path = ROOT / "CITATION.cff"
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema"]
    done = subprocess.run([*command, "vendor.citation-file-format", path], capture_output=True)
    assert done.returncode == 0, done.stdout
    cited, shown = yaml.safe_load(path.read_text()), data.bibtex()
    assert str(cited["version"]) == __version__
    for value in (cited["title"], cited["authors"][0]["name"], cited["license"], __version__):
        assert f"{{{value}}}" in shown


@pytest.mark.slow
def test_the_feed_has_an_item_for_each_dated_entry(
    site: Site, files: Mapping[str, bytes], placed: Mapping[str, bytes]
) -> None:
    feeds = [ElementTree.fromstring(made["feed.xml"]) for made in (files, placed)]
    ids = [[e.findtext(f"{ATOM}id") for e in feed.iter(f"{ATOM}entry")] for feed in feeds]
    dated = sum(bool(date) for stored in site.boards for date in stored.dates.values())
    assert ids[0] == ids[1] and len(set(ids[0])) == dated > 0
    dates = [e.findtext(f"{ATOM}updated") for e in feeds[0].iter(f"{ATOM}entry")]
    assert dates == sorted(dates, reverse=True)
    links = [[link.get("href") for link in feed.iter(f"{ATOM}link")] for feed in feeds]
    assert not any(":" in href for href in links[0])
    assert links[1] == [URL + href for href in links[0]]


def test_the_sitemap_lists_every_page_where_the_address_is_known(
    files: Mapping[str, bytes], placed: Mapping[str, bytes]
) -> None:
    assert "sitemap.xml" not in files and b"Sitemap" not in files["robots.txt"]
    assert f"Sitemap: {URL}sitemap.xml".encode() in placed["robots.txt"]
    root = ElementTree.fromstring(placed["sitemap.xml"])
    listed = {element.text for element in root.iter() if element.text and element.text.strip()}
    pages = {name for name in placed if name.endswith(".html")} - {"404.html"}
    assert listed == {URL + name for name in pages}


@pytest.mark.browser
def test_the_page_for_wrong_addresses_leads_home_from_any_depth(
    site: Site, chromium, tmp_path: Path
) -> None:
    with served(tmp_path) as url:
        for name, content in build(replace(site, url=url)).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        deep = tmp_path / "a" / "b" / "nowhere.html"
        deep.parent.mkdir(parents=True)
        deep.write_bytes((tmp_path / "404.html").read_bytes())  # as hosts answer a wrong address
        page = chromium.new_page()
        page.goto(f"{url}a/b/nowhere.html")
        assert page.evaluate("[...document.styleSheets].every(s => s.cssRules.length > 0)")
        page.get_by_role("link", name="front page").click()
        assert page.url == f"{url}index.html"
        page.close()


def test_without_an_address_that_page_says_so(
    files: Mapping[str, bytes], placed: Mapping[str, bytes]
) -> None:
    assert b"does not know its own address" in files["404.html"]
    assert b"does not know its own address" not in placed["404.html"]


# -- archive -------------------------------------------------------------------------------


def test_a_board_shows_every_leaf(site: Site) -> None:
    leaves = site.boards[0].leaves
    shown = sum(len(rows) for _, rows in archive.conditions(leaves)) + len(archive.other(leaves))
    below = [path for path in leaves if path.startswith(("tasks.", "retain."))]
    held = [path for path in below if path.count(".") >= 2]
    assert shown + len(held) == len(leaves)


def test_a_board_names_its_packages_and_leads_to_licences(
    site: Site, files: Mapping[str, bytes]
) -> None:
    closed = [stored for stored in site.boards if stored.board.division == "closed"]
    assert closed
    for stored in closed:
        page = files[archive_path(stored.id)].decode()
        path = ROOT / "leaderboard" / "tracks" / f"{stored.board.track}.toml"
        stated = tomllib.loads(path.read_text())["packages"]  # the same in every version so far
        assert {"torch", "transformers"} <= stated.keys()
        for name, text in stated.items():
            row = f"<code>{name}</code></th><td>{markup.escape(text)}</td>"
            assert row in page
        for entry in stored.board.entries:
            for task in entry.task_names:
                assert f'href="../../{task_path(task)}">on the page of the task' in page
        assert "under CC0-1.0" in page


def test_an_open_board_states_no_ranges(site: Site) -> None:
    stored = site.boards[0]
    opened = replace(stored, board=replace(stored.board, division="open"))
    assert archive.packages(opened) == {} != archive.packages(stored)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, archive.SUPERSEDED),
        ({"track": "small"}, archive.CURRENT),
        ({"track_version": 0}, archive.UNFROZEN),
        ({"track_version": 99}, archive.UNKNOWN),
        ({"track": "gone"}, archive.UNKNOWN),
        ({"division": "open"}, archive.OPEN),
    ],
)
def test_what_has_become_of_a_board(site: Site, changes: dict, expected: str) -> None:
    stored = next(s for s in site.boards if s.board.track_version == 1)
    changed = replace(stored, board=replace(stored.board, **changes))
    assert archive.status(changed) == expected


@pytest.mark.parametrize(("ranked", "expected"), [(True, "CURRENT"), (False, "UNRANKED")])
def test_a_version_whose_track_does_not_rank_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, ranked: bool, expected: str
) -> None:
    stored = next(s for s in site.boards if s.board.track_version == 1)
    later = replace(stored, board=replace(stored.board, track_version=2))
    now = archive.known_track("mini").model_copy(update={"version": 2, "ranked": ranked})
    monkeypatch.setattr(archive, "known_track", lambda name: now)
    assert archive.status(later) == getattr(archive, expected)


def test_where_nothing_ranks_no_entry_stands_higher_than_a_preview(site: Site) -> None:
    stored = next(s for s in site.boards if s.board.track_version == 1)
    (recipe, *_) = stored.recipes
    ranking = {row["standing"] for row in archive.entries(stored, recipe)}
    assert ranking & {"provisional", "enough seeds for a rank"}
    still = replace(stored, board=replace(stored.board, unranked="track mini is not ranked"))
    rows = {row["standing"] for row in archive.entries(still, recipe)}
    assert not rows & {"provisional", "enough seeds for a rank"} and "preview" in rows


def test_an_older_version_of_a_track_is_superseded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = next(s for s in site.boards if s.board.track_version == 1)
    newer = archive.known_track("mini").model_copy(update={"version": 2})
    def known(name: str, version: int | None = None) -> Track | None:
        return newer if version in (None, 2) else None

    monkeypatch.setattr(archive, "known_track", known)
    assert archive.status(stored) == archive.SUPERSEDED
    assert archive.pilot(stored) == []


def test_an_archived_board_says_so_and_what_is_current(site: Site) -> None:
    stored = next(s for s in site.boards if s.board.track_version == 1)
    site = replace(site, boards=(replace(stored, track="current", later=None),))
    older = replace(site, boards=(replace(stored, track="archived", later=2),))
    words = "Archived: version 1 of mini; the current version is 2."
    entry = stored.board.entries[0]
    for maker, path in (
        (archive.pages, archive_path(stored.id)),
        (home.pages, "index.html"),
        (home.pages, board_path(stored.id, stored.recipes[0])),
    ):
        (now,) = (page for page in whole(maker(site)) if page.path == path)
        assert words not in html(site, now)
        (then,) = (page for page in whole(maker(older)) if page.path == path)
        assert words in html(older, then)
    (board,) = older.boards
    own = article.entry_page(article.article(board, entry, ""))
    run = next(runs.entry_pages(board, entry))
    for page in (own, run):
        assert "mini v1 (archived, now v2)" in html(older, page)
