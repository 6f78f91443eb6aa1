"""Task pages: facts of the card, rows as they are frozen, entries with their intervals."""

from __future__ import annotations

import html as markup
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from crlbench.base import wording
from crlbench.catalog.code import load_code
from crlbench.pages import words
from crlbench.site import tasks
from crlbench.site.pages import whole
from crlbench.site.source import Site
from tests.site.stored import html, site_of
from tests.support.simulate import Plan

BOARD = ("addition", "no-longer-here")
PLAN = Plan(tasks=BOARD, board=BOARD, items=16, seeds=5, failed=(("addition", 2, 22),))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    other = replace(PLAN, model="tiny-qwen2", display_name="Qwen", slope=2.4, seeds=2, failed=())
    flip = replace(PLAN, recipe="grpo", slope=3.0, seeds=2, failed=())
    return site_of(tmp_path_factory.mktemp("tasks"), PLAN, other, flip)


@pytest.fixture(scope="module")
def shown(site: Site) -> dict[str, str]:
    """The text of every page, by path."""
    return {page.path: html(site, page) for page in whole(tasks.pages(site))}


def test_every_task_has_a_page(site: Site, shown: dict[str, str]):
    names = {*site.catalog.list("task"), *BOARD}
    assert shown.keys() == {tasks.INDEX} | {f"tasks/{name}.html" for name in names}
    assert all(f'href="../tasks/{name}.html"' in shown[tasks.INDEX] for name in names)


def executed(before: dict[str, ModuleType]) -> set[str]:
    """Files that were executed as modules since ``before``, a copy of ``sys.modules``."""
    found = [one for name, one in sys.modules.items() if before.get(name) is not one]
    return {str(getattr(one, "__file__", None)) for one in found}


def test_the_code_of_a_task_is_not_executed(site: Site):
    code = site.catalog.find("task", "addition").path / "task.py"
    before = dict(sys.modules)
    assert [html(site, page) for page in whole(tasks.pages(site))]
    assert str(code) not in executed(before)
    load_code(code)
    assert str(code) in executed(before)


def test_splits_and_null_policies_are_those_of_the_card(site: Site, shown: dict[str, str]):
    card, text = site.catalog.task_card("addition"), shown["tasks/addition.html"]
    for split in card.splits.values():
        assert split.sha256[:12] in text and f'<td class="n">{split.count:,}</td>' in text
        assert f"<b>{wording.number(split.floor, 3)}</b>" in text
        for null in tasks.NULLS:
            assert f'<td class="n">{wording.number(getattr(split.nulls, null), 3)}</td>' in text
    assert card.version in text and card.digest[:12] in text


def test_the_first_rows_of_each_level_stand_with_their_answers(
    site: Site, shown: dict[str, str]
):
    text = markup.unescape(shown["tasks/addition.html"])
    rows = site.catalog.load_task("addition").rows("id")
    for level in (1, 2):
        for row in [row for row in rows if row["level"] == level][: tasks.EXAMPLES]:
            assert f'>{row["messages"][-1]["content"]}</pre>' in text
            assert f'>{row["answer"]}</pre>' in text
    assert "<h3>Level 3</h3>" in text and "The last number of a completion" in text


def test_rows_of_others_are_not_shown(shown: dict[str, str]):
    assert "crlbench fetch --task gsm8k" in shown["tasks/gsm8k.html"]
    assert "Level 1" not in shown["tasks/gsm8k.html"]


def test_licence_and_source_of_every_corpus_are_shown(site: Site, shown: dict[str, str]):
    for name in site.catalog.list("task"):
        if site.catalog.rows_state(name) == "draft":
            continue
        card, text = site.catalog.task_card(name), markup.unescape(shown[f"tasks/{name}.html"])
        assert f"<dt>Licence</dt><dd>{card.licence}</dd>" in text
        if card.source is None:
            assert "made by the task's own code" in text
        else:
            assert card.source.origin in text and card.source.commit[:12] in text
    # Two repositories, one of which a single file is from.
    harmless = shown["tasks/harmless.html"]
    assert "anthropics/hh-rlhf" in harmless and "paul-rottger/exaggerated-safety" in harmless


def test_who_learns_it_best_has_intervals_and_failures(site: Site, shown: dict[str, str]):
    text, board = shown["tasks/addition.html"], site.boards[0].board
    found = {e.name: e.axes["efficiency"].by_task["addition"] for e in board.entries}
    for entry in board.entries:
        lam = found[entry.name]
        shown_interval = f"<span class=\"soft\">{words.span(lam.interval)}"
        assert f"{wording.number(lam.value)} {shown_interval}" in text
    # Recipe by recipe, that of most models first.
    order = sorted(found, key=lambda name: (name.endswith("/grpo"), -found[name].value))
    places = [text.index(f"/{name}/addition.html") for name in order]
    assert places == sorted(places)
    assert places[1] < text.index("<summary>grpo</summary>") < places[2]
    assert '<td role="cell" class="n" data-label="Failed">1</td>' in text


def test_a_task_that_left_the_catalogue_keeps_its_results(shown: dict[str, str]):
    text = shown["tasks/no-longer-here.html"]
    assert "not in the catalogue any more" in text and "/ppo/no-longer-here.html" in text


def test_readmes_are_words_and_code_without_links():
    parts = tasks._inline("See [docs](../x.md): `<b>` is\nwrong.")
    assert parts == [("See docs: ", False), ("<b>", True), (" is wrong.", False)]
