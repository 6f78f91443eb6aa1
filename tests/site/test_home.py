"""What the front page says, and that it says it of the right entries."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from crlbench.base import wording
from crlbench.catalog.find import Catalog
from crlbench.errors import ValidationError
from crlbench.pages.table import Cell
from crlbench.pages.words import measured
from crlbench.site import facets, figures, home
from crlbench.site.build import build
from crlbench.site.costs import cost_words, full_cost, rank_cost, seed_cost
from crlbench.site.reading import read_site
from crlbench.site.source import Site, StoredBoard, in_order
from crlbench.site.standings import Panel, _luck, standings
from crlbench.stats.tiers import Leader
from crlbench.verdict.axes import AXES
from crlbench.verdict.resources import known_track
from crlbench.verdict.runs import Run
from tests.site import screenshot
from tests.site.simulated import TASKS, submit
from tests.site.stored import site_of
from tests.support.simulate import Plan, write_board


@pytest.fixture(scope="module")
def panels(site: Site) -> Mapping[str, Panel]:
    return {panel.axis: panel for panel in standings(site.boards[0], "ppo").panels}


def test_the_board_that_ranks_stands_at_the_front(files: Mapping[str, bytes], site: Site):
    assert site.boards[0].board.unranked is None and len(site.boards) == 2
    front = files["index.html"].decode()
    ranked = files[home.board_path(site.boards[0].id, "ppo")].decode()
    assert front.count("tr role") == ranked.count("tr role")


def test_the_size_of_a_model_is_that_without_its_adapter(site: Site):
    subject = site.boards[0].runs.runs[0].record.subject
    lora = {"kind": "lora", "rank": 16}
    change = {"adapter": lora, "params_total": 139_399_488, "params_trainable": 4_885_057}
    assert facets.parameters(subject.model_copy(update=change)) == "135M"
    assert facets.parameters(subject) == facets.format_count(subject.params_total)


def test_a_board_without_scores_has_an_axis_from_0_to_1():
    for anchor in (0.0, 1.0):
        scale = figures.score_scale([], anchor)
        assert (scale.low, scale.high) == (0.0, 1.0)


def test_rows_stand_by_tier_and_then_by_estimate(panels: Mapping[str, Panel]):
    for panel in panels.values():
        places = [(row.tier, -row.score.value) for row in panel.rows]
        assert places == sorted(places)
        assert [row.model for row in panel.unranked] == ["tiny-neox@00000000"]


def test_one_entry_leads_each_tier_with_its_best_estimate(panels: Mapping[str, Panel]):
    for panel in panels.values():
        for tier in range(1, panel.tiers + 1):
            members = [row for row in panel.rows if row.tier == tier]
            leads = [row for row in members if row.leads]
            assert [row.score.value for row in leads] == [max(r.score.value for r in members)]


def test_an_answer_names_who_cannot_be_told_apart(panels: Mapping[str, Panel]):
    for panel in panels.values():
        tied = [row.display_name for row in panel.leaders if not row.leads]
        everybody = tied and len(tied) + 1 == len(panel.rows)
        assert panel.all_tie == bool(everybody)
        words = f"All {len(panel.rows)} tie" if everybody else f"tie of {len(tied) + 1}"
        assert panel.claim == (words if tied else "alone ahead on these tasks")
        if tied and len(tied) + 1 < len(panel.rows):
            assert all(name in panel.answer for name in tied)


def test_luck_is_told_where_it_changes_the_number(panels: Mapping[str, Panel]):
    rows = panels["efficiency"].rows
    best = next(row for row in rows if row.tier == 1 and row.leads)
    value = best.score.value
    interval = best.score.interval
    shown = measured(value, interval)
    alike = next(x for x in (value + 1e-5, value - 1e-5) if measured(x, interval) == shown)
    for shrunken in (value, alike, None):
        assert _luck("Λ", Leader(best.name, value, shrunken, None, None), rows) == ""
    said = _luck("Λ", Leader(best.name, value, value - 0.1, None, None), rows)
    assert said.endswith(f"{best.display_name} is {measured(value - 0.1, interval)}.")


def test_a_preview_says_why_it_has_no_rank(panels: Mapping[str, Panel]):
    (row,) = panels["efficiency"].unranked
    assert row.standing == "preview"
    assert "this has 2" in row.why[0] and any("placebo" in sentence for sentence in row.why)
    assert row.ranks == "" and row.tier is None


def test_failures_and_elicitation_are_flagged(site: Site, panels: Mapping[str, Panel]):
    entries = {entry.name: entry for entry in site.boards[0].board.entries}
    for axis, panel in panels.items():
        for row in panel.rows:
            labels = [flag.label for flag in row.flags]
            failed = len(entries[row.name].failed)
            assert (f"{failed} failed" in labels) == (failed > 0)
            placebo = entries[row.name].placebo
            marked = axis == "efficiency" and bool(placebo and placebo.elicitation)
            assert ("mostly elicitation" in labels) == marked
    assert any(row.flags for row in panels["stability"].rows)


def test_every_number_is_that_of_its_entry(site: Site, panels: Mapping[str, Panel]):
    entries = {entry.name: entry for entry in site.boards[0].board.entries}
    for axis in AXES:
        panel = panels[axis]
        for row in (*panel.rows, *panel.unranked):
            entry = entries[row.name]
            assert row.score is entry.axes[axis]
            assert row.cells["learned"].value == entry.efficiency.L
            assert row.cells["seeds"] == Cell(str(entry.n), entry.n)


def test_greedy_scores_stand_beside_sampled_ones(
    site: Site, panels: Mapping[str, Panel], files: Mapping[str, bytes]
):
    whole = 0
    for row in (*panels["efficiency"].rows, *panels["efficiency"].unranked):
        runs = site.boards[0].arm(row.name, "real")
        if any(run.record.status.state == "failed" for run in runs):
            continue
        whole += 1
        for column, split in (("sampled", "id"), ("greedy", "id_greedy")):
            tasks: dict[str, list[tuple[float, float]]] = {}
            for run in runs:
                found = run.record.splits[split]
                tasks.setdefault(run.record.task.name, []).append((found.start, found.end))
            start, end = (
                fmean(fmean(pair[side] for pair in pairs) for pairs in tasks.values())
                for side in (0, 1)
            )
            cell = row.cells[column]
            assert cell.text == f"{start:.2f} → {end:.2f}" and cell.value == pytest.approx(end)
    assert whole > 1
    assert "Decoded greedily: 0." in files["index.html"].decode()


def test_costs_are_those_of_the_records(site: Site, panels: Mapping[str, Panel]):
    for row in panels["efficiency"].rows:
        by_task: dict[str, list[float]] = {}
        memory = []
        for run in site.boards[0].arm(row.name, "real"):
            if run.status.state == "completed":
                volatile = run.record.volatile
                by_task.setdefault(run.task, []).append(max(volatile["wall_s"]))
                memory.append(volatile.get("peak_memory_bytes"))
        seconds = sum(map(fmean, by_task.values()))
        assert row.cells["cost"].value == pytest.approx(seconds)
        assert set(memory) == {None} and row.cells["cost"].text.endswith(" s")
    assert cost_words({"seconds": 102.0, "memory": 782e6}) == "1.7 min, 782 MB"
    assert cost_words({"seconds": None, "memory": None}) == wording.NONE
    assert cost_words({"seconds": 41.0, "memory": None}) == "41 s"


def test_the_cost_of_a_seed_and_of_a_rank_is_said_in_full() -> None:
    cost = {"seconds": 342.0, "memory": 1.06e9}
    eight, controls = [f"task-{number}" for number in range(8)], ("placebo", "mode", "stress")
    one = "One seed of all 8 tasks: 5.7 min on a CPU, 1.06 GB of memory."
    assert seed_cost(cost, eight, 8, "cpu") == one
    ranks = (
        "In total: 80 min for a provisional rank, 5 seeds and 3 of each of 3 control arms; "
        "108 min for a full one, with 10 seeds."
    )
    assert rank_cost(cost, 8, 8, controls) == ranks
    assert full_cost(cost, eight, 8, "cpu", controls) == f"{one} {ranks}"
    alone = {"seconds": 9000.0, "memory": None}
    assert seed_cost(alone, ["addition"], 1, None) == "One seed of its task: 2.5 h."
    nothing = {"seconds": None, "memory": None}
    assert seed_cost(nothing, eight, 8, "cpu") == rank_cost(nothing, 8, 8, controls) == ""
    assert full_cost(nothing, eight, 8, "cpu", controls) == ""


def test_the_cost_of_a_part_of_a_board_names_the_part() -> None:
    cost = {"seconds": 600.0, "memory": None}
    assert full_cost(cost, ["addition"], 2, "cpu", ("placebo",)) == (
        "One seed of addition alone, 1 of 2 tasks: 10 min on a CPU. "
        "In total, if both tasks cost alike: 2.7 h for a provisional rank, 5 seeds and 3 of the "
        "control arm; 4.3 h for a full one, with 10 seeds."
    )


def test_a_curve_is_the_mean_over_tasks_and_seeds(site: Site, panels: Mapping[str, Panel]):
    (row,) = [one for one in panels["efficiency"].rows if one.model.startswith("tiny-gemma")]
    entry = site.boards[0].board.entry(row.name)
    curve = site.boards[0].brief(entry)["curve"]
    for side, place in ((0, 0), (-1, -1)):
        u = fmean(
            fmean((seed.curve.score[side] - task.floor) / (task.ceiling - task.floor)
                  for seed in task.seeds)
            for task in entry.tasks
        )
        assert curve["mean"][place] == pytest.approx(u)
    lines = zip(*map(curve.get, ("low", "mean", "high")), strict=True)
    assert all(low <= mean <= high for low, mean, high in lines)
    assert 'class="mean"' in row.curve and panels["stability"].rows[0].curve == ""


def test_previews_say_once_what_they_lack_and_missing_tasks_stand_apart(tmp_path: Path):
    plan = Plan(tasks=TASKS, board=TASKS, items=16, seeds=2, track_version=1)
    one = replace(plan, model="tiny-qwen2", tasks=TASKS[:1])
    more = replace(plan, model="tiny-phi", slope=2.0)
    found = standings(site_of(tmp_path, plan, one, more).boards[0], "ppo")
    assert any("this has 2" in sentence for sentence in found.preview)
    panel = found.panels[0]
    assert [row.model for row in panel.unranked] == ["tiny-phi", "tiny-llama"]
    assert [row.model for row in panel.incomplete] == ["tiny-qwen2"]
    (apart,) = panel.incomplete
    assert apart.only == "addition only" and apart.figure == ""
    assert panel.best is not None and panel.best.model == "tiny-phi"
    for row in (*panel.unranked, apart):
        assert not set(row.why) & set(found.preview)
    assert any("Tasks of the track without a run" in sentence for sentence in apart.why)


def test_a_board_of_other_conditions_has_a_name_of_its_own(site: Site):
    changed = [replace(s, board=replace(s.board, division="open")) for s in site.boards]
    labels = [stored.label for stored in (site.boards[0], *changed)]
    assert len(set(labels)) == len(labels) and labels[0] == "mini v1"


def conditions_changed(stored: StoredBoard, name: str, **values: Any) -> StoredBoard:
    """The board as another one of the open division, with these conditions."""
    run = stored.runs.runs[0]
    leaves = run.record.fingerprint.leaves | {
        f"conditions.{group}.{key}": value
        for group, of_group in values.items()
        for key, value in of_group.items()
    }
    stated = run.record.fingerprint.model_copy(update={"leaves": leaves, "hash": name})
    record = run.record.model_copy(update={"fingerprint": stated})
    runs = replace(stored.runs, runs=(Run(record, run.folder),))
    board = replace(stored.board, division="open", fingerprint=name)
    return replace(stored, id=f"mini-{name}", runs=runs, board=board)


MANY = {"epochs": 2, "minibatches": 2, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        (
            [MANY | {"learning_rate": 3e-4}, MANY | {"learning_rate": 3e-5}],
            ["(learning rate 3e-4)", "(learning rate 3e-5)"],
        ),
        ([MANY | {"epochs": 3}, MANY], ["(epochs 3)", "(epochs 2)"]),
        ([{"warmup_iterations": 0}, {"warmup_iterations": 1}], ["iterations 0)", "iterations 1)"]),
        ([MANY, MANY], ["(aaaa)", "(bbbb)"]),
        ([{"learning_rate": 3e-4}, MANY], ["conditions changed", "conditions changed"]),
    ],
)
def test_no_two_boards_of_a_site_have_one_title(
    site: Site, changes: Sequence[Mapping[str, Any]], ends: Sequence[str]
):
    first = replace(site.boards[0], shelves={})
    boards = [first] + [
        conditions_changed(first, name, optimization=values)
        for name, values in zip(("aaaaaaaaaaaa", "bbbbbbbbbbbb"), changes, strict=True)
    ]
    titles = {stored.board.fingerprint: stored.title for stored in in_order(boards)}
    assert len({*titles.values()}) == 3
    assert titles[first.board.fingerprint] == replace(first, apart=("", "")).title
    for name, end in zip("ab", ends, strict=True):
        title = titles[name * 12]
        assert title.startswith("mini v1, ") and title.endswith(end)


def test_other_boards_and_recipes_are_one_click_away(files: Mapping[str, bytes], site: Site):
    front = files["index.html"].decode()
    for stored in site.boards:
        assert f'href="{home.board_path(stored.id, stored.recipes[0])}"' in front
    for recipe in site.boards[0].recipes:
        assert f'href="{home.board_path(site.boards[0].id, recipe)}"' in front


@pytest.mark.slow
def test_a_recipe_whose_name_is_no_file_name_is_refused(site: Site):
    stored = site.boards[0]
    board = stored.board
    bad = "../" + "x"
    entries = tuple(replace(entry, recipe=bad) for entry in board.entries)
    rankings = {bad: board.rankings["ppo"]}
    other = replace(stored, board=replace(board, entries=entries, rankings=rankings))
    with pytest.raises(ValidationError, match="no file name"):
        build(replace(site, boards=(other,)))


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.browser
def test_the_picture_of_the_readme_is_made_by_a_command(tmp_path: Path, chromium: Any):
    picture = tmp_path / "leaderboard.png"
    command = [sys.executable, "-m", "tests.site.screenshot", str(picture)]
    subprocess.run(command, check=True)
    assert size_of(picture) == (screenshot.WIDTH, screenshot.HEIGHT)


def test_the_readme_has_its_picture():
    assert size_of(screenshot.PICTURE) == (screenshot.WIDTH, screenshot.HEIGHT)
    assert f"]({screenshot.PICTURE})" in Path("README.md").read_text(encoding="utf-8")


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:])
    return width, height


@pytest.mark.slow
def test_a_board_that_ranks_comes_before_previews_of_a_present_version(tmp_path: Path) -> None:
    ranks = Plan(tasks=TASKS, board=TASKS, items=16, placebo=3, track_version=1)
    present = known_track("mini").version
    preview = replace(ranks, track_version=present, seeds=1, placebo=0)
    write_board(tmp_path / "runs", ranks)
    write_board(tmp_path / "runs", preview, replace(preview, model="tiny-qwen2"))
    boards = read_site(submit(tmp_path / "runs", tmp_path / "results"), Catalog()).boards
    assert [stored.track for stored in boards] == ["archived", "current"]
    ranking = [any(entry.ranks for entry in stored.board.entries) for stored in boards]
    assert ranking == [True, False]


@pytest.mark.slow
def test_a_track_that_nobody_has_comes_last_and_ranks_nothing(tmp_path: Path) -> None:
    """However many entries it has, and however new its version claims to be."""
    known = Plan(
        tasks=TASKS, board=TASKS, revision=40 * "0", items=16, placebo=3, track_version=1
    )
    models = ("tiny-qwen2", "tiny-phi", "tiny-gemma")
    invented = [replace(known, model=model, track_version=7) for model in models]
    write_board(tmp_path / "runs", known)
    write_board(tmp_path / "runs", *invented)
    site = read_site(submit(tmp_path / "runs", tmp_path / "results"), Catalog())
    first, last = site.boards
    assert (first.board.track_version, first.track) == (1, "archived")
    assert first.board.unranked is None
    assert (last.board.track_version, last.track) == (7, "unknown")
    assert "track mini v7 is not known here: nothing on it was checked" in last.board.unranked
    rankings = [found for axes in last.board.rankings.values() for found in axes.values()]
    assert rankings and not any(found.ranking.standings for found in rankings)
    page = build(site)["index.html"].decode()
    assert page.index("mini v1") < page.index("mini v7")
