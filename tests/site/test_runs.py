"""Run pages: every number is one of the report, and what is missing is said."""

from __future__ import annotations

import html as markup
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site import runs
from crlbench.site.pages import Page, whole
from crlbench.site.source import Site
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import Runs
from tests.site.stored import REPLICATES, html, site_of
from tests.support.simulate import Plan, hostile

TASKS = ("addition", "counting")
PLAN = Plan(tasks=TASKS, board=TASKS, items=16, placebo=3, failed=(("counting", 3, 22),))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    bare = replace(PLAN, model="tiny-qwen2", display_name="Q", placebo=0, seeds=2, failed=())
    return site_of(tmp_path_factory.mktemp("runs"), PLAN, bare)


def page(site: Site, model: str, task: str) -> tuple[Page, str]:
    (found,) = (p for p in whole(runs.pages(site)) if p.path.endswith(f"/{model}/ppo/{task}.html"))
    return found, html(site, found)


def summary_of(runs: Runs, model: str):
    return summarise_board(runs, REPLICATES).entry(f"{model}/ppo")


def test_each_entry_has_a_page_per_task(site: Site):
    found = {p.path.split("/", 2)[2] for p in whole(runs.pages(site))}
    models = ("tiny-llama", "tiny-qwen2")
    assert found == {f"{model}/ppo/{task}.html" for model in models for task in TASKS}


def test_seeds_and_means_are_those_of_the_report(site: Site):
    stored = site.boards[0]
    entry = summary_of(stored.runs, "tiny-llama")
    task = next(t for t in entry.tasks if t.task == "addition")
    text = page(site, "tiny-llama", "addition")[1]
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>(.*?)</tr>', text)
    assert [int(index) for index, _ in rows] == [seed.index for seed in task.seeds]
    for seed, (_, cells) in zip(task.seeds, rows, strict=True):
        shown = re.findall(r'<td class="n">(.*?)</td>', cells)
        assert shown[0] == wording.number(seed.end) and shown[-1] == wording.number(seed.lam)
    alike = ("Start", task.start), ("H", task.H)
    said = ", ".join(f"{name} {wording.number(value)}" for name, value in alike)
    assert f"The same for every seed: {said}, State completed." in text
    ranked = stored.board.entry("tiny-llama/ppo").axes["efficiency"].by_task["addition"]
    assert f"<strong>{wording.number(ranked.value)}</strong>" in text
    assert words.span(ranked.interval) in text
    assert f"{words.span(task.gain.interval)}" in text


def test_all_curves_are_drawn_of_both_arms(site: Site):
    text = page(site, "tiny-llama", "addition")[1]
    assert {f"tiny-llama ppo, seed {i}" for i in range(5)} <= set(re.findall("<title>(.*?)<", text))
    assert {f"placebo, seed {i}" for i in range(3)} <= set(re.findall("<title>(.*?)<", text))


def test_a_failed_seed_is_named_on_its_own_task_only(site: Site):
    failing, sound = (page(site, "tiny-llama", task)[1] for task in ("counting", "addition"))
    assert "kl_cap at iteration 22" in failing and "tiny-llama ppo, seed 3 failed here" in failing
    assert "None of the 5 stored runs failed" in sound and "kl_cap at" not in sound


def test_what_is_missing_is_said(site: Site):
    text = page(site, "tiny-qwen2", "counting")[1]
    assert "placebo, seed" not in text and "not verified yet" in text
    assert text.count("no interval") == 3


def test_the_commands_name_the_result_and_every_run_has_its_hashes(site: Site):
    stored = site.boards[0]
    text = markup.unescape(page(site, "tiny-llama", "addition")[1])
    assert f">crlbench verify leaderboard/results/{stored.id}/tiny-llama/ppo<" in text
    assert "crlbench evaluate --model tiny-llama --track mini --recipe ppo --seeds 5" in text
    for run in stored.by_entry["tiny-llama/ppo"]:
        if run.record.task.name == "addition":
            assert run.record.record_id[:12] in text and run.record.plan_hash[:12] in text
    assert "begun, ended once" in text


def test_texts_of_strangers_stay_text(tmp_path: Path):
    site = site_of(tmp_path, hostile(replace(PLAN, seeds=2, placebo=0, failed=())))
    for found in whole(runs.pages(site)):
        text = html(site, found)
        assert "<script>alert" not in text and "<img src=x" not in text
        assert "\u202e" not in text and "{{ 7*7 }}" in text


def test_equal_results_give_equal_pages(site: Site):
    first, again = ([html(site, found) for found in whole(runs.pages(site))] for _ in range(2))
    assert first == again
