"""Comparing and recomputing in a real browser: picks, links, refusals, the numbers of Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from crlbench.base.wording import number
from crlbench.catalog.find import Catalog
from crlbench.pages.words import estimate, measured, span, value
from crlbench.site import build as building
from crlbench.site import compare_pairs as comparing
from crlbench.site import items
from crlbench.site.build import build, write
from crlbench.site.compare import pages as compare_pages
from crlbench.site.pages import entry_path, whole
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.intervals import Interval
from crlbench.verdict.axes import AXES
from crlbench.verdict.pairs import paired_axes
from tests.site.browser import SHIFT, WAYS, Visitor, length, opened, recompute
from tests.support.chromium import barriers

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


@pytest.fixture
def board(site: Site) -> StoredBoard:
    """The board that ranks."""
    return site.boards[0]


@pytest.fixture
def compare(visit: Visitor) -> Open:
    """Opens the page with entries picked, and waits for what they lead to."""

    def open_(*keys: str, state: str = "compared", **options: Any) -> Any:
        page = visit(f"compare.html#{state_of(*keys)}", **options)
        page.wait_for_selector(f"[data-result][data-state={state}]")
        return page

    return open_


def key(stored: StoredBoard, model: str, recipe: str = "ppo") -> str:
    return f"{stored.id}/{model}@00000000/{recipe}"


def keys(stored: StoredBoard, most: int = 6) -> list[str]:
    return [f"{stored.id}/{entry.name}" for entry in stored.board.entries][:most]


def compared(page: Any) -> None:
    page.wait_for_selector("[data-result][data-state=compared]")


def rows(page: Any, selector: str) -> list[list[str]]:
    found = page.locator(f"{selector} tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in found]


def state_of(*keys: str) -> str:
    return "&".join(f"{letter}={k}" for letter, k in zip("abcdef", keys, strict=False))


def signed(interval: Interval) -> str:
    ends = (measured(end, interval, signed=True) for end in (interval.low, interval.high))
    return f"[{', '.join(ends)}]"


@pytest.mark.parametrize("order", [1, -1])
def test_verdicts_are_those_of_python_in_both_orders(compare: Open, board: StoredBoard, order: int):
    names = ("tiny-llama@00000000/ppo", "tiny-qwen2@00000000/ppo")[::order]
    first, second = map(board.board.entry, names)
    expected = paired_axes(first, second, board.board.margin)
    page = compare(*(f"{board.id}/{name}" for name in names))
    for axis in AXES:
        effect, wider = expected[axis].effect, expected[axis].wider
        (row,) = rows(page, f"[data-axis={axis}] > .scroll")
        labels = [side.display_name for side in (second, first)]
        assert row[0] == " against ".join(labels)
        assert row[1].split()[-1] == effect.verdict
        assert row[2] == value(effect, signed=True)
        assert row[3:5] == [signed(effect.interval), signed(effect.inner)]
        assert row[5] == ("–" if wider is None else signed(wider))
        assert row[6:8] == [number(effect.correlation, 2), str(effect.n)]
        opened(page)
        tasks = rows(page, f"[data-axis={axis}] details")
        assert [task[2] for task in tasks] == [
            value(one, signed=True) for _, one in sorted(expected[axis].by_task.items())
        ]


def test_entries_are_picked_by_keyboard_and_the_address_keeps_them(
    visit: Visitor, board: StoredBoard
):
    page = visit("compare.html")
    page.get_by_label("Entry A", exact=True).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    compared(page)
    a, b = (page.get_by_label(f"Entry {letter}", exact=True).input_value() for letter in "AB")
    c = key(board, "tiny-llama", "grpo")
    assert (a, b) == (key(board, "tiny-gemma"), key(board, "tiny-llama"))
    assert page.evaluate("location.hash") == f"#{state_of(a, b)}"
    page.get_by_role("button", name="Add another").press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Entry C"
    page.get_by_label("Entry C", exact=True).select_option(c)
    page.locator("[data-axis=efficiency] > .scroll tbody tr").nth(2).wait_for()
    page.locator("[data-x]").select_option("bytes")
    kept = page.evaluate("location.hash")
    assert kept == f"#{state_of(a, b, c)}&x=bytes"
    assert "bytes generated" in page.locator("[aria-labelledby=thresholds] caption").inner_text()
    page.reload()
    compared(page)
    assert page.evaluate("location.hash") == kept
    assert page.get_by_label("Entry B", exact=True).input_value() == b
    assert page.locator("[data-x]").input_value() == "bytes"
    page.get_by_role("button", name="Remove entry B").press("Enter")
    assert page.evaluate("location.hash") == f"#{state_of(a, c)}&x=bytes"


def test_six_entries_are_the_most_and_two_the_least(visit: Visitor, board: StoredBoard):
    page = visit("compare.html")
    add, message = page.get_by_role("button", name="Add another"), page.locator("[data-message]")
    assert "Pick two" in message.inner_text()
    for _ in range(4):
        add.click()
    assert page.locator(".slot").count() == 6
    assert not add.is_visible()
    first = keys(board)[0]
    for state, told in (
        (state_of(first, first), "picked twice"),
        (state_of(first, "nowhere/at/all"), "Not on this site: nowhere/at/all."),
    ):
        page.evaluate("state => { location.hash = state; }", state)
        message.filter(has_text=told).wait_for()


def test_entries_of_other_conditions_are_refused_with_what_differs(compare: Open, site: Site):
    first, second = site.boards[:2]
    page = compare(keys(first)[0], keys(second)[0], state="refused")
    found = {row[0]: row[1:] for row in rows(page, "[data-result]")}
    assert found == {
        "conditions.evaluation.curve_items": ["16", "12"],
        "conditions.evaluation.end_items": ["16", "12"],
    }
    text = page.locator("[data-result]").inner_text()
    assert first.board.fingerprint in text and second.board.fingerprint in text
    assert page.locator("[data-axis]").count() == 0


def test_without_scripts_every_entry_stands_against_the_leaders(visit: Visitor, site: Site):
    assert not visit("compare.html", scripts=False).locator("[data-picker]").is_visible()
    page = visit("compare/all.html", scripts=False)
    for stored in site.boards:
        for entry in stored.board.entries:
            path = entry_path(stored.id, entry.model, entry.recipe)
            assert page.locator(f"main a[href='../{path}']").count()
    board = site.boards[0].board
    ranking = board.rankings["ppo"]["efficiency"].ranking
    leader = board.entry(ranking.anchors[0])
    table = page.locator(".against", has_text="Sample efficiency").first
    cells = table.locator("tbody tr").all()
    assert len(cells) == len(ranking.standings) >= 3
    for standing, row in zip(ranking.by_estimate(), cells, strict=True):
        entry = board.entry(standing.model)
        texts = row.locator("th, td").all_inner_texts()
        assert texts[:2] == [entry.display_name, str(standing.tier)]
        if entry is leader:
            assert texts[3] == "leader"
        else:
            effect = paired_axes(leader, entry, board.margin)["efficiency"].effect
            assert texts[3].split()[-2:] == [effect.verdict, value(effect, signed=True)]


def test_two_entries_begin_with_the_verdicts_and_more_with_a_matrix(
    compare: Open, board: StoredBoard
):
    names = [f"{model}@00000000/ppo" for model in ("tiny-llama", "tiny-qwen2", "tiny-gemma")]
    first, second, third = map(board.board.entry, names)
    page = compare(*(f"{board.id}/{name}" for name in names[:2]))
    told = page.locator("[data-opening]").inner_text()
    assert told.startswith(f"{second.display_name} against {first.display_name}: ")
    for effect in (one.effect for one in paired_axes(first, second, board.board.margin).values()):
        assert f"({value(effect, signed=True)})" in told and effect.verdict in told
    page = compare(*(f"{board.id}/{name}" for name in names))
    effect = paired_axes(first, third, board.board.margin)["efficiency"].effect
    row = rows(page, "[data-matrix=efficiency]")[2]
    assert row[0] == third.display_name and row[3] == "–"
    assert row[1].split()[-2:] == [effect.verdict, value(effect, signed=True)]
    order = "[...document.querySelectorAll('[data-result] > section > h2')].map(h => h.id)"
    assert page.evaluate(order) == ["matrix", "learning", "verdicts", "thresholds", "headlines"]


def test_a_board_with_too_many_pairs_says_which_are_missing(
    board: StoredBoard, chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(comparing, "MOST_PAIRS", 2)
    monkeypatch.setattr(comparing, "PAIRS_EACH", 0)
    compared_ = comparing.chosen(board)
    rankings = [axis.ranking for by in board.board.rankings.values() for axis in by.values()]
    leaders = {ranking.anchors[0] for ranking in rankings if ranking.anchors}
    assert len(compared_) == 2 and all(leaders & set(pair) for pair in compared_)
    monkeypatch.setattr(building, "parts", lambda site: [*compare_pages(site)])
    write(build(Site((board,), Catalog())), tmp_path / "out")
    names = [name for name in board.by_entry if name not in {n for p in compared_ for n in p}][:2]
    visit = Visitor(chromium, {"file": f"{(tmp_path / 'out').as_uri()}/"})
    page = visit(f"compare.html#{state_of(*(f'{board.id}/{name}' for name in names))}")
    compared(page)
    (told,) = page.locator("[data-absent]").all_inner_texts()
    assert page.locator("[data-axis]").count() == 0
    assert f"crlbench compare {' '.join(names)}" in told
    page = visit("compare/all.html")
    assert "too many entries to ship every pair" in page.locator("#all ~ p").last.inner_text()
    visit.close()
    assert visit.problems == []


def test_a_large_board_leaves_out_pairs_that_differ_in_model_and_recipe(
    board: StoredBoard, monkeypatch: pytest.MonkeyPatch
):
    entries = {entry.name: entry for entry in board.board.entries}

    def two_things_differ(pair: comparing.Names) -> bool:
        a, b = (entries[name] for name in pair)
        return a.model != b.model and a.recipe != b.recipe

    everything = comparing.chosen(board)
    assert len(everything) == len(list(combinations(entries, 2)))
    assert any(two_things_differ(pair) for pair in everything)
    monkeypatch.setattr(comparing, "MOST_PAIRS", len(everything) - 1)
    monkeypatch.setattr(comparing, "PAIRS_EACH", len(everything))
    assert set(comparing.chosen(board)) == {p for p in everything if not two_things_differ(p)}


@pytest.mark.parametrize("over", WAYS)
def test_it_compares_from_disk_and_from_a_server(compare: Open, board: StoredBoard, over: str):
    page = compare(*keys(board, 2), over=over)
    assert page.locator("figure svg > title").count() == 5


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_a_comparison_is_accessible_and_fits(
    compare: Open, board: StoredBoard, width: int, scheme: str
):
    page = opened(compare(*keys(board, 2), width=width, scheme=scheme))
    assert page.locator("figure svg").count() == 5
    assert page.locator("style").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{cut}.map(e => e.getAttribute('aria-label'))") == []
    assert barriers(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 6])
def test_a_phone_shows_a_comparison_on_twelve_screens_and_opens_the_rest(
    compare: Open, board: StoredBoard, count: int
):
    page = compare(*keys(board, count), width=360)
    assert page.evaluate(SHIFT) < 0.1
    page.set_viewport_size({"width": 360, "height": 640})
    assert length(page) <= 12 * 640
    assert page.locator("[data-matrix] table").first.is_visible() == (count > 2)
    curves = page.locator("[data-figure=curves]")
    assert not curves.is_visible()
    page.locator("summary", has=page.locator("#learning")).press("Enter")
    curves.locator("svg").wait_for()
    page.locator("[data-x]").select_option("bytes")
    page.locator("svg", has_text="bytes generated").first.wait_for()
    assert curves.is_visible(), "what the reader opened stays open"
    assert not page.locator("[data-axis]").first.is_visible()
    assert barriers(page) == []


@pytest.mark.parametrize("count", [0, 2, 6])
def test_nothing_moves_while_a_comparison_loads(
    visit: Visitor, compare: Open, board: StoredBoard, count: int
):
    page = compare(*keys(board, count)) if count else visit("compare.html")
    assert page.evaluate(SHIFT) < 0.1


def test_figures_follow_the_theme_and_stand_as_tables_too(compare: Open, board: StoredBoard):
    page = compare(*keys(board, 2))
    drawn = "[...document.querySelectorAll('[data-figure=curves] path')].map(p => p.outerHTML)"
    before = page.evaluate(drawn)
    assert len(before) > 10
    page.locator("[data-theme-toggle]").click()
    assert page.evaluate(drawn) != before
    opened(page)
    task = board.board.entries[0].efficiency.tasks["addition"]
    row = rows(page, "[data-figure=areas]")[0]
    assert row[0] == "addition" and row[2:4] == [number(task.E), number(task.H)]
    assert row[5] == f"{value(task.lam)} {span(task.lam.interval) or '–'}"


# Recomputing ----------------------------------------------------------------------------------


def test_lambda_recomputed_in_the_browser_is_that_of_python(compare: Open, board: StoredBoard):
    entries = [e for e in board.board.entries if e.failed or e.recipe == "grpo"][:3]
    assert any(entry.failed for entry in entries)
    names = [f"{board.id}/{entry.name}" for entry in entries]
    page = compare(*names)
    for entry, name in zip(entries, names, strict=True):
        outcome, text, found = recompute(page, name)
        score = entry.axes["efficiency"]
        assert found["value"] == pytest.approx(score.value, abs=1e-12)
        published = [score.interval.low, score.interval.high]
        assert found["interval"] == pytest.approx(published, abs=1e-6)
        assert outcome == "equal"
        assert text.count(f"Λ = {estimate(score)}") == 2
        assert text.endswith("equal to six decimals.")


def test_the_page_of_an_entry_has_the_button_too(visit: Visitor, board: StoredBoard):
    entry = board.board.entries[0]
    page = visit(entry_path(board.id, entry.model, entry.recipe))
    assert recompute(page, keys(board)[0])[0] == "equal"


def test_a_preview_has_no_interval_to_recompute(compare: Open, board: StoredBoard):
    name = key(board, "tiny-neox")
    outcome, text, found = recompute(compare(name, keys(board)[0]), name)
    assert (outcome, found["interval"]) == ("equal", None)


@pytest.fixture
def changed(
    folder: Path, tmp_path: Path, chromium: Any, board: StoredBoard
) -> Callable[[Callable[[Path], None]], Any]:
    """The comparison of the first two entries on a copy whose file of answers was changed."""
    visits = []

    def open_(change: Callable[[Path], None]) -> Any:
        shutil.copytree(folder, tmp_path / "out")
        entry = board.board.entries[0]
        change(tmp_path / "out" / items.items_path(board.id, entry.model, entry.recipe))
        visits.append(Visitor(chromium, {"file": f"{(tmp_path / 'out').as_uri()}/"}))
        page = visits[0](f"compare.html#{state_of(*keys(board, 2))}")
        compared(page)
        return page

    yield open_
    for visit in visits:
        visit.close()


def test_a_changed_answer_shows(changed: Any, board: StoredBoard):
    def change(path: Path) -> None:
        text = path.read_text()
        other = re.sub('"curve":"....', '"curve":"////', text, count=1)
        assert other != text
        path.write_text(other)

    outcome, text, _ = recompute(changed(change), keys(board)[0])
    assert outcome == "different" and "NOT equal: apart by" in text


def test_a_vector_that_is_cut_short_is_told(changed: Any, board: StoredBoard):
    def change(path: Path) -> None:
        path.write_text(re.sub('"curve":"....', '"curve":"', path.read_text(), count=1))

    outcome, text, _ = recompute(changed(change), keys(board)[0])
    assert outcome == "failed" and "cut short" in text


def test_a_missing_file_is_told(changed: Any, board: StoredBoard):
    outcome, text, _ = recompute(changed(Path.unlink), keys(board)[0])
    assert outcome == "failed" and "cannot be loaded" in text


@pytest.mark.parametrize("kind", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_partial_credit_is_recomputed_too(
    changed: Any, board: StoredBoard, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.setattr(items, "kind_of", lambda vectors: kind)
    made = {data.path: data.content for data in whole(items.pages(Site((board,), Catalog())))}

    def change(path: Path) -> None:
        path.write_bytes(next(c for name, c in made.items() if str(path).endswith(name)))

    assert recompute(changed(change), keys(board)[0])[0] == "equal"
