"""Pages of the documentation on the site, and the words that they define."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from crlbench.site import guides, updates
from crlbench.site.repository import Repository
from crlbench.site.source import Site
from tests.site.browser import Guest, Visitor
from tests.site.stored import html

DOCS = Path(__file__).parents[2] / "docs"


def test_every_guide_has_a_page_in_the_menu(files: Mapping[str, bytes]):
    front = files["index.html"].decode()
    assert guides.available() == [*guides.GUIDES]
    for name in guides.GUIDES:
        assert f'href="{name}.html"' in front
        first = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
        assert f"<h1>{first.removeprefix('# ')}</h1>" in files[f"{name}.html"].decode()


def test_a_wide_table_names_its_columns_beside_its_cells() -> None:
    def table(columns: int) -> str:
        rows = [[f"{kind}{n}" for n in range(columns)] for kind in ("head", "cell")]
        lines = [f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * columns, rows[1])]
        return str(guides.render("# T\n\n" + "\n".join(lines) + "\n", None)[1])

    wide, narrow = table(5), table(4)
    assert '<table class="cards" role="table">' in wide and 'role="columnheader"' in wide
    assert 'data-label="head0" class="wide" role="cell">cell0' in wide
    assert 'data-label="head4" role="cell">cell4' in wide
    assert "cards" not in narrow and "data-label" not in narrow and "role=\"cell\"" not in narrow


def test_every_term_of_the_glossary_is_known_and_has_a_place(files: Mapping[str, bytes]):
    lines = (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line for line in lines if line.startswith("- **")]
    assert len(guides.glossary()) == len(terms) > 90
    page = files["glossary.html"].decode()
    for term in guides.glossary():
        assert f'id="{guides.term_anchor(term)}"' in page, term
    assert guides.glossary()["tier"].startswith("The leader and, under CRL-1,")
    assert guides.glossary()["λ*"].startswith("Λ of the real arm minus")


def test_links_lead_to_the_site_or_to_the_repository():
    text = (
        "# T\n\nA [page](findings.md#a-b), [other](small.md), [code](../crlbench/cli.py), [x](#y)."
    )
    bare = guides.render(text, None)[1]
    assert re.findall('href="(.*?)"', bare) == ["findings.html#a-b", "#y"]
    assert "other" in bare and "code" in bare
    known = guides.render(text, Repository("https://example.org/o/n"))[1]
    assert re.findall('href="(.*?)"', known) == [
        "findings.html#a-b",
        "https://example.org/o/n/blob/HEAD/docs/small.md",
        "https://example.org/o/n/blob/HEAD/crlbench/cli.py",
        "#y",
    ]


def test_a_link_called_by_its_file_has_the_title_of_its_page():
    links = "[small.md](small.md), [the rule](pilot.md), [faq.md](faq.md) and [no.md](no.md)"
    _, intro, _ = guides.render(f"# T\n\nSee {links}.\n", None)
    assert "See The track small, the rule, <a href=\"faq.html\">Questions</a> and no.md." in intro


def test_tables_code_and_headings_are_what_a_keyboard_and_a_reader_need():
    text = "# T\n\nIn.\n\n## A `b` c\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```sh\na < b\n```\n"
    title, intro, (section,) = guides.render(text, None)
    assert (title, section.anchor) == ("T", "a-b-c") and "In." in intro
    assert section.title == "A <code>b</code> c"
    assert 'aria-label="Table: x, y"' in section.content and '<th scope="col">x' in section.content
    assert '<pre tabindex="0"><code>a &lt; b\n</code></pre>' in section.content


def test_markup_in_a_guide_is_text():
    shown = guides.render("# T\n\n<script>alert(1)</script> <b>x</b>\n", None)[1]
    assert "<script" not in shown and "<b>" not in shown


@pytest.mark.browser
def test_a_term_shows_its_definition_to_pointer_keyboard_and_finger(visit: Visitor):
    page = visit()
    term = page.locator("main .term").first
    shown = "e => getComputedStyle(e, '::after').content"
    assert term.evaluate(shown) == "none"
    term.focus()
    assert guides.glossary()[term.inner_text().lower()][:20] in term.evaluate(shown)
    touch = visit(width=390, has_touch=True)
    finger = touch.locator("main .term").first
    finger.tap()
    assert touch.url.endswith("index.html")
    assert guides.glossary()[finger.inner_text().lower()][:20] in finger.evaluate(shown)
    finger.tap()
    touch.wait_for_url("**/glossary.html#term-*")


@pytest.mark.browser
def test_the_rest_of_the_menu_opens_without_scripts(look: Guest):
    page = look(scripts=False)
    rest = page.locator("#more")
    assert not rest.is_visible()
    page.get_by_role("button", name="More").click()
    assert rest.is_visible()
    assert {"Findings", "Glossary", "FAQ", "Updates", "Transfer"} <= {
        *rest.locator("a").all_text_contents()
    }
    page.keyboard.press("Escape")
    assert not rest.is_visible()


def test_updates_have_every_result_once_the_youngest_day_first(site: Site):
    days = updates.days(site)
    dates = [day for day, _, _ in days]
    assert dates == sorted(dates, reverse=True)
    names = [(one["stored"].id, one["entry"].name) for _, a, b in days for one in (*a, *b)]
    entries = [(s.id, entry.name) for s in site.boards for entry in s.board.entries]
    assert sorted(names) == sorted(entries)
    assert all(one["date"].startswith(day) for day, a, b in days for one in (*a, *b))
    page, *_ = updates.pages(site)
    assert f"Last updated {site.stamp[:10]}" in html(site, page)


@pytest.mark.browser
def test_a_link_opens_what_a_phone_folds(visit: Visitor):
    page = visit("glossary.html", width=360)
    assert not page.locator("#term-tier").is_visible()
    page = visit("glossary.html#term-tier", width=360)
    assert page.locator("#term-tier").is_visible()
    page.evaluate("location.hash = 'term-ablation'")
    page.locator("#term-ablation").wait_for()
    assert visit("glossary.html").locator("#term-tier").is_visible()
