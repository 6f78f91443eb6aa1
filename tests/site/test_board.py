"""The controls of the standings as a reader uses them, and that a link shows what was seen."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.site.home import pages as home_pages
from crlbench.site.pages import Page, whole
from crlbench.site.render import Renderer
from crlbench.site.source import Site
from crlbench.site.standings import Standings
from tests.site.browser import Visitor, opened
from tests.site.conftest import guarded

pytestmark = pytest.mark.browser

AXES = ("efficiency", "stability", "generalization")


def names(page: Any, axis: str = "efficiency") -> list[str]:
    """The models of a table as they stand, without hidden ones."""
    return page.locator(f"#{axis} tr[data-name]:not([hidden]) th a").all_text_contents()


def values(page: Any, column: str, axis: str = "efficiency") -> list[float]:
    cells = page.locator(f"#{axis} tbody:first-of-type tr[data-name] > .{column}")
    return [float(cell.get_attribute("data-value")) for cell in cells.all()]


def head(page: Any, name: str, axis: str = "efficiency") -> Any:
    return page.locator(f"#{axis}").get_by_role("button", name=name, exact=False)


def test_tiers_are_the_first_order(visit: Visitor):
    page = visit()
    for axis in AXES:
        assert values(page, "tier", axis) == sorted(values(page, "tier", axis))
        assert page.locator(f"#{axis} [aria-sort]").text_content() == "Tier"
    assert "#" not in page.url


def test_a_head_sorts_all_tables_and_turns_the_order(visit: Visitor):
    page = visit()
    head(page, "Λ").click()
    for axis in AXES:
        found = values(page, "score", axis)
        assert found == sorted(found, reverse=True)
        marked = page.locator(f"#{axis} [aria-sort]")
        assert marked.get_attribute("aria-sort") == "descending"
        assert marked.get_attribute("data-key") == "score"
    assert page.url.endswith("#sort=-score")
    head(page, "Λ").click()
    assert values(page, "score") == sorted(values(page, "score"))
    assert page.locator("#efficiency [aria-sort]").get_attribute("aria-sort") == "ascending"
    assert page.locator("tr.next").count() == 0


def test_equal_rows_keep_the_order_of_the_page(visit: Visitor):
    page = visit()
    before = names(page)
    ranked = before[:-1]
    assert ranked not in (sorted(ranked), sorted(ranked, reverse=True)), "the test could not fail"
    for first in ("score", "model", "-model"):
        for then in ("seeds", "-seeds"):
            for order in (first, then):
                page.evaluate("async (state) => { location.hash = state; "
                              "await new Promise(requestAnimationFrame); }", f"sort={order}")
                assert (names(page) == before) == (order == then), (first, order)


def test_entries_without_a_rank_stay_apart(visit: Visitor):
    page = visit()
    for order in ("score", "-score", "model", "-size"):
        page.goto(f"{page.url.split('#')[0]}#sort={order}")
        for axis in AXES:
            assert names(page, axis)[-1] == "Tiny NeoX"
    assert "Ranking needs 5, 10 or 20 seeds" in page.locator("#efficiency").text_content()


def test_filters_narrow_all_tables_and_say_so(visit: Visitor):
    page = visit()
    count = page.locator("[data-count]")
    assert count.inner_text() == "5 entries"
    page.get_by_label("Name").fill("mistral")
    for axis in AXES:
        assert names(page, axis) == ["Tiny Mistral"]
    assert count.inner_text() == "1 of 5 entries; tiers and ranks are those of the whole board"
    page.get_by_label("Name").fill("")
    page.get_by_label("Standing").select_option("preview")
    for axis in AXES:
        assert names(page, axis) == ["Tiny NeoX"]
    page.get_by_role("button", name="Reset").click()
    assert count.inner_text() == "5 entries"
    assert "#" not in page.url


def test_filters_with_one_value_are_left_out(visit: Visitor):
    page = visit()
    found = page.locator("select[data-filter]").evaluate_all("all => all.map(one => one.name)")
    assert found == ["standing"]


def test_what_is_the_same_in_every_row_is_said_once(visit: Visitor):
    page = visit()
    said = page.locator("p.shared").inner_text()
    assert "Badge not verified yet" in said and "Submitted by @someone" in said
    assert page.locator("[data-column=badge], [value=badge], [data-column=size]").count() == 0
    assert page.locator("#efficiency td[data-column=seeds]").all_text_contents() == [*"55552"]
    page.goto(f"{page.url}#sort=-badge&columns=badge")
    assert page.locator("#efficiency [aria-sort]").text_content() == "Tier"


def test_columns_are_chosen(visit: Visitor):
    page = visit()
    assert not page.locator("#efficiency [data-column=head]").first.is_visible()
    page.locator(".columns > summary").click()
    page.get_by_role("checkbox", name="H ", exact=False).first.check()
    page.get_by_role("checkbox", name="Seeds").uncheck()
    assert page.locator("#efficiency [data-column=head]").first.is_visible()
    assert not page.locator("#stability [data-column=seeds]").first.is_visible()
    assert page.url.endswith("#columns=head,known,greedy,cost")
    page.keyboard.press("Escape")
    assert page.locator(".columns[open]").count() == 0


@pytest.mark.parametrize("over", ["file", "http"])
def test_a_link_shows_what_its_sender_saw(visit: Visitor, over: str):
    state = "#sort=-score&q=tiny&standing=provisional&columns=net,failed"
    first = visit(f"index.html{state}", over=over)
    assert names(first)[0] == "Tiny Mistral" and "Tiny NeoX" not in names(first)
    assert first.locator("#efficiency [data-column=net]").first.is_visible()
    assert first.get_by_label("Name").input_value() == "tiny"
    assert first.url.endswith(state)


def test_the_way_back_restores(visit: Visitor):
    page = visit(over="http")
    page.get_by_label("Name").fill("qwen")
    page.locator(".switch > summary").click()
    page.locator("a.pill", has_text="grpo").click()
    page.wait_for_url("**/grpo.html")
    assert sorted(names(page)) == ["Tiny Llama", "Tiny Qwen2"]
    page.go_back()
    page.wait_for_url("**#q=qwen")
    assert names(page) == ["Tiny Qwen2"]
    page.evaluate("location.hash = '#q=gemma'")
    page.wait_for_function("document.querySelector('[data-count]').textContent[0] === '1'")
    assert names(page) == ["Tiny Gemma"]
    page.go_back()
    page.locator("#efficiency tr[data-name*=qwen2]").wait_for()
    assert names(page) == ["Tiny Qwen2"]


def test_a_place_on_the_page_leaves_the_state_alone(visit: Visitor):
    page = visit("index.html#q=qwen")
    page.locator(".jump a").first.click()
    assert page.url.endswith("#sure")
    assert names(page) == ["Tiny Qwen2"]


def test_nonsense_in_an_address_is_the_first_view(visit: Visitor):
    page = visit("index.html#sort=%22%3E&standing=nobody&columns=%00,x&q=")
    assert len(names(page)) == 5
    assert page.locator("#efficiency [aria-sort]").text_content() == "Tier"


def test_the_link_is_copied(visit: Visitor):
    page = visit(over="http", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Name").fill("qwen")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Link copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert page.url.endswith("#q=qwen")


def test_a_keyboard_is_enough(visit: Visitor):
    page = visit()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            "[document.activeElement.tagName, document.activeElement.textContent.trim()]"
        )
        reached.append(focus)
        if focus[0] == "BUTTON" and focus[1].startswith("Ranks"):
            page.keyboard.press("Enter")
            break
    assert ["SELECT", "all"] != reached[-1] and page.url.endswith("#sort=ranks")
    assert any(tag == "SUMMARY" for tag, _ in reached)


def test_a_phone_sorts_by_a_list(visit: Visitor):
    page = visit(width=360)
    page.get_by_label("Sort by").select_option("Score")
    assert names(page)[0] == "Tiny Mistral" and page.url.endswith("#sort=-score")
    assert page.locator("#efficiency thead button").first.is_visible() is False


def test_a_phone_keeps_filters_behind_a_button_that_counts_them(visit: Visitor):
    page = visit("index.html#standing=preview", width=360)
    button = page.get_by_role("button", name="Filters (1)")
    standing = page.get_by_label("Standing")
    assert not standing.is_visible() and button.get_attribute("aria-expanded") == "false"
    button.click()
    assert standing.is_visible() and button.get_attribute("aria-expanded") == "true"
    standing.select_option("all")
    assert page.get_by_role("button", name="Filters", exact=True).is_visible()
    assert not visit(width=1280).get_by_role("button", name="Filters").is_visible()


def test_a_phone_shows_whole_rows(visit: Visitor):
    page = opened(visit(width=360))
    hidden = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{hidden}.length") == 0


def test_controls_are_large_enough_to_touch(visit: Visitor):
    page = visit(width=360)
    page.get_by_role("button", name="Filters").click()
    page.locator(".columns > summary").click()
    low = page.evaluate(
        "[...document.querySelectorAll('.bar a, .pill, .jump a, .controls select, summary,"
        " .controls button, .controls input[type=search]')]"
        ".filter(e => e.offsetHeight && e.offsetHeight < 44).map(e => e.outerHTML.slice(0, 80))"
    )
    assert low == []


@pytest.fixture(scope="module")
def large(
    site: Site, files: Mapping[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A front page with 500 entries."""
    folder = tmp_path_factory.mktemp("large")
    page = next(whole(home_pages(site)))
    (folder / "index.html").write_bytes(Renderer(site).html(grown(page, 500)))
    for name, content in files.items():
        if name.startswith("static/") and "/vendor/" not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def grown(page: Page, count: int) -> Page:
    """The page with its rows over and over, each with a name and a score of its own."""
    shown: Standings = page.data["standings"]
    panels = []
    for panel in shown.panels:
        rows = []
        for i in range(count):
            row = panel.rows[i % len(panel.rows)]
            score = replace(row.score, value=(7919 * i % 1000) / 1000)
            name = f"model-{i:03}"
            rows.append(replace(row, name=f"{name}/ppo", display_name=name, score=score))
        panels.append(replace(panel, rows=tuple(rows), unranked=()))
    return replace(page, data={**page.data, "standings": replace(shown, panels=tuple(panels))})


