"""The first screen: who leads at each size, and what is said where nobody does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site import leaders
from crlbench.site.source import Site
from tests.site.stored import site_of
from tests.support.simulate import Plan

TASKS = ("addition", "counting")


def test_every_number_of_parameters_has_one_class():
    sizes = {3_000_000: "Up to 3M", 15_000_000: "3M to 100M", 135_000_000: "100M to 0.5B"}
    sizes |= {494_000_000: "100M to 0.5B", 600_000_000: "0.6B to 1B", 1_500_000_000: "1B and more"}
    assert {size: leaders.size_class(size) for size in sizes} == sizes


def test_a_class_shows_its_ranked_leader_with_scores_and_cost(site: Site):
    first, waiting = leaders.size_leaders(site)
    ranking = site.boards[0].board.rankings["ppo"]["efficiency"].ranking
    assert first["entry"] == ranking.anchors[0] and first["ranked"]
    entry = site.boards[0].board.entry(first["entry"])
    assert words.value(entry.axes["efficiency"]) in first["score"]
    assert f"{entry.n} seeds" in first["lines"][0]
    assert re.fullmatch(
        r"One seed of both tasks: \d+ s on a CPU(, [\d.]+ [GM]B of memory)?\. "
        r"In total: \d+ s for a provisional rank, 5 seeds and 3 of the control arm; "
        r"\d+ s for a full one, with 10 seeds\.",
        first["lines"][1],
    )
    assert waiting["label"] == "3M and more" and waiting["waiting"].startswith("No result yet.")


def test_previews_are_shown_and_marked(tmp_path: Path):
    plan = Plan(tasks=TASKS, board=TASKS, items=16, seeds=2, track_version=1)
    better = replace(plan, model="tiny-phi", slope=3.0)
    partial = replace(plan, model="tiny-qwen2", tasks=TASKS[:1], slope=9.0)
    first = leaders.size_leaders(site_of(tmp_path, plan, better, partial))[0]
    assert (first["entry"], first["chip"], first["ranked"]) == ("tiny-phi/ppo", "preview", False)


def test_an_order_of_one_size_is_not_carried_to_another_without_evidence(site: Site):
    assert leaders.describe_carrying(site) == ""


def test_the_first_screen_counts_what_is_stored(files: Mapping[str, bytes], site: Site):
    front = files["index.html"].decode()
    results = sum(len(stored.board.entries) for stored in site.boards)
    assert f"{results} results from {wording.grouped(site.records)} runs" in front
    assert 'data-recompute="' in front and f"Updated {site.stamp[:10]}" in front
