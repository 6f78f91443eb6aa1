"""The lists of models and tasks as a reader searches and sorts them."""

from __future__ import annotations

from typing import Any

import pytest

from crlbench.site.source import Site
from tests.site.browser import Visitor
from tests.support.chromium import barriers

pytestmark = pytest.mark.browser

MODELS = "models/index.html"


def column(page: Any, label: str) -> list[str]:
    return page.locator(f"[data-list] tbody td[data-label='{label}']").all_text_contents()


def names(page: Any) -> list[str]:
    return page.locator("[data-list] tbody th").all_text_contents()


def sizes(page: Any) -> list[int]:
    cells = page.locator("[data-list] td[data-label=Parameters]").all()
    return [int(cell.get_attribute("data-value")) for cell in cells]


def test_models_begin_by_family_and_size_as_without_scripts(visit: Visitor, site: Site) -> None:
    page = visit(MODELS)
    assert column(page, "Family") == sorted(column(page, "Family"))
    assert names(page) == names(visit(MODELS, scripts=False))
    assert len(names(page)) >= len(site.catalog.list("model"))
    assert "?" not in page.url


def test_models_are_searched_in_all_that_is_said_of_them(visit: Visitor) -> None:
    page = visit(MODELS)
    search = page.get_by_role("searchbox")
    search.fill("qwen2.5 instruct")
    assert names(page) and all("Qwen2.5" in name for name in names(page))
    assert set(column(page, "Kind")) == {"instruct"}
    assert page.url.endswith("?q=qwen2.5+instruct")
    page.get_by_label("Parameters, at most").fill("1B")
    assert max(sizes(page)) < 1e9 and page.url.endswith("?q=qwen2.5+instruct&size_to=1B")
    shown = names(page)
    page.reload()
    assert names(page) == shown and search.input_value() == "qwen2.5 instruct"
    search.fill("no such model")
    assert names(page) == []
    assert "None of" in page.locator("[data-count]").inner_text()
    page.get_by_role("button", name="Reset").click()
    assert len(names(page)) > len(shown) and "?" not in page.url


def test_a_keyboard_sorts_models(visit: Visitor) -> None:
    page = visit(MODELS)
    head = page.locator("thead").get_by_role("button", name="Parameters")
    head.press("Enter")
    assert sizes(page) == sorted(sizes(page), reverse=True) and page.url.endswith("?sort=-size")
    assert page.locator("[aria-sort=descending]").inner_text().strip() == "Parameters"
    head.press("Space")
    assert sizes(page) == sorted(sizes(page)) and page.url.endswith("?sort=size")
    page.get_by_label("Sort by").select_option("Most results")
    assert column(page, "Results")[0] != "no results yet"
    assert column(page, "Results")[-1] == "no results yet"
    page.get_by_label("with results").check()
    assert "no results yet" not in column(page, "Results")
    assert page.url.endswith("?sort=-results&results=1")


def test_an_address_from_elsewhere_is_the_first_view(visit: Visitor) -> None:
    page = visit(f"{MODELS}?sort=%22%3E&size_from=much")
    assert column(page, "Family") == sorted(column(page, "Family"))
    assert "“much” is no number of parameters" in page.locator("[data-count]").inner_text()


def test_a_phone_begins_with_a_part_and_has_the_rest_behind_a_button(visit: Visitor) -> None:
    page = visit(MODELS, width=360)
    everybody = len(names(visit(MODELS)))
    assert len(names(page)) == 20
    page.get_by_label("Sort by").select_option("Parameters, most first")
    assert sizes(page) == sorted(sizes(page), reverse=True)
    assert barriers(page) == []
    page.get_by_role("button", name=f"Show all {everybody} models").press("Enter")
    assert len(names(page)) == everybody and page.url.endswith("?sort=-size&all=1")


def test_tasks_are_searched_and_sorted_too(visit: Visitor) -> None:
    page = visit("tasks/index.html")
    assert names(page) == names(visit("tasks/index.html", scripts=False))
    assert names(page)[:2] == ["addition", "counting"], "those with entries first"
    page.get_by_role("searchbox").fill("arithmetic")
    assert 0 < len(names(page)) < 20
    page.locator("thead").get_by_role("button", name="Task").click()
    assert names(page) == sorted(names(page))
    assert page.url.endswith("?sort=task&q=arithmetic")
