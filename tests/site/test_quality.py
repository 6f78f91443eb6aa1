"""What every kind of page must be. Kinds are found among the templates, so none is forgotten."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import html5lib
import pytest

from crlbench.verdict.resources import leaderboard_folder
from tests.site.browser import SHIFT, WAYS, Guest, Visitor, length, opened
from tests.site.conftest import Kind, Made
from tests.support.chromium import ANY, barriers

browser = pytest.mark.browser

ELSEWHERE = {"designs.html.j2"}
"""Of boards of protocol CRL-2, which the simulated results have none of: ``test_designs.py``."""
KINDS = sorted(
    path.name
    for path in (leaderboard_folder() / "templates" / "site").glob("*.html.j2")
    if path.name not in ELSEWHERE and path.read_text(encoding="utf-8").startswith("{% extends")
)

WIDTHS, SCHEMES = (360, 1280, 768), ("light", "dark")
SOME = (
    ("home.html.j2", 1280, "light"),
    ("home.html.j2", 360, "dark"),
    ("entry.html.j2", 768, "dark"),
)
"""Kind, width and theme of the pages that the checker sees in the tests that always run."""


@pytest.fixture(scope="module", params=KINDS)
def page(request: pytest.FixtureRequest, pages: Mapping[str, Kind]) -> Kind:
    """A page of each template; all tests of one follow one another, so that it is opened once."""
    assert request.param in pages, "no page of the simulated results is made of this template"
    return pages[request.param]


PHONE = {"width": 360, "height": 640}
SCREENS = 12
FOLDED = "[...document.querySelectorAll('details[data-wide]')].filter(d => !d.open).length"


class Loaded(NamedTuple):
    """A page as it is loaded, before something on it is opened."""

    moved: Mapping[int, float]
    """Sums of the shifts of its layout, by the width of the window."""
    length: int
    """On a phone, in CSS pixels."""
    folded: int
    """Details that a wide screen shows, closed where there are no scripts."""


@pytest.fixture(scope="module")
def loaded(guest: Guest, page: Kind) -> Loaded:
    moved = {width: guest(page.path, width=width).evaluate(SHIFT) for width in (1280, 360)}
    phone = guest(page.path, width=PHONE["width"])
    phone.set_viewport_size(PHONE)
    return Loaded(moved, length(phone), guest(page.path, scripts=False).evaluate(FOLDED))


@pytest.fixture
def look(loaded: Loaded, look: Guest) -> Guest:
    """Opens the page for tests that only look at it, after it was seen as it is loaded."""
    return look


@browser
@pytest.mark.parametrize(
    "over",
    [
        WAYS[0],
        pytest.param(WAYS[1], marks=pytest.mark.slow),
        pytest.param(WAYS[2], marks=[pytest.mark.slow, pytest.mark.full]),
    ],
)
def test_it_loads_from_anywhere(look: Guest, page: Kind, over: str):
    found = look(page.path, over=over)
    assert found.locator("main h1").count() == 1


@browser
@pytest.mark.slow
@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "width", [*WIDTHS[:2], pytest.param(WIDTHS[2], marks=pytest.mark.full)]
)
def test_the_accessibility_checker_finds_nothing(
    request: pytest.FixtureRequest, look: Guest, page: Kind, width: int, turn: int
):
    """A turn has each kind in both themes, one of a phone; both have all widths in both."""
    kind = KINDS.index(request.node.callspec.params["page"])
    scheme = SCHEMES[(kind + WIDTHS.index(width) + turn) % len(SCHEMES)]
    assert barriers(opened(look(page.path, width=width, scheme=scheme)), ANY) == []


@browser
@pytest.mark.parametrize(("kind", "width", "scheme"), SOME)
def test_the_accessibility_checker_finds_nothing_on_some_pages(
    visit: Visitor, pages: Mapping[str, Kind], kind: str, width: int, scheme: str
):
    """Not by ``look``, which stands for one kind of page and would repeat each of these for all."""
    assert barriers(opened(visit(pages[kind].path, width=width, scheme=scheme)), ANY) == []


@browser
def test_nothing_hangs_over(look: Guest, page: Kind):
    found = opened(look(page.path))
    for width in (320, 360, 768, 1280, 2560):
        found.set_viewport_size({"width": width, "height": 800})
        assert found.evaluate("document.documentElement.scrollWidth") <= width


@browser
def test_a_phone_shows_every_caption_whole(look: Guest, page: Kind):
    """Where a table scrolls, what is said of it stays on the screen."""
    found = opened(look(page.path, width=360))
    wide = """[...document.querySelectorAll('caption:not(.hidden)')].filter(c => {
        const room = c.closest('.scroll');
        if (room) room.scrollLeft = 1e6;
        const box = c.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth;
    }).map(c => c.textContent.slice(0, 60))"""
    assert found.evaluate(wide) == []


@browser
def test_a_phone_shows_where_in_the_menu_it_is(look: Guest, page: Kind):
    if page.section == "":
        pytest.skip("a page outside of the menu")
    box = look(page.path, width=360).locator(".bar [aria-current]").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360


@browser
def test_a_phone_scrolls_at_most_twelve_screens(look: Guest, loaded: Loaded):
    assert loaded.length <= SCREENS * PHONE["height"]


@browser
def test_without_scripts_nothing_that_a_wide_screen_shows_is_folded(look: Guest, loaded: Loaded):
    assert loaded.folded == 0


@browser
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_moves_while_a_page_loads(look: Guest, loaded: Loaded, width: int):
    assert loaded.moved[width] < 0.05


def test_links_of_a_page_can_be_shared(files: Mapping[str, bytes], page: Kind):
    tree = html5lib.parse(files[page.path].decode(), namespaceHTMLElements=False)
    found = {one.get("property"): one.get("content") for one in tree.iter("meta")}
    assert found["og:title"] == tree.find("head/title").text and found["og:description"]
    assert "og:image" not in found, "its address is only known where that of the site is"


@browser
def test_focus_rings_are_whole(look: Guest, page: Kind):
    """What scrolls cuts what stands out of it; a ring stands out by its offset and its width."""
    cut = """[...document.querySelectorAll('.scroll :is(a, button)')].filter(one => {
        const room = one.closest('.scroll').getBoundingClientRect();
        const box = one.getBoundingClientRect();
        const seen = box.right < room.right && box.height;
        return seen && (box.left - 5 < room.left || box.top - 5 < room.top);
    }).map(one => one.outerHTML.slice(0, 80))"""
    assert opened(look(page.path)).evaluate(cut) == []


@browser
def test_headings_are_in_order(look: Guest, page: Kind):
    levels = look(page.path).evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    steps = zip(levels, levels[1:], strict=False)
    assert [(a, b) for a, b in steps if b > a + 1] == []


@browser
def test_scripts_change_no_number(look: Guest, page: Kind):
    script = "[...document.querySelectorAll('main table')].map(t => t.innerText)"
    with_scripts, without = (
        opened(look(page.path, scripts=on)).evaluate(script) for on in (True, False)
    )
    assert "" not in without

    def numbers(texts: list[str]) -> list[list[str]]:
        return [re.findall(r"[\d.]+", text) for text in texts]

    assert numbers(with_scripts) == numbers(without)


def test_its_html_has_no_error(files: Mapping[str, bytes], page: Kind):
    """Tokens and nesting. The parser knows neither which attributes an element has nor what it
    may hold beyond what changes the tree; axe sees a part of that.
    """
    parser = html5lib.HTMLParser()
    parser.parse(files[page.path].decode())
    assert [(place, code) for place, code, _ in parser.errors] == []


NAMED = {"a", "article", "aside", "button", "dialog", "fieldset", "figure", "footer", "form",
         "header", "iframe", "img", "input", "main", "math", "meter", "nav", "object", "ol",
         "optgroup", "option", "output", "progress", "section", "select", "summary", "svg", "table",
         "tbody", "td", "textarea", "tfoot", "th", "thead", "tr", "ul", "video"}
"""Elements that may have a name of their own (ARIA in HTML); others need a role for that."""


def test_names_and_focus_stand_where_they_may(files: Mapping[str, bytes], page: Kind):
    tree = html5lib.parse(files[page.path].decode(), namespaceHTMLElements=False)
    for one in tree.iter():
        tag = str(one.tag).rpartition("}")[2]
        if one.get("aria-label") or one.get("aria-labelledby"):
            assert tag in NAMED or one.get("role"), (tag, one.attrib)
        assert tag != "math" or "tabindex" not in one.attrib


class _Addresses(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.policies: list[str] = []
        self.inline = 0
        """Scripts that stand in the page itself, and handlers of events."""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(values["id"] or "")
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.inline += tag == "script" and "src" not in values
        self.inline += sum(name.startswith("on") for name in values)
        if tag == "meta" and values.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(values["content"] or "")


@pytest.fixture(scope="session")
def read(files: Mapping[str, bytes]) -> Mapping[str, _Addresses]:
    """Every HTML file."""
    return {n: _Addresses(c.decode()) for n, c in files.items() if n.endswith(".html")}


def test_every_link_leads_somewhere(files: Mapping[str, bytes], read: Mapping[str, _Addresses]):
    dead = set()
    for name, addresses in read.items():
        for link in addresses.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            assert not parts.path.startswith("/"), f"{name}: {link} works at the root only"
            aim = normpath(f"{name}/../{unquote(parts.path)}") if parts.path else name
            fragment = unquote(parts.fragment)
            if aim not in files:
                dead.add((name, link))
            elif fragment and "=" not in fragment and aim in read:
                if fragment not in read[aim].ids:
                    dead.add((name, link))
    assert sorted(dead) == []


def test_no_name_stands_twice_on_a_page(read: Mapping[str, _Addresses]):
    double = {name: [i for i, n in Counter(a.ids).items() if n > 1] for name, a in read.items()}
    assert {name: ids for name, ids in double.items() if ids} == {}


def test_every_page_forbids_foreign_and_inline_scripts(read: Mapping[str, _Addresses]):
    for name, addresses in read.items():
        assert len(addresses.policies) == 1, name
        rules = dict(rule.split(" ", 1) for rule in addresses.policies[0].split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == "'self'"


@pytest.mark.slow
def test_a_second_build_has_equal_bytes(results: Path, folder: Path):
    command = [sys.executable, "-P", "-m", "crlbench", "leaderboard", "build", "--check"]
    command += ["--results", str(results), "--out", str(folder)]
    settings = {"PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@browser
@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_strangers_stay_texts(
    look_at_strange: Guest, strange: Made, kind: str
):
    if kind not in strange.kinds:
        pytest.skip("no stranger's text leads to such a page")
    page = opened(look_at_strange(strange.kinds[kind].path))
    assert page.evaluate("window.hacked") is None
    if kind in ("home.html.j2", "run.html.j2"):
        assert "<script>window.hacked" in page.locator("main").inner_text()


def test_no_text_of_a_stranger_makes_an_element(strange: Made):
    for path in sorted(strange.folder.rglob("*.html")):
        made = _Addresses(path.read_text(encoding="utf-8"))
        assert "x" not in made.links and made.inline == 0, path


@browser
def test_data_files_of_strangers_run_nothing(visit_strange: Visitor, strange: Made):
    page = visit_strange()
    for path in sorted((strange.folder / "data").rglob("*.js")):
        page.add_script_tag(url=path.as_uri())
    assert page.evaluate("Object.keys(crlbench.items).length") == 2
    assert page.evaluate("window.hacked") is None


def test_the_front_page_is_small(files: Mapping[str, bytes]):
    own = _Addresses(files["index.html"].decode()).links
    loaded = {"index.html", *(n for n in own if n.startswith("static/"))}
    assert sum(len(gzip.compress(files[name], 9)) for name in loaded) < 100_000


@browser
def test_the_first_paint_takes_less_than_a_second(visit: Visitor):
    script = """new Promise(found => new PerformanceObserver(list => found(
        list.getEntriesByName('first-contentful-paint')[0].startTime
    )).observe({type: 'paint', buffered: true}))"""
    assert min(visit(over="http").evaluate(script) for _ in range(3)) < 1000
