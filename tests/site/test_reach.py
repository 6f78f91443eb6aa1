"""What a board says of starts and of other tasks: only what its data bear."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crlbench.catalog.find import Catalog
from crlbench.site import briefs, home
from crlbench.site.pages import whole
from crlbench.site.reach import describe_other_tasks, describe_start
from crlbench.site.reading import read_site
from crlbench.site.standings import standings
from crlbench.stats.correlations import spearman
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.site.stored import html, site_of
from tests.support.simulate import TASKS, Plan, write_board, write_uneven

UNSUPPORTED = (
    "belongs to the model",
    "which language model learns best",
    "far ahead",
    "design alone",
    "every other design",
)
"""What no board of one checkpoint a design on four tasks bears."""
GREEDY = (0.742, 0.875, 0.811, 0.650, 0.721, 0.905, 0.885, 0.830, 0.747, 0.745, 0.831)
LAM = (0.347, 0.568, 0.486, 0.272, 0.382, 0.551, 0.588, 0.457, 0.438, 0.444, 0.476)
"""Greedy scores before training, and Λ, of the eleven models of mini version 1."""
PLAN = Plan(items=32, seeds=5)


def say_of_start(starts: Any, lams: Any, end: float | None = 0.8) -> str:
    """The sentence of entries of one task."""
    split = [SimpleNamespace(name="id_greedy", start=start, end=end) for start in starts]
    found = [
        {"scores": {"id_greedy": scores_of(SimpleNamespace(tasks=[SimpleNamespace(splits=[one])]))}}
        for one in split
    ]
    return describe_start(found, lams)


def scores_of(entry: Any) -> Any:
    return briefs._scores(entry, "id_greedy")


def test_where_the_start_orders_the_gain_the_board_says_so():
    said = say_of_start(GREEDY, LAM)
    assert said.startswith("Entries with a higher greedy score before training have a higher")
    assert "0.93 over 11 entries" in said


@pytest.mark.parametrize(
    "lams",
    [
        LAM[::-1],
        tuple(1 - lam for lam in LAM),
        LAM[5:] + LAM[:5],
    ],
    ids=["unordered", "the other way round", "shifted"],
)
def test_where_it_does_not_the_board_does_not_say_so(lams: tuple[float, ...]):
    said = say_of_start(GREEDY, lams)
    assert said.startswith("The greedy score before training is not shown to order Λ")


@pytest.mark.parametrize("n", [0, 1, 4])
def test_few_entries_say_nothing_of_their_starts(n: int):
    assert say_of_start(GREEDY[:n], LAM[:n]) == ""


def test_entries_without_greedy_scores_or_alike_say_nothing():
    assert say_of_start(GREEDY, LAM, end=None) == ""
    assert say_of_start((0.5,) * 11, LAM) == ""


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_the_rank_correlation_is_that_of_scipy(digits: int):
    first, second = np.random.default_rng(digits).normal(size=(2, 12)).round(digits)
    expected = stats.spearmanr(first, second)[0]
    assert spearman(first.tolist(), second.tolist()) == pytest.approx(expected)


@pytest.mark.parametrize("even", [True, False])
def test_a_lead_reaches_other_tasks_only_where_all_tasks_agree(tmp_path: Path, even: bool):
    slow = Plan(model="tiny-qwen2", display_name="Tiny Qwen2", items=32, slope=0.8)
    fast = Plan(items=32, slope=2.4)
    write_board(tmp_path, slow)
    slopes = dict.fromkeys(TASKS, 2.4) | ({} if even else {TASKS[0]: -0.5, TASKS[1]: 3.5})
    write_uneven(tmp_path, fast, slopes)
    board = summarise_board(load_runs(next(tmp_path.glob("mini-*"))), 400)
    by_model = {entry.display_name: entry for entry in board.entries}
    leader, other = by_model["Tiny Llama"], by_model["Tiny Qwen2"]
    said = describe_other_tasks("efficiency", leader, [other])
    elsewhere = "Over similar tasks that were not run"
    if even:
        assert said == f"{elsewhere}, 1 of 1 interval excludes 0: Tiny Qwen2."
    else:
        assert said == f"{elsewhere}, none of 1 interval excludes 0."
    assert describe_other_tasks("efficiency", leader, []) == ""


def test_two_tasks_say_nothing_of_others(tmp_path: Path):
    plans = [
        Plan(f"tiny-{name}", name, tasks=TASKS[:2], board=TASKS[:2], items=16, slope=slope)
        for name, slope in (("llama", 0.5), ("qwen2", 3.0))
    ]
    board = site_of(tmp_path, *plans).boards[0].board
    slow, fast = sorted(board.entries, key=lambda entry: entry.axes["efficiency"].value)
    assert describe_other_tasks("efficiency", fast, [slow]) == ""


def test_the_front_page_says_no_more_than_a_board_can_bear(files: Mapping[str, bytes]):
    for path in ("index.html", "architectures.html"):
        text = files[path].decode().lower()
        assert not [claim for claim in UNSUPPORTED if claim in text]
    front = files["index.html"].decode()
    assert "A difference is one between two checkpoints on these tasks." in front


@pytest.mark.slow
@pytest.mark.full
def test_the_front_page_of_the_committed_results_claims_nothing_unsupported():
    site = read_site(Path("leaderboard/results"), Catalog())
    (front,) = [page for page in whole(home.pages(site)) if page.path == "index.html"]
    text = html(site, front)
    assert not [claim for claim in UNSUPPORTED if claim in text.lower()]
    entries = site.boards[0].entries(front.data["standings"].recipe)
    beside = [entry for entry in entries if entry.failures_beside("stability")]
    assert text.count("failures not counted") == len(beside)
    _, stability, _ = front.data["standings"].panels
    leads = next(row for row in stability.leaders if row.leads)
    told = "are not counted: no gain is shown there." in stability.answer + stability.elsewhere
    assert told == (leads.checked in {entry.name for entry in beside})


@pytest.mark.slow
@pytest.mark.full
def test_what_the_results_of_the_first_version_bear(tmp_path: Path):
    """A front page of mini version 1: the start first, and nothing known of other tasks."""
    board = "mini-543da47d0c99"
    shutil.copytree(Path("leaderboard/results") / board, tmp_path / "results" / board)
    site = read_site(tmp_path / "results", Catalog())
    (front,) = [page for page in whole(home.pages(site)) if page.path == "index.html"]
    text = html(site, front)
    assert "with a higher greedy score before training have a higher" in text
    assert "0.79 and 0.80" in text and "0.40 before it and 0.72 after" in text
    assert not [claim for claim in UNSUPPORTED if claim in text.lower()]
    panels = {panel.axis: panel for panel in standings(site.boards[0], "ppo").panels}
    undecided = {"efficiency": "46 of 47", "stability": "7 of 7", "generalization": "38 of 39"}
    for axis, leads in undecided.items():
        assert f"{leads} leads are undecided there" in panels[axis].elsewhere
    assert panels["stability"].all_tie
