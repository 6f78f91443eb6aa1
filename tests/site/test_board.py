"""The controls of the standings as a reader uses them, and that a link shows what was seen."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench.pages.table import Cell
from crlbench.site.facets import format_count
from crlbench.site.home import pages as home_pages
from crlbench.site.pages import Page, whole
from crlbench.site.render import Renderer
from crlbench.site.source import Site
from crlbench.site.standings import Standings
from crlbench.site.tradeoffs import tradeoffs
from tests.site.browser import Regular, Visitor, opened
from tests.site.conftest import guarded
from tests.support.chromium import barriers

pytestmark = pytest.mark.browser

AXES = ("efficiency", "stability", "generalization")


def names(page: Any, axis: str = "efficiency") -> list[str]:
    """The models of a table as they stand, without hidden ones."""
    return page.locator(f"#{axis} tr[data-name]:not([hidden]) th a").all_text_contents()


def values(page: Any, column: str, axis: str = "efficiency") -> list[float]:
    cells = page.locator(f"#{axis} tbody:first-of-type tr[data-name] > .{column}")
    return [float(cell.get_attribute("data-value")) for cell in cells.all()]


def column(page: Any, key: str, axis: str = "efficiency") -> Any:
    """The cells below a head."""
    keys = page.locator(f"#{axis} thead th").evaluate_all("all => all.map(h => h.dataset.key)")
    return page.locator(f"#{axis} tr[data-name] > :nth-child({keys.index(key) + 1})")


def head(page: Any, name: str, axis: str = "efficiency") -> Any:
    return page.locator(f"#{axis}").get_by_role("button", name=name, exact=False)


@pytest.mark.slow
def test_tiers_are_the_first_order(visit: Visitor):
    page = visit()
    for axis in AXES:
        assert values(page, "tier", axis) == sorted(values(page, "tier", axis))
        assert page.locator(f"#{axis} [aria-sort]").text_content() == "Tier"
    assert "?" not in page.url and "#" not in page.url


def test_a_head_sorts_all_tables_and_turns_the_order(visit: Visitor):
    page = visit()
    head(page, "Λ").click()
    for axis in AXES:
        found = values(page, "score", axis)
        assert found == sorted(found, reverse=True)
        marked = page.locator(f"#{axis} [aria-sort]")
        assert marked.get_attribute("aria-sort") == "descending"
        assert marked.get_attribute("data-key") == "score"
    assert page.url.endswith("?sort=-score")
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
    assert "?" not in page.url


def test_filters_with_one_value_are_left_out(visit: Visitor):
    page = visit()
    found = page.locator("select[data-filter]").evaluate_all("all => all.map(one => one.name)")
    assert found == ["standing"]


def test_what_is_the_same_in_every_row_is_said_once(visit: Visitor):
    page = visit()
    said = page.locator("p.shared").inner_text()
    assert "Badge not verified yet" in said and "Submitted by @someone" in said
    assert page.locator("[data-key=badge], [value=badge], [data-key=size]").count() == 0
    assert column(page, "seeds").all_text_contents() == [*"55552"]
    page.goto(f"{page.url}#sort=-badge&columns=badge")
    assert page.locator("#efficiency [aria-sort]").text_content() == "Tier"


def test_columns_are_chosen(visit: Visitor):
    page = visit()
    assert not column(page, "head").first.is_visible()
    page.locator(".columns > summary").click()
    page.get_by_role("checkbox", name="H ", exact=False).first.check()
    page.get_by_role("checkbox", name="Seeds").uncheck()
    assert column(page, "head").first.is_visible()
    assert not column(page, "seeds", "stability").first.is_visible()
    assert page.url.endswith("?columns=head,known,greedy,cost")
    page.keyboard.press("Escape")
    assert page.locator(".columns[open]").count() == 0


@pytest.mark.parametrize(("over", "before"), [("file", "?"), ("http", "?"), ("http", "#")])
def test_a_link_shows_what_its_sender_saw(visit: Visitor, over: str, before: str):
    """Links of earlier sites hold the state behind a number sign."""
    state = "sort=-score&q=tiny&standing=provisional&columns=net,failed"
    first = visit(f"index.html{before}{state}", over=over)
    assert names(first)[0] == "Tiny Mistral" and "Tiny NeoX" not in names(first)
    assert column(first, "net").first.is_visible()
    assert first.get_by_label("Name").input_value() == "tiny"
    assert first.url.endswith(f"index.html?{state}")


def test_the_way_back_restores(visit: Visitor):
    page = visit(over="http")
    page.get_by_label("Name").fill("qwen")
    page.locator(".switch > summary").click()
    page.locator("a.pill", has_text="grpo").click()
    page.wait_for_url("**/grpo.html")
    assert sorted(names(page)) == ["Tiny Llama", "Tiny Qwen2"]
    page.go_back()
    page.wait_for_url(re.compile(r"\?q=qwen$"))
    assert names(page) == ["Tiny Qwen2"]
    page.evaluate("location.hash = '#q=gemma'")
    page.wait_for_function("document.querySelector('[data-count]').textContent[0] === '1'")
    assert names(page) == ["Tiny Gemma"]
    page.go_back()
    page.locator("#efficiency tr[data-name*=qwen2]").wait_for()
    assert names(page) == ["Tiny Qwen2"]


def test_a_place_on_the_page_leaves_the_state_alone(visit: Visitor):
    page = visit("index.html?q=qwen")
    page.locator(".jump a").first.click()
    assert page.url.endswith("?q=qwen#sure")
    assert names(page) == ["Tiny Qwen2"]
    page.get_by_label("Name").fill("llama")
    page.wait_for_url(re.compile(r"\?q=llama#sure$"))
    page.go_back()
    page.wait_for_url(re.compile(r"\?q=qwen$"))
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
    assert page.url.endswith("?q=qwen")


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
    assert ["SELECT", "all"] != reached[-1] and page.url.endswith("?sort=ranks")
    assert any(tag == "SUMMARY" for tag, _ in reached)


def test_a_phone_sorts_by_a_list(visit: Visitor):
    page = visit(width=360)
    page.get_by_label("Sort by").select_option("Score")
    assert names(page)[0] == "Tiny Mistral" and page.url.endswith("?sort=-score")
    assert page.locator("#efficiency thead button").first.is_visible() is False


def test_a_phone_keeps_filters_behind_a_button_that_counts_them(visit: Visitor):
    page = visit("index.html?standing=preview", width=360)
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
            name, size = f"model-{i:03}", 1_004_000 * (i + 1)
            cells = row.cells | {"size": Cell(format_count(size), size)}
            entry = f"{name}/ppo"
            known = replace(row, name=entry, display_name=name, score=score, cells=cells)
            rows.append(replace(known, compared=entry))
        panels.append(replace(panel, rows=tuple(rows), unranked=()))
    made = {"standings": replace(shown, panels=tuple(panels)), "tradeoffs": tradeoffs(panels[0])}
    return replace(page, data={**page.data, **made, "sizes": ["1M", "502M"]})


@pytest.fixture(scope="module")
def regular_of_the_large(chromium: Any, large: Path) -> Iterator[Regular]:
    regular = Regular(chromium, {"file": f"{large.as_uri()}/"})
    yield regular
    regular.close()


@pytest.fixture
def visit_large(regular_of_the_large: Regular) -> Iterator[Visitor]:
    yield from guarded(regular_of_the_large)


def test_a_front_page_of_200_entries_is_light(site: Site):
    html = Renderer(site).html(grown(next(whole(home_pages(site))), 200))
    assert len(html) < 850_000 and len(gzip.compress(html, 9)) < 60_000


def test_a_long_board_begins_with_its_first_rows(visit_large: Visitor):
    page = visit_large()
    assert page.locator("[data-count]").inner_text() == "500 entries"
    assert len(names(page)) == 60
    page.get_by_label("Name").fill("model-49")
    assert sorted(names(page)) == [f"model-{i}" for i in range(490, 500)]
    page.get_by_label("Name").fill("")
    page.locator("#efficiency").get_by_role("button", name="Show all 500 entries").click()
    assert len(names(page)) == 500 and page.url.endswith("?all=1")


def test_a_range_of_sizes_narrows_the_tables_and_stays_in_the_address(visit_large: Visitor):
    page = visit_large()
    least, most = (page.get_by_label(f"Parameters, at {end}") for end in ("least", "most"))
    least.fill("498M")
    assert sorted(names(page)) == [f"model-{i}" for i in range(495, 500)]
    most.fill("0.4995B")
    assert sorted(names(page)) == ["model-495", "model-496"], "498M and 499M"
    assert page.url.endswith("?size_from=498M&size_to=0.4995B")
    page.reload()
    assert len(names(page)) == 2 and least.input_value() == "498M"
    page.goto(f"{page.url.split('?')[0]}?size_from=1.00M&size_to=1,004,000")
    assert names(page) == ["model-000"], "a size fits as it is shown, 1.00M"


def test_a_size_that_is_none_is_told_and_narrows_nothing(visit_large: Visitor):
    page = visit_large()
    most = page.get_by_label("Parameters, at most")
    for text in ("small", "-5M", "1,5B", "12 GB", "1e6"):
        most.fill(text)
        said = page.locator("[data-count]").inner_text()
        assert said == f"“{text}” is no number of parameters; write 500M or 1.5B. 500 entries"
        assert most.get_attribute("aria-invalid") == "true" and "?" not in page.url
    most.fill("")
    assert page.locator("[data-count]").inner_text() == "500 entries"
    assert most.get_attribute("aria-invalid") is None


def test_what_is_not_on_the_board_is_sought_among_all_models(visit: Visitor):
    page = visit()
    link = page.get_by_role("link", name="Look among all models")
    assert not link.is_visible()
    page.get_by_label("Name").fill("smollm2")
    assert page.locator("[data-count]").inner_text() == "No entry matches."
    link.click()
    page.wait_for_url(re.compile(r"models/index\.html\?q=smollm2$"))
    found = page.locator("[data-list] tbody th").all_text_contents()
    assert found and all("smollm2" in name.lower() for name in found)


def tick(page: Any, name: str, axis: str = "efficiency") -> Any:
    return page.locator(f"#{axis}").get_by_role("checkbox", name=f"Compare {name}", exact=True)


def test_ticked_entries_are_compared(visit: Visitor, site: Site):
    page = visit()
    bar = page.get_by_role("region", name="Ticked entries")
    assert not bar.is_visible()
    tick(page, "Tiny Qwen2").press("Space")
    assert "1 ticked (tick another to compare): Tiny Qwen2" in bar.inner_text()
    assert bar.get_by_role("link").count() == 0
    tick(page, "Tiny Llama", "stability").press("Space")
    assert all(tick(page, "Tiny Llama", axis).is_checked() for axis in AXES)
    assert "2 ticked: Tiny Qwen2, Tiny Llama" in bar.inner_text()
    picked = [f"tiny-{name}@00000000/ppo" for name in ("qwen2", "llama")]
    assert page.url.endswith(f"?compare={','.join(picked)}")
    assert barriers(page) == []
    bar.get_by_role("link", name="Compare 2 entries").press("Enter")
    page.wait_for_selector("[data-result][data-state=compared]")
    shown = [page.get_by_label(f"Entry {letter}", exact=True).input_value() for letter in "AB"]
    assert shown == [f"{site.boards[0].id}/{name}" for name in picked]
    page.go_back()
    page.locator("#efficiency tr[data-name*=qwen2] .tick :checked").wait_for()
    assert tick(page, "Tiny Llama").is_checked()
    bar.get_by_role("button", name="Clear").click()
    assert not bar.is_visible() and page.locator(".tick :checked").count() == 0
    assert "?" not in page.url


def test_ticks_outlive_a_filter_and_nonsense_is_no_tick(visit: Visitor):
    llama = "tiny-llama@00000000/ppo"
    page = visit(f"index.html?q=qwen&compare={llama},nobody/ppo,{llama}")
    assert names(page) == ["Tiny Qwen2"]
    assert "1 ticked" in page.get_by_role("region", name="Ticked entries").inner_text()
    tick(page, "Tiny Qwen2").press("Space")
    page.get_by_label("Name").fill("")
    assert tick(page, "Tiny Llama").is_checked() and tick(page, "Tiny Qwen2").is_checked()


def test_six_ticks_are_the_most(visit_large: Visitor):
    page = visit_large("index.html?sort=model")
    for i in range(6):
        tick(page, f"model-00{i}").press("Space")
    assert "6 ticked (six are the most)" in page.locator("[data-ticked]").inner_text()
    assert tick(page, "model-006").is_disabled()
    tick(page, "model-003").press("Space")
    assert tick(page, "model-006").is_enabled()


def test_without_scripts_there_are_no_ticks_and_no_controls(visit: Visitor):
    page = visit(scripts=False)
    assert page.locator("#efficiency tr[data-name]").count() == 5
    assert page.locator(".tick").count() == 0
    for control in ("[data-controls]", "[data-ticked]"):
        assert not page.locator(control).is_visible()


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


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_axis_lies_over_the_bars_and_no_column_is_cut_off(visit: Visitor, width: int):
    page = visit(width=width)
    heads, rows = (
        page.evaluate(
            """where => [...document.querySelectorAll(`.board:not(.brief) ${where} svg`)].map(
                 one => { const box = one.getBoundingClientRect(); return [box.x, box.width]; })""",
            where,
        )
        for where in ("thead .drawn", "tbody .drawn:not(.learning)")
    )
    assert len(heads) == 1 and len(rows) >= 2
    for row in rows:
        assert row == pytest.approx(heads[0], abs=1)
    cut = page.evaluate(
        "[...document.querySelectorAll('.board .scroll')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert max(cut) <= 0


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("way", ["address", "click"])
def test_a_jump_ends_at_its_heading(visit: Visitor, width: int, way: str):
    page = visit("index.html#sure" if way == "address" else "index.html", width=width)
    if way == "click":
        page.get_by_role("link", name="How sure is that?").click()
    settled = "document.querySelector('#sure').getBoundingClientRect().top"
    page.wait_for_function(f"{settled} >= 0 && {settled} < 200")
    page.wait_for_timeout(600)
    assert 0 <= page.evaluate(settled) < 200
