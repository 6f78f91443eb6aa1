"""The panels of the report: axes, arrivals, stability, placebo, alarms, failures, cost."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.base.wording import percent
from crlbench.pages import words
from crlbench.pages.page_arrival import arrivals
from crlbench.pages.page_axes import place, placebo
from crlbench.pages.page_results import lead
from crlbench.pages.page_splits import generalization
from crlbench.pages.report import render_page
from crlbench.stats.resampling import MIN_TASKS
from crlbench.stats.stability import PARTS
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.efficiency import Speed
from crlbench.verdict.load import Runs, load_runs
from tests.pages.test_report import read
from tests.support.simulate import Plan, rewrite, write_board

TASKS = ("addition", "counting")
SMALL = Plan(tasks=TASKS, board=TASKS, items=16, seeds=5, track_version=1)


@pytest.fixture(scope="module")
def board(five_summary: Board) -> Board:
    return five_summary


@pytest.fixture(scope="module")
def text(five_runs: Runs, board: Board) -> str:
    return said(render_page(five_runs, board))


def said(html: str) -> str:
    return " ".join(" ".join(read(html).text).split())


def page_of(folder: Path, *plans: Plan) -> tuple[str, Board]:
    board = write_board(folder, *plans)
    return page_in(board)


def page_in(folder: Path) -> tuple[str, Board]:
    runs = load_runs(folder)
    found = summarise_board(runs, 200)
    return render_page(runs, found), found


def section(html: str, name: str) -> str:
    """The words of one part of a page of one entry."""
    start = html.index(f'<section aria-labelledby="entry-1-{name}">')
    return said(html[start : html.index("</section>", start) + len("</section>")])


def test_every_axis_has_its_number_its_intervals_and_its_place(text: str, board: Board):
    (entry,) = board.entries
    for axis, score in entry.axes.items():
        assert words.value(score) in text
        assert (score.wider is None) == (len(score.by_task) < MIN_TASKS)
        for interval in filter(None, (score.interval, score.wider)):
            assert words.span(interval) in text
        for sentence in place(entry, board, axis):
            assert sentence in text
    assert "No rank: " in text


def test_arrivals_show_shares_means_and_censored_seeds(five_runs, board):
    html = render_page(five_runs, board)
    part = section(html, "arrival")
    (entry,) = board.entries
    for task in entry.efficiency.tasks.values():
        for axis in ("completions", "bytes", "updates"):
            for arrival in task.arrivals[axis]:
                assert f"{arrival.arrived} of {arrival.n}" in part
                assert f"{round(arrival.restricted_mean):,}" in part
    counting = entry.efficiency.tasks["counting"]
    assert counting.arrivals["completions"][2].censored[3]  # it failed
    assert html.count("seed 3: not within the budget") >= 3
    assert "no reference is frozen" in part
    for row in arrivals(entry)["rows"]:
        late = [
            str(curve.seed)
            for curve in entry.efficiency.tasks[row["task"]].curves
            if not any(
                a >= row["tau"] - 1e-12 and b >= row["tau"] - 1e-12
                for a, b in zip(curve.u, curve.u[1:], strict=False)
            )
        ]
        assert row["censored"].removeprefix("seeds ").removeprefix("seed ") == (
            ", ".join(late) or "none"
        )


def test_stability_shows_its_shares_and_what_they_are_made_of(text: str, board: Board):
    (entry,) = board.entries
    for task in entry.stability.tasks.values():
        numbers = [task.gmd, task.cvar, task.drawdown, task.dispersion, task.short_term]
        numbers += [task.failure_rate, task.failure_interval.high, task.gain]
        numbers += [task.shares[part] for part in PARTS] + ([task.value] if task.value else [])
        for run in task.runs:
            numbers += [run.drawdown_raw, run.drawdown_expected, run.drawdown, run.final]
        for number in numbers:
            assert f"{abs(number):.2f}" in text
    assert "1 of 5" in text and "geometric mean" in text


@pytest.mark.slow
def test_a_task_without_learning_is_said_not_drawn(tmp_path: Path):
    html, found = page_of(tmp_path, Plan(slope=0.0, seeds=5, items=64))
    ratings = {task.rating for task in found.entries[0].stability.tasks.values()}
    assert "did not learn" in ratings
    assert "did not learn: late gain" in section(html, "stability")
    drawn = [t for t in found.entries[0].stability.tasks.values() if t.rating == "rated"]
    assert html.count("The four shares of stability on") == len(drawn)


def test_generalization_shows_the_parts_of_gen(five_runs, board):
    html = render_page(five_runs, board)
    part = section(html, "splits")
    (entry,) = board.entries
    model = entry.generalization.model
    for value in (*model.parts.values(), model.forgetting, model.value, model.memorisation):
        assert f"{abs(value):.2f}" in part
    found = generalization(entry)
    for row in found["rows"]:
        runs = entry.generalization.runs[row["task"]]
        assert row["value"] == pytest.approx(sum(run.value for run in runs) / len(runs))
    forgotten = section(html, "honesty")
    for runs in entry.generalization.runs.values():
        for name in ("raw", "expected", "corrected"):
            mean = sum(getattr(run.forgetting, name) for run in runs) / len(runs)
            assert f"{abs(mean):.2f}" in forgotten


def test_the_placebo_stands_beside_the_real_arm(tmp_path: Path):
    html, found = page_of(tmp_path, replace(SMALL, placebo=3))
    (entry,) = found.entries
    text = said(html)
    for estimate in (entry.placebo.lam, entry.placebo.net):
        assert words.estimate(estimate).lstrip("−") in text
    assert placebo(entry)["verdict"] in text
    alone, _ = page_of(tmp_path / "alone", SMALL)
    assert "These runs have no placebo." in section(alone, "placebo")


def test_what_a_placebo_shows_fits_its_sign(tmp_path: Path):
    _, found = page_of(tmp_path, replace(SMALL, placebo=3))
    (entry,) = found.entries
    raised = "Λ is −0.02: such a reward raises nothing"
    for lam, said in ((-0.021, raised), (0.1, "at most a quarter")):
        control = replace(
            entry.placebo, lam=replace(entry.placebo.lam, value=lam), elicitation=False
        )
        assert said in placebo(replace(entry, placebo=control))["verdict"]


def test_the_reference_is_no_finding_about_itself(tmp_path: Path):
    _, found = page_of(tmp_path, SMALL)
    (entry,) = found.entries
    for reference, own in ((entry.name, True), ("another/ppo", False)):
        speed = Speed(reference, 0.5, (0.25, 1.0, 4.0), (0.0, 0.5, 1.0), 3, None)
        told = arrivals(replace(entry, efficiency=replace(entry.efficiency, speed=speed)))["speed"]
        assert (told["lack"] == "") != own
        assert ("is the reference" in told["lack"]) == own


def test_scores_of_greedy_decoding_stand_beside_the_sampled_ones(
    board: Board,
):
    (entry,) = board.entries
    greedy = [s for task in entry.tasks for s in task.splits if s.name == "id_greedy"]
    start, end = (
        percent(sum(getattr(s, side) for s in greedy) / len(greedy)) for side in ("start", "end")
    )
    assert f"(sampled; greedily decoded: {end}, up from {start})." in lead(entry)
    fallen = [
        replace(task, splits=tuple(replace(s, start=1.0, end=0.5) for s in task.splits))
        for task in entry.tasks
    ]
    told = f"greedily decoded: {percent(0.5)}, down from {percent(1.0)})"
    assert told in lead(replace(entry, tasks=fallen))
    lacking = [replace(task, splits=()) for task in entry.tasks[:1]]
    assert "greedily" not in lead(replace(entry, tasks=(*lacking, *entry.tasks[1:])))


def test_an_alarm_is_named_in_words_and_marked_in_its_figure(five_runs, board):
    html = render_page(five_runs, board)
    assert "KL to the reference , seed 1, iteration 25: 0." in said(html)
    assert html.count("<title>alarm: seed 1, iteration 25</title>") == 4  # one spike on each task
    start = html.index("KL to the reference on addition</title>")
    figure = html[start : html.index("</svg>", start)]
    assert "Alarm: seed 1, iteration 25." in figure and "▼" in html


def test_failures_say_rule_iteration_meaning_and_how_they_count(five_runs, board):
    part = section(render_page(five_runs, board), "failures")
    assert "counting seed-03 kl_cap 22" in part
    assert "KL to the start model above 1 nats per token, measured 5 times running" in part
    assert "u = 0 at most from then on" in part


def test_a_run_without_a_record_vanished(tmp_path: Path):
    folder = write_board(tmp_path, SMALL)
    shutil.rmtree(next(folder.rglob("counting/real/seed-02")))
    html, found = page_in(folder)
    assert found.entries[0].vanished == ("counting seed-02",)
    assert "with u = 0 at most everywhere: counting seed-02." in section(html, "failures")


def test_costs_are_given_per_run_and_summed(tmp_path: Path):
    folder = write_board(tmp_path, SMALL)
    cells = sorted(path.parent for path in folder.rglob("record.json"))
    for index, cell in enumerate(cells):
        cost = {
            "completions": 10_240,
            "generated_tokens": 1_000 + index,
            "trained_tokens": 2_000,
            "flops_estimate": 3 * 10**12,
        }
        volatile = {"wall_s": [1.0, 50.0 + index], "peak_memory_bytes": 10**9 * (index + 1)}
        rewrite(cell, cost=cost, volatile=volatile)
    html, _ = page_in(folder)
    part = section(html, "cost")
    total = f"{sum(1_000 + index for index in range(10)):,}"
    assert f"All runs 10 runs 102,400 {total}" in part
    assert "20,000" in part and "3.00 × 10¹³" in part
    assert "10.0 GB" in part and "9 min 5 s" in part
    assert "counting seed-04" in part and "1,009" in part
    assert "50 s" in part and "59 s" in part
    assert "≈ is as the machine that trained said it, and not checked" in part


@pytest.mark.parametrize("together", [False, True])
def test_energy_is_summed_where_runs_trained_one_after_the_other(
    tmp_path: Path, together: bool
) -> None:
    folder = write_board(tmp_path, SMALL)
    for index, cell in enumerate(sorted(path.parent for path in folder.rglob("record.json"))):
        start = 0.0 if together else 10.0 * index
        attempt = {"start": start, "end": start + 10.0, "host": "one"}
        joules = {"cpu": 1000.0 + index, "dram": 200.0}
        rewrite(cell, volatile={"attempts": [attempt], "energy_j": joules})
    html, _ = page_in(folder)
    part = section(html, "cost")
    assert "Energy ≈" in part and "1.20 kJ" in part and "there is no sum" in part
    assert ("12.0 kJ" in part) != together


def test_a_report_says_that_energy_was_not_measured(tmp_path: Path) -> None:
    html, _ = page_of(tmp_path, SMALL)
    part = section(html, "cost")
    assert "Energy was not measured: no counter could be read" in part and "Energy ≈" not in part


def test_a_cost_that_a_record_does_not_state_is_a_dash(tmp_path: Path):
    html, _ = page_of(tmp_path, SMALL)
    row = section(html, "cost").split("All runs 10 runs")[1]
    assert row.startswith(" 102,400 – ")


def test_the_environment_is_split_in_what_is_shared_and_what_differs(tmp_path: Path):
    folder = write_board(tmp_path, SMALL)
    cell = next(folder.rglob("counting/real/seed-02"))
    environment = {
        "python": "3.12.9",
        "cpu": "simulated",
        "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
        "hardware_class": "cpu",
    }
    rewrite(cell, environment=environment)
    html, _ = page_in(folder)
    text = said(html)
    differing = text.split("Environment: what differs")[1].split("Environment: what all runs share")
    assert "python" in differing[0] and "3.11.2 9 runs" in differing[0]
    assert "3.12.9 1 run: tiny-llama/ppo/counting/real/seed-02" in differing[0]
    assert "packages.torch" in differing[1] and "packages.torch" not in differing[0]


def test_samples_stand_side_by_side_with_how_many_changed(text: str):
    assert re.search(r"seed 0; 6 prompts stored: \d scored higher after training", text)
    assert "After 10,240 completions" in text


@pytest.mark.slow
def test_entries_that_rank_have_tiers_and_the_rest_is_said(tmp_path: Path):
    plans = [
        replace(SMALL, model=name, display_name=name, slope=slope, placebo=3)
        for name, slope in (("a", 0.1), ("b", 1.2), ("c", 3.0))
    ]
    html, found = page_of(tmp_path, *plans)
    text = said(html)
    for axis, ranking in found.rankings["ppo"].items():
        if ranking.ranking.reason is not None:
            assert ranking.ranking.reason[1:] in text
        for standing in ranking.ranking.standings:
            wanted = " ".join(place(found.entry(standing.model), found, axis))
            assert " ".join(wanted.split()) in text
    assert "Which entries differ" in text and "Tier 1 of " in text
    assert html.count("All entries") == 1


def test_two_recipes_of_one_model_are_not_ranked_against_each_other(tmp_path: Path):
    plan = replace(SMALL, placebo=3)
    html, _ = page_of(tmp_path, plan, replace(plan, recipe="grpo"))
    assert "no recipe here has two" in said(html) and "Which entries differ" not in said(html)


def test_the_real_arm_stands_open_before_its_placebo_and_several_entries_are_folded(tmp_path):
    pair, _ = page_of(tmp_path / "pair", replace(SMALL, placebo=3))
    assert pair.index('id="entry-1"') < pair.index("ppo · placebo") and "ppo, real arm" in pair
    first, second = pair.split('<article id="entry-2"')
    assert 'class="part"' not in first and 'class="part"' in second
    several, _ = page_of(tmp_path / "two", SMALL, replace(SMALL, model="b"))
    assert all('class="part"' in article for article in several.split("<article ")[1:])
