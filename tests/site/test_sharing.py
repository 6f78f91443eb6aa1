"""What is cited, embedded and shown elsewhere: it says what the board says, and no more."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench import __version__
from crlbench.base.wording import number
from crlbench.pages.words import span
from crlbench.site import sharing
from crlbench.site.article import article, entry_page
from crlbench.site.badges import UNKNOWN, badge_snippet, badge_words, draw_badge
from crlbench.site.citing import cite_model, cite_result, escape_bibtex
from crlbench.site.pages import badge_path, entry_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.entry import Entry
from tests.site.browser import Guest, Visitor
from tests.site.conftest import Made
from tests.site.simulated import ATTACK
from tests.site.stored import html
from tests.support.chromium import barriers

browser = pytest.mark.browser
URL = "https://example.net/board/"
SVG = "{http://www.w3.org/2000/svg}"


def ranked(site: Site) -> list[tuple[StoredBoard, Entry]]:
    every = [(stored, entry) for stored in site.boards for entry in stored.board.entries]
    return [
        (stored, entry)
        for stored, entry in every
        if stored.board.rankings[entry.recipe]["efficiency"].ranking.standing(entry.name)
    ]


# -- citing --------------------------------------------------------------------------------


def read_bibtex(text: str) -> tuple[str, str, dict[str, str]]:
    """Kind, key and fields, by the rule that BibTeX has for braces: each one counts."""
    head = re.match(r"@(\w+)\{([^,\s]+),\n", text)
    assert head is not None
    fields, at = {}, head.end()
    while (found := re.compile(r"\s*(\w+) = \{").match(text, at)) is not None:
        depth, end = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        fields[found[1]] = text[found.end() : end - 1]
        at = end + (text[end : end + 1] == ",")
    assert text[at:] == "\n}\n"
    return head[1], head[2], fields


def test_a_result_is_cited_as_this(site: Site) -> None:
    stored = site.boards[0]
    entry = next(one for one in stored.board.entries if one.name.startswith("tiny-llama@"))
    day = stored.dates[entry.name][:10]
    note = f"Result {entry.name} of board {stored.id}, submitted by @someone, {day}"
    title = f"Tiny Llama with {entry.recipe} on {stored.label}"
    path = f"runs/{stored.id}/{entry.name}/index.html"
    citation = cite_result(stored, entry, URL)
    assert citation.plain == (
        f"The crlbench contributors ({day[:4]}). {title}. {note}. crlbench {__version__}. "
        f"{URL}{path}"
    )
    kind, key, fields = read_bibtex(citation.bibtex)
    assert kind == "misc" and re.fullmatch(r"crlbench-mini-[0-9a-f]{12}-tiny-llama-0{8}-\w+", key)
    assert fields == {
        "title": f"{{{title}}}",
        "author": "{The crlbench contributors}",
        "year": day[:4],
        "howpublished": f"crlbench {__version__}",
        "note": note,
        "url": URL + path,
    }
    assert "url" not in read_bibtex(cite_result(stored, entry).bibtex)[2]


def test_a_model_is_cited_with_the_day_of_its_last_result() -> None:
    citation = cite_model("m", "M", None, ["2026-01-02", "2026-03-01", ""])
    assert citation.plain == (
        "The crlbench contributors (2026). M: how it learns under reinforcement learning. Model m, "
        f"revision not stated, 3 results, 2026-03-01. crlbench {__version__}."
    )
    assert "year" not in read_bibtex(cite_model("m", "M", "abc", []).bibtex)[2]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("50% of_a & b#c", r"50\% of\_a \& b\#c"),
        ("}{", r"\textbraceright{}\textbraceleft{}"),
        (r"\input{x}", r"\textbackslash{}input\textbraceleft{}x\textbraceright{}"),
        ("a~b^c$d", r"a\textasciitilde{}b\textasciicircum{}c\$d"),
        ('<a|b> "c"', r"\textless{}a\textbar{}b\textgreater{} ''c''"),
        ("Λ − 1", r"$\Lambda$ $-$ 1"),
        ("two\nlines\u202e", r"two lines\textbackslash{}u202e"),
    ],
)
def test_names_are_no_commands(name: str, written: str) -> None:
    assert escape_bibtex(name) == written


@given(st.text(max_size=60))
def test_a_name_stays_in_its_field(name: str) -> None:
    kind, key, fields = read_bibtex(cite_model("m", name, name, ["2026-01-01"]).bibtex)
    assert (kind, key) == ("misc", "crlbench-m") and len(fields) == 5
    for value in (fields["title"], fields["note"]):
        bare = re.sub(r"\\(text\w+\{\}|[&%$#_])|\$(\\Lambda|-)\$", "", value)
        assert not {*bare.removeprefix("{").removesuffix("}")} & {*'&%$#_{}\\~^<>|"'}


def test_pages_show_the_citation(site: Site) -> None:
    stored, entry = ranked(site)[0]
    content = article(stored, entry, "", URL)
    text = html(site, entry_page(content))
    tree = html5lib.parse(text, namespaceHTMLElements=False)
    shown = {one.get("id"): "".join(one.itertext()) for one in tree.iter("pre") if one.get("id")}
    citation = cite_result(stored, entry, URL)
    assert (shown["cite-plain"], shown["cite-bibtex"]) == (citation.plain, citation.bibtex)
    snippet = badge_snippet(stored, entry, URL)
    assert (shown["badge-markdown"], shown["badge-html"]) == snippet


# -- badges --------------------------------------------------------------------------------


def badge_of(content: bytes) -> tuple[str, list[str]]:
    """Title and texts of a badge."""
    root = ElementTree.fromstring(content)
    known = ("svg", "title", "rect", "path", "text")
    assert {one.tag for one in root.iter()} <= {SVG + tag for tag in known}
    return root.findtext(f"{SVG}title") or "", [one.text or "" for one in root.iter(f"{SVG}text")]


def test_each_ranked_entry_has_a_badge_and_no_other(
    files: Mapping[str, bytes], site: Site
) -> None:
    wanted = {badge_path(s.id, e.model, e.recipe): (s, e) for s, e in ranked(site)}
    assert {path for path in files if path.startswith("badges/")} == wanted.keys()
    everyone = [entry for stored in site.boards for entry in stored.board.entries]
    assert 0 < len(wanted) < len(everyone), "there are previews too"
    for path, (stored, entry) in wanted.items():
        title, texts = badge_of(files[path])
        ranking = stored.board.rankings[entry.recipe]["efficiency"].ranking
        standing = ranking.standing(entry.name)
        assert standing is not None
        best, worst = standing.ranks
        ranks = f"rank {best}" if best == worst else f"ranks {best} to {worst}"
        provisional = "provisional " if entry.standing == "provisional" else ""
        later = " (archived)" if stored.later else ""
        assert texts == [
            f"crlbench mini v1, {entry.recipe}{later}",
            f"{provisional}{ranks} of {len(ranking.standings)} by Λ",
        ]
        assert title == ": ".join(texts)


def test_a_preview_is_claimed_nowhere(site: Site) -> None:
    for stored in site.boards:
        for entry in stored.board.entries:
            if entry.ranks:
                continue
            assert badge_words(stored, entry) is None and badge_snippet(stored, entry, URL) is None
            text = html(site, entry_page(article(stored, entry, "")))
            assert "badge-markdown" not in text and "badges/" not in text


def test_an_archived_board_is_called_so(site: Site) -> None:
    stored, entry = ranked(site)[0]
    for later, said in ((None, False), (2, True)):
        words = badge_words(replace(stored, later=later), entry)
        assert words is not None and ("(archived)" in words[0]) == said


def test_a_snippet_states_no_rank_of_today(site: Site) -> None:
    stored, entry = ranked(site)[0]
    snippet = badge_snippet(stored, entry, URL)
    assert snippet is not None
    image = URL + badge_path(stored.id, entry.model, entry.recipe)
    page = URL + entry_path(stored.id, entry.model, entry.recipe)
    assert snippet.markdown == f"[![Rank on crlbench, mini v1]({image})]({page})"
    assert snippet.html == (
        f'<a href="{page}"><img src="{image}" alt="Rank on crlbench, mini v1"></a>'
    )
    unknown = badge_snippet(stored, entry, "")
    assert unknown is not None and unknown.markdown.count(UNKNOWN) == 2


def test_a_badge_is_xml_whatever_a_name_is() -> None:
    content = draw_badge(ATTACK, "a < b & \"c\" ' \x00")
    title, texts = badge_of(content)
    assert "<script>" in texts[0] and "\u202e" not in title + texts[0]


# -- boards for an iframe ------------------------------------------------------------------


def embeds(files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        path: html5lib.parse(content.decode(), namespaceHTMLElements=False)
        for path, content in files.items()
        if path.startswith("embed/")
    }


def test_an_embedded_board_has_the_ranked_rows_in_order(
    files: Mapping[str, bytes], site: Site
) -> None:
    found = embeds(files)
    wanted = {f"embed/{stored.id}/{entry.recipe}.html" for stored, entry in ranked(site)}
    assert found.keys() == wanted and wanted
    stored = site.boards[0]
    tree = found[f"embed/{stored.id}/ppo.html"]
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.find(".//tbody")]
    ranking = stored.board.rankings["ppo"]["efficiency"].ranking
    order = sorted(ranking.standings, key=lambda one: (one.tier, -one.estimate))
    assert rows == [
        [
            stored.board.entry(one.model).display_name,
            number(stored.board.entry(one.model).axes["efficiency"].value),
            span(stored.board.entry(one.model).axes["efficiency"].interval),
            str(one.ranks[0]) if one.ranks[0] == one.ranks[1] else " to ".join(map(str, one.ranks)),
        ]
        for one in order
    ]
    anchors = [row.get("id") for row in tree.find(".//tbody")]
    assert anchors == [one.model.partition("/")[0] for one in order]
    text = "".join(tree.itertext())
    assert "preview" in text and "Tiny NeoX" not in text
    assert not list(tree.iter("script"))


def test_links_of_an_embedded_board_leave_the_frame(files: Mapping[str, bytes]) -> None:
    for tree in embeds(files).values():
        links = list(tree.iter("a"))
        assert links
        assert all((a.get("target"), a.get("rel")) == ("_blank", "noopener") for a in links)


@pytest.mark.slow
@browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_an_embedded_board_is_accessible_and_fits(
    look: Guest, site: Site, width: int, scheme: str
) -> None:
    page = look(f"embed/{site.boards[0].id}/ppo.html", width=width, scheme=scheme)
    assert barriers(page) == []
    for narrow in (280, width):
        page.set_viewport_size({"width": narrow, "height": 400})
        assert page.evaluate("document.documentElement.scrollWidth") <= narrow


@browser
def test_a_fragment_marks_a_row(look: Guest, site: Site) -> None:
    ranking = site.boards[0].board.rankings["ppo"]["efficiency"].ranking
    anchor = ranking.standings[0].model.partition("/")[0]
    page = look(f"embed/{site.boards[0].id}/ppo.html#{anchor}")
    marked = page.locator("tr:target")
    assert marked.count() == 1 and marked.get_attribute("id") == anchor
    cells = "[...document.querySelectorAll('tbody td:last-child')]"
    weights = page.evaluate(f"{cells}.map(e => getComputedStyle(e).fontWeight)")
    assert sorted(weights) == ["400"] * (len(weights) - 1) + ["700"]


@browser
def test_the_frame_of_the_snippet_shows_the_board(
    chromium: Any, site: Site, bases: dict[str, str]
) -> None:
    path = f"embed/{site.boards[0].id}/ppo.html"
    snippet = sharing.frame(bases["http"], path, 'a "b" <c>')
    page = chromium.new_page()
    try:
        page.set_content(f"<!doctype html><title>x</title>{snippet}")
        frame = page.frame_locator("iframe")
        frame.locator("tbody tr").first.wait_for()
        assert page.locator("iframe").get_attribute("title") == 'crlbench: a "b" <c>'
    finally:
        page.close()


# -- the page ------------------------------------------------------------------------------


def test_the_page_lists_documents_boards_and_badges(
    files: Mapping[str, bytes], site: Site
) -> None:
    tree = html5lib.parse(files[sharing.SHARE].decode(), namespaceHTMLElements=False)
    links = {unquote(one.get("href") or "") for one in tree.iter("a")}
    images = {unquote(one.get("src") or "") for one in tree.iter("img")}
    assert {path for path in files if path.startswith(("json/", "embed/"))} <= links
    assert {path for path in files if path.startswith("badges/")} == images
    text = "".join(tree.itertext())
    assert text.count("<iframe") == len(embeds(files)) and UNKNOWN in text
    found = sharing.pages(replace(site, url=URL))
    (placed,) = (page for page in found if page.path == sharing.SHARE)
    again = html(replace(site, url=URL), placed)
    assert UNKNOWN not in again and f"{URL}embed/" in again
    assert 'href="share.html"' in files["data.html"].decode()


@browser
def test_the_button_copies_the_text(visit: Visitor, site: Site) -> None:
    stored, entry = ranked(site)[0]
    path = entry_path(stored.id, entry.model, entry.recipe)
    page = visit(path, over="http", permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("[data-copy-text=cite-bibtex]")
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == cite_result(stored, entry).bibtex
    without = visit(path, scripts=False)
    assert without.locator("[data-copy-text]:visible").count() == 0
    assert without.locator("#cite-bibtex").is_visible()


def test_strangers_names_are_texts_everywhere(strange: Made) -> None:
    for path in [*strange.folder.rglob("embed/**/*.html"), strange.folder / sharing.SHARE]:
        tree = html5lib.parse(path.read_text(encoding="utf-8"), namespaceHTMLElements=False)
        assert not [one for one in tree.iter("img") if one.get("src") == "x"]
        assert "\u202e" not in path.read_text(encoding="utf-8")
