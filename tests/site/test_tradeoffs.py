"""Score against size and cost: the points are the rows of the board, and each has its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crlbench.base.wording import number
from crlbench.pages.table import Cell
from crlbench.pages.words import span
from crlbench.site.source import Site
from crlbench.site.standing_rows import Row
from crlbench.site.standings import Panel, standings
from crlbench.site.tradeoffs import tradeoffs
from tests.site.browser import Visitor


@pytest.fixture(scope="module")
def panel(site: Site) -> Panel:
    return standings(site.boards[0], "ppo").panels[0]


def with_cells(panel: Panel, key: str, *values: float | None) -> Panel:
    """The panel, its ranked rows with these values from the highest estimate to the lowest."""

    def filled(row: Row, value: float | None) -> Row:
        return replace(row, cells=row.cells | {key: Cell(str(value), value)})

    ordered = sorted(panel.rows, key=lambda row: -row.score.value)
    rows = (filled(row, value) for row, value in zip(ordered, values, strict=True))
    return replace(panel, rows=tuple(rows))


def test_a_chart_has_a_point_for_each_row_and_says_its_numbers(panel: Panel) -> None:
    (chart,) = tradeoffs(panel)
    assert chart.key == "cost", "all models of this board are of one size"
    rows = (*panel.rows, *panel.unranked)
    assert sorted(mark.row.name for mark in chart.marks) == sorted(row.name for row in rows)
    for mark in chart.marks:
        score = mark.row.score
        assert mark.title.startswith(f"{mark.row.display_name}, ")
        assert f"Λ {number(score.value)} {span(score.interval)}".strip() in mark.title
        assert (mark.row.standing in mark.title) and ("preview" in mark.title) == (
            mark.row.tier is None
        )
    costs = [mark.row.cells["cost"].value for mark in chart.marks]
    assert costs == sorted(costs)


def test_the_front_is_that_of_the_ranked_rows(panel: Panel) -> None:
    """Of the highest first: 3M, 5M, 2M and 1M; 5M is beaten by 3M."""
    chart = tradeoffs(with_cells(panel, "size", 3_000_000, 5_000_000, 2_000_000, 1_000_000))[0]
    ordered = sorted(panel.rows, key=lambda row: -row.score.value)
    best = [mark.row.name for mark in chart.marks if "on the Pareto front" in mark.title]
    assert chart.key == "size" and best == [ordered[i].name for i in (3, 2, 0)]
    sizes = ((3, "1.00M"), (2, "2.00M"), (0, "3.00M"))
    names = ", ".join(f"{ordered[i].display_name} ({size})" for i, size in sizes)
    assert chart.front == f"No model as small or smaller has a higher Λ: {names}."


def test_where_nothing_ranks_the_front_is_that_of_previews(panel: Panel) -> None:
    spread = with_cells(panel, "cost", 60.0, 120.0, 180.0, 240.0)
    previews = tuple(replace(row, tier=None, standing="preview") for row in spread.rows)
    (chart,) = tradeoffs(replace(panel, rows=(), unranked=previews))
    assert any("on the Pareto front, preview" in mark.title for mark in chart.marks)


def test_who_is_not_drawn_is_counted(panel: Panel) -> None:
    changed = with_cells(panel, "cost", 60.0, 120.0, 180.0, None)
    (chart,) = tradeoffs(replace(changed, incomplete=(panel.rows[1],), unranked=()))
    assert [mark.title.split(", ")[1] for mark in chart.marks] == ["1 min", "2 min", "3 min"]
    assert chart.missing == "2 entries are not drawn: without all tasks, a score or a cost."
    assert tradeoffs(replace(changed, rows=changed.rows[:1], unranked=())) == []
    assert tradeoffs(replace(with_cells(panel, "cost", *[60.0] * 4), unranked=())) == []


def test_costs_that_hardly_differ_have_no_chart(panel: Panel) -> None:
    close = with_cells(panel, "cost", 60.0, 62.0, 65.0, 70.0)
    assert tradeoffs(replace(close, unranked=())) == []
    apart = with_cells(panel, "cost", 60.0, 62.0, 65.0, 80.0)
    assert [chart.key for chart in tradeoffs(replace(apart, unranked=()))] == ["cost"]


def test_of_many_points_those_on_the_front_have_names(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crlbench.site.tradeoffs.MOST_NAMED", 3)
    sized = with_cells(panel, "size", 3_000_000, 5_000_000, 2_000_000, 1_000_000)
    chart = tradeoffs(replace(sized, unranked=()))[0]
    assert len(chart.marks) == 3 and all(mark.looks == "best" for mark in chart.marks)
    assert chart.missing == "1 other entry without a name here: see the table."


@pytest.mark.browser
def test_a_keyboard_reaches_every_point_and_filters_hide_some(visit: Visitor) -> None:
    page = visit()
    titles = page.locator("[data-point] > title").all_text_contents()
    assert len(titles) == 5
    page.locator("[data-point]").first.focus()
    reached: list[Any] = []
    for _ in titles:
        reached.append(page.evaluate("document.activeElement.querySelector('title').textContent"))
        assert page.locator("[data-named]").inner_text() == reached[-1]
        page.keyboard.press("Tab")
    assert reached == titles
    page.get_by_label("Name").fill("qwen")
    seen = page.locator("[data-point]:not([hidden]) > title").all_text_contents()
    assert [one.partition(",")[0] for one in seen] == ["Tiny Qwen2"]
    page.locator("[data-point]:not([hidden])").press("Enter")
    page.wait_for_url("**/models/tiny-qwen2.html")


@pytest.mark.browser
def test_points_stand_without_scripts(visit: Visitor) -> None:
    page = visit(scripts=False)
    assert page.locator("[data-point]").count() == 5
    box = page.locator(".scatter").bounding_box()
    assert box["width"] > 200 and box["height"] > 150
