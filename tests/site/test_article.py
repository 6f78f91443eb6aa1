"""Pages of entries: the board's numbers, its verdicts, and what an entry lacks."""

from __future__ import annotations

import html as markup
from dataclasses import replace

import pytest

from crlbench.pages import words
from crlbench.site import article, models
from crlbench.site.pages import whole
from crlbench.site.source import Site
from crlbench.verdict.axes import AXES
from crlbench.verdict.pairs import paired_axes
from tests.site.stored import html, site_of
from tests.support.simulate import Plan

TASKS = ("addition", "counting")
PLAN = Plan(tasks=TASKS, board=TASKS, items=16, placebo=3, track_version=1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    failed = (("addition", 1, 22),)
    others = (
        replace(PLAN, model="tiny-gemma", display_name="Gemma", slope=0.5),
        replace(PLAN, model="tiny-qwen2", display_name="Qwen", slope=2.6, failed=failed),
        replace(PLAN, model="tiny-phi", display_name="Phi", slope=1.2, seeds=1, placebo=0),
    )
    return site_of(tmp_path_factory.mktemp("entries"), PLAN, *others)


@pytest.fixture(scope="module")
def shown(site: Site) -> dict[str, str]:
    """The text of each entry's page, by model."""
    found = [page for page in whole(models.pages(site)) if page.template == "entry.html.j2"]
    return {page.path.split("/")[2]: html(site, page) for page in found}


def test_axes_places_and_intervals_are_the_boards(site: Site, shown: dict[str, str]):
    board = site.boards[0].board
    for entry in board.entries:
        for axis in AXES:
            score = entry.axes[axis]
            found = board.rankings["ppo"][axis].ranking.standings
            place = next((s for s in found if s.model == entry.name), None)
            text = shown[entry.model]
            assert f'<p class="axis-value">{words.value(score)}' in text
            assert words.span(score.interval) in text
            assert place is None or f"Tier {place.tier} of" in text


def test_verdicts_are_this_entry_minus_its_nearest(site: Site, shown: dict[str, str]):
    board = site.boards[0].board
    entry = board.entry("tiny-llama/ppo")
    gaps = {
        other.name: abs(other.axes["efficiency"].value - entry.axes["efficiency"].value)
        for other in board.entries
        if other is not entry
    }
    nearest = sorted(gaps, key=gaps.__getitem__)[:2]
    assert [e.name for e in article.nearest(site.boards[0], entry)] == nearest
    for name in nearest:
        effect = paired_axes(board.entry(name), entry, board.margin)["efficiency"].effect
        assert words.difference(effect) in shown["tiny-llama"]
        assert f"/{name}/index.html" in shown["tiny-llama"].replace("../", "/")


def test_an_entry_that_decides_nothing_gets_no_verdict(shown: dict[str, str]):
    assert "a preview, no verdict" in shown["tiny-phi"]
    assert "These runs have no placebo." in shown["tiny-phi"]
    assert "Preview: one seed, so no interval" in shown["tiny-phi"]


def test_a_failure_is_told_and_each_task_has_a_link(shown: dict[str, str]):
    assert "addition seed-01" in shown["tiny-qwen2"] and "kl_cap" in shown["tiny-qwen2"]
    for task in TASKS:
        assert 'href="../../../../runs/' in shown["tiny-llama"]
        assert f"/tiny-llama/ppo/{task}.html" in shown["tiny-llama"]


def test_the_command_makes_both_arms_again(shown: dict[str, str]):
    text = markup.unescape(shown["tiny-llama"])
    assert "--model tiny-llama --track mini@1 --recipe ppo --seeds 5" in text
    assert "--arm real,placebo" in text
