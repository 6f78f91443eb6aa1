"""Model pages: the entry, where it stands, and models that the catalogue or the results lack."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base import wording
from crlbench.contract.records import RunRecord
from crlbench.pages import words
from crlbench.site import models
from crlbench.site.pages import whole
from crlbench.site.source import Site
from crlbench.verdict.axes import AXES
from tests.site.stored import html, site_of
from tests.support.simulate import Plan, hostile, rewrite, write_board

TASKS = ("addition", "counting")
PLAN = Plan(tasks=TASKS, board=TASKS, items=16, seeds=2, track_version=1)
GONE = "a-model-that-left"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    grpo = replace(PLAN, recipe="grpo")
    gone = replace(PLAN, model=GONE, display_name="Gone")
    return site_of(tmp_path_factory.mktemp("models"), PLAN, grpo, gone)


@pytest.fixture(scope="module")
def shown(site: Site) -> dict[str, str]:
    """The text of some models' pages and of the list, by path."""
    wanted = {f"models/{n}.html" for n in ("tiny-llama", GONE, "gpt2")} | {models.INDEX}
    return {p.path: html(site, p) for p in whole(models.pages(site)) if p.path in wanted}


def test_every_model_of_catalogue_and_results_has_a_page(site: Site, shown: dict[str, str]):
    paths = {page.path for page in whole(models.pages(site))}
    names = {*site.catalog.list("model"), GONE}
    assert {f"models/{name}.html" for name in names} <= paths
    for name in names:
        assert f'href="../models/{name}.html"' in shown[models.INDEX]


def test_the_card_is_that_of_the_catalogue(site: Site, shown: dict[str, str]):
    card, text = site.catalog.load_model("gpt2"), shown["models/gpt2.html"]
    for value in (card.display_name, card.licence, card.source.hf_id, card.revision, card.contact):
        assert value in text
    assert wording.visible(card.contamination_note).split("'")[0][:60] in text
    assert "No results yet" in text and "crlbench evaluate --model gpt2" in text


def test_every_recipe_stands_with_the_boards_numbers(site: Site, shown: dict[str, str]):
    text = shown["models/tiny-llama.html"]
    for recipe in ("ppo", "grpo"):
        entry = site.boards[0].board.entry(f"tiny-llama/{recipe}")
        for axis in AXES:
            score = entry.axes[axis]
            assert f"{wording.number(score.value)} <span" in text
            assert words.span(score.interval) in text
    assert text.count("No rank: a preview.") >= 6


def test_one_entry_of_a_board_is_shown_in_full(site: Site, shown: dict[str, str]):
    text = shown["models/tiny-llama.html"]
    assert re.findall(r'<h2 id="(entry-.*?)-title">(.*?) <', text) == [("entry-2", "mini v1, ppo")]
    assert "E = H + L" in text


def test_a_model_is_listed_by_the_entry_that_ranks(tmp_path: Path):
    full = replace(PLAN, seeds=5, placebo=3)
    flip = replace(full, recipe="dapo", placebo=0)
    site = site_of(tmp_path, flip, full, replace(full, model=GONE, display_name="Gone"))
    own = models.models(site)["tiny-llama"]
    assert [entry.recipe for _, entry in own.entries] == ["ppo", "dapo"]
    assert re.fullmatch(r"mini v1, ppo: Λ 0\.\d+, tier \d; 1 more", models._in_short(own))


def test_changed_and_missing_entries_are_told(shown: dict[str, str]):
    assert "has changed since some of these runs" in shown["models/tiny-llama.html"]
    assert "The catalogue has no entry of this name" in shown[f"models/{GONE}.html"]
    assert "not stated" in shown[f"models/{GONE}.html"]


def test_texts_of_strangers_stay_text(tmp_path: Path):
    plan = hostile(replace(PLAN, model=GONE))
    for path in write_board(tmp_path, plan).rglob("record.json"):
        subject = RunRecord.model_validate_json(path.read_text()).subject.model_dump()
        attack = {"family": plan.prompt, "kind": plan.prompt, "hf_id": plan.prompt}
        rewrite(path.parent, subject=subject | attack)
    site = site_of(tmp_path, plan, write=False)
    for page in whole(models.pages(site)):
        if GONE in page.path or page.path == models.INDEX:
            text = html(site, page)
            assert "<script>alert" not in text and "<img src=x" not in text
            assert "\u202e" not in text and "{{ 7*7 }}" in text
