"""The page of a comparison in a real chromium, as the other pages are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.pages.compare import render_comparison
from crlbench.verdict.compare import compare
from tests.pages.test_browser import Visit, contrast
from tests.support.chromium import barriers
from tests.support.simulate import hostile
from tests.verdict.test_compare import FAST, SAME, SLOW, read, write_entries

pytestmark = pytest.mark.browser
SIZES = {"phone": 360, "tablet": 768, "desk": 1280, "wide": 2560}
NAMES = ("two", "three", "forced", "hostile")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("compare")
    failing = replace(FAST, failed=(("counting", 3, 22),))
    loaded = read(write_entries(root / "board", SLOW, failing, SAME))
    other = read(write_entries(root / "other", replace(FAST, items=16)))
    odd = hostile(replace(SLOW, seeds=2, items=16, recipe="<b>x" * 30))
    strange = read(write_entries(root / "odd", odd, replace(odd, model="m" * 90)))
    comparisons = {
        "two": compare(loaded[:2]),
        "three": compare(loaded, by="bytes"),
        "forced": compare([loaded[0], *other], force=True),
        "hostile": compare(strange),
    }
    written = {}
    for name, comparison in comparisons.items():
        written[name] = root / f"{name}.html"
        written[name].write_text(render_comparison(comparison), encoding="utf-8")
    return written


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_no_error_no_request_no_overflow(chromium, pages, name: str, scheme: str):
    with Visit(chromium, pages[name], min(SIZES.values()), scheme) as visit:
        visit.open_details()
        for width in SIZES.values():
            visit.page.set_viewport_size({"width": width, "height": 800})
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.problems == []
        assert [url for url in visit.requests if url not in (visit.own, "data:,")] == []


def test_the_banner_is_legible_and_stays(chromium, pages):
    for scheme in ("light", "dark"):
        with Visit(chromium, pages["forced"], 360, scheme) as visit:
            banner = visit.page.locator(".banner")
            ground, ink = banner.evaluate(
                "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
            )
            assert contrast(ground, ink) >= 4.5
            visit.page.evaluate("window.scrollTo(0, 3000)")
            assert banner.bounding_box()["y"] == pytest.approx(0, abs=1)


def test_words_stay_inside_their_figures(chromium, pages):
    script = """
    [...document.querySelectorAll('.crl-figure')].filter(f => f.getBBox().width > 0).flatMap(f => {
      const box = f.getBoundingClientRect();
      return [...f.querySelectorAll('text')].filter(t => {
        const r = t.getBoundingClientRect();
        return r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1;
      }).map(t => t.textContent);
    })
    """
    for name in NAMES:
        with Visit(chromium, pages[name], 1280, "light") as visit:
            visit.open_details()
            assert visit.page.evaluate(script) == []


def test_it_works_without_scripts_and_by_keyboard(chromium, pages):
    with Visit(chromium, pages["three"], 1280, "light", java_script_enabled=False) as visit:
        visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**#main")
        pair = visit.page.locator("details.comparison > summary").first
        pair.focus()
        visit.page.keyboard.press("Enter")
        visit.page.get_by_role("img", name="Difference, addition").first.wait_for()


def test_a_cell_of_the_matrix_opens_its_pair(chromium, pages):
    with Visit(chromium, pages["three"], 1280, "light") as visit:
        details = visit.page.locator("details.comparison").nth(1)
        assert details.get_attribute("open") is None
        visit.page.locator(".matrix a[href='#pair-2']").first.click()
        assert details.get_attribute("open") is not None


def test_it_prints_with_its_watermark_and_every_pair(chromium, pages):
    with Visit(chromium, pages["forced"], 1280, "light") as visit:
        assert visit.page.pdf(format="A4").startswith(b"%PDF") and visit.problems == []
        visit.page.emulate_media(media="print")
        mark = "getComputedStyle(document.body, '::after').content"
        assert visit.page.evaluate(mark) == '"NOT COMPARABLE"'
    with Visit(chromium, pages["three"], 1280, "light") as visit:
        visit.page.pdf(format="A4")
        visit.page.emulate_media(media="print")
        drawn = visit.page.get_by_role("img", name="Difference, addition")
        assert drawn.last.bounding_box()["height"] > 0


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("two", "dark"),
        pytest.param("three", "light", marks=pytest.mark.slow),
        pytest.param("forced", "light", marks=pytest.mark.slow),
    ],
)
def test_the_accessibility_checker_finds_nothing_serious(chromium, pages, name: str, scheme: str):
    with Visit(chromium, pages[name], 1280, scheme) as visit:
        visit.open_details()
        assert barriers(visit.page) == []
