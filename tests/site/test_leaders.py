"""The first screen: who leads at each size, and what is said where nobody does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site import design_standings, leaders
from crlbench.site.source import Site
from crlbench.verdict.design_ranking import rank_designs
from tests.site.stored import site_of
from tests.support.designs import CROSSED, INDEPENDENT, entry_of, plans
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


def test_a_design_says_which_checkpoint_its_scores_are_of(tmp_path: Path):
    designs = {f"tiny-{name}": (slope, INDEPENDENT) for name, slope in (("phi", 2.0), ("neox", 1))}
    (first, *_) = leaders.size_leaders(site_of(tmp_path, *plans(designs)))
    over, scores = first["lines"][:2]
    assert over == (
        "Verdicts and 95 % intervals are about designs, so they allow for other pretrainings: "
        "every ranked design has 3 checkpoints."
    )
    assert scores.startswith("Checkpoint i0o0 on 4 tasks, 5 seeds: sampled")


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


def board_of_designs(
    labels: Sequence[str], designs: int, step: float = 0.2, apart: float = 0.02
) -> SimpleNamespace:
    """A stored board whose designs differ by ``step``, and their checkpoints by ``apart``."""
    entries = [
        entry_of(f"model-{d}", label, np.full(4, step * d + apart * n), np.zeros(50))
        for d in range(designs)
        for n, label in enumerate(labels)
    ]
    found = rank_designs("efficiency", entries, None)
    model = SimpleNamespace(subject=SimpleNamespace(slug="model", params_total=1_000_000))
    return SimpleNamespace(
        board=SimpleNamespace(rankings={"ppo": {"efficiency": found}}),
        entries=lambda recipe: tuple(entries),
        by_entry={entry.name: [model] for entry in entries},
        recipes=("ppo",),
        id="board",
        label="board",
        is_open=False,
        track="mini",
    )


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Callable[[SimpleNamespace], dict[str, Any]]:
    """The first card, without what it says of costs."""
    for name in ("_lines", "_beyond"):
        monkeypatch.setattr(leaders, name, lambda *given: iter(()))
    monkeypatch.setattr(leaders, "models", lambda site: {})
    monkeypatch.setattr(leaders, "model_size", lambda subject: subject.params_total)
    return lambda stored: leaders.size_leaders(SimpleNamespace(boards=[stored]))[0]


def test_a_card_is_of_a_design_and_not_of_its_best_checkpoint(card):
    found = card(board_of_designs(INDEPENDENT, 3))
    # The third design: .4, .42 and .44.
    assert "0.42" in found["score"] and "0.44" not in found["score"]
    assert found["chip"] == "first of 3" and found["name"] == "model-2" and found["ahead"]


def test_designs_that_could_not_be_compared_do_not_tie(card):
    stored = board_of_designs(CROSSED, 2)
    assert card(stored)["chip"] == "not compared"
    designs = stored.board.rankings["ppo"]["efficiency"].designs
    assert "4 designs" in design_standings.of_designs(designs)
    claim, why = design_standings.answer(stored.board.rankings["ppo"]["efficiency"])
    assert claim == "not compared" and "not known" in why


def test_who_is_worse_is_named_where_neighbours_are_equivalent(card):
    stored = board_of_designs(INDEPENDENT, 4, step=0.04, apart=0.001)
    found = stored.board.rankings["ppo"]["efficiency"]
    assert {one.tier for one in found.ranking.standings} == {1}
    close, behind = found.ranking.beside_leader()
    assert [one.model for one in close] == ["model-2/ppo"]
    assert [one.model for one in behind] == ["model-1/ppo", "model-0/ppo"]
    claim, why = design_standings.answer(found)
    assert claim == "tie of 2" and card(stored)["chip"] == "tie of 2 of 4"
    assert "Not shown to be worse by more than 0.05: model-2." in why
    assert "Worse by more than that, and in its tier: model-1, model-0." in why


def test_a_class_may_begin_below_the_first_row_of_its_board(card):
    """A lower tier is worse than the board's first row, and not always than the class's first."""
    stored = board_of_designs(INDEPENDENT, 3)
    found = stored.board.rankings["ppo"]["efficiency"]
    tiers = {"model-2/ppo": 1, "model-1/ppo": 1, "model-0/ppo": 2}
    worse = {"model-2/ppo": ("model-0/ppo",)}
    standings = tuple(
        replace(one, tier=tiers[one.model], worse=worse.get(one.model, ()))
        for one in found.ranking.standings
    )
    ranking = replace(found.ranking, standings=standings)
    stored.board.rankings["ppo"]["efficiency"] = replace(found, ranking=ranking)
    large = SimpleNamespace(subject=SimpleNamespace(slug="large", params_total=50_000_000))
    for name in stored.by_entry:
        if name.startswith("model-2"):
            stored.by_entry[name] = [large]
    first = card(stored)
    assert (first["label"], first["name"]) == ("Up to 3M", "model-1")
    # Taken alone the pair differs; all pairs at once, it does not.
    assert first["chip"] == "highest of 2, not clearly ahead"
    pairs = tuple(replace(pair, call="undecided") for pair in found.designs.pairs)
    designs = replace(found.designs, pairs=pairs)
    stored.board.rankings["ppo"]["efficiency"] = replace(found, ranking=ranking, designs=designs)
    assert card(stored)["chip"] == "tie of 2 of 2"
    assert not card(stored)["ahead"]


def test_a_verdict_on_one_corpus_order_is_about_no_design():
    stored = board_of_designs(("i0o0", "i1o0", "i2o0"), 2)
    designs = stored.board.rankings["ppo"]["efficiency"].designs
    said = design_standings.of_designs(designs)
    assert "corpus order 0" in said and "not about designs" in said
    alike = board_of_designs(INDEPENDENT, 2).board.rankings["ppo"]["efficiency"].designs
    said = design_standings.of_designs(alike)
    assert "are about designs" in said and "every ranked design has 3 checkpoints" in said