@pytest.fixture
def visit_large(chromium: Any, large: Path) -> Iterator[Visitor]:
    yield from guarded(Visitor(chromium, {"file": f"{large.as_uri()}/"}))


def test_a_front_page_of_200_entries_is_light(site: Site):
    html = Renderer(site).html(grown(next(whole(home_pages(site))), 200))
    assert len(html) < 900_000 and len(gzip.compress(html, 9)) < 60_000


def test_a_long_board_begins_with_its_first_rows(visit_large: Visitor):
    page = visit_large()
    assert page.locator("[data-count]").inner_text() == "500 entries"
    assert len(names(page)) == 60
    page.get_by_label("Name").fill("model-49")
    assert sorted(names(page)) == [f"model-{i}" for i in range(490, 500)]
    page.get_by_label("Name").fill("")
    page.locator("#efficiency").get_by_role("button", name="Show all 500 entries").click()
    assert len(names(page)) == 500 and page.url.endswith("#all=1")


@pytest.mark.slow
def test_500_entries_are_sorted_and_filtered_at_once(visit_large: Visitor):
    """Script, style, layout and paint of a click or a letter: 100 ms of the page's thread."""
    page = visit_large()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def cost(work: str, argument: str) -> float:
        before = spent()
        page.evaluate(f"async (x) => {{ ({work})(x); {frames} }}", argument)
        return spent() - before

    frames = "for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
    click = "(key) => document.querySelector(`#efficiency [data-key=${key}] button`).click()"
    letter = """(part) => {
        const field = document.querySelector('[name=q]');
        field.value = part;
        field.dispatchEvent(new Event('input', {bubbles: true}));
    }"""
    orders = ("score", "model", "score", "tier", "score", "model")
    sorting = sorted(cost(click, one) for one in orders)
    filtering = sorted(cost(letter, one) for one in ("-01", "-", "-4", "l-2", "9", ""))
    assert (sorting[3] < 0.1, filtering[3] < 0.1) == (True, True), (sorting, filtering)
