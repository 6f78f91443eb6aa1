"""Summaries: what counts, what is named, what may be said at how many seeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crlbench.base import wording
from crlbench.errors import NotComparable
from crlbench.pages import words
from crlbench.stats.intervals import task_balanced_iqm
from crlbench.verdict.axes import AXES
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.plain_data import plain
from tests.support.simulate import Plan, declare, rewrite, write_board, write_run

SMALL = {"items": 16, "tasks": ("addition", "counting")}


def summary_of(tmp_path: Path, *plans: Plan, **options) -> Board:
    return summarise_board(load_runs(write_board(tmp_path, *plans)), replicates=200, **options)


def test_numbers_are_means_over_seeds_and_tasks(five_summary: Board):
    entry = five_summary.entries[0]
    assert [t.task for t in entry.tasks] == ["addition", "counting", "key-value", "list-ops"]
    for task in entry.tasks:
        assert task.lam.value == pytest.approx(np.mean([s.lam for s in task.seeds]))
        assert task.gain.value == pytest.approx(task.end - task.start)
        assert task.gain_u.value == pytest.approx(task.gain.value / 0.97)
        assert task.E == pytest.approx(task.H + task.L)
        assert task.lam.interval.low < task.lam.value < task.lam.interval.high
    assert entry.gain.value == pytest.approx(np.mean([t.gain.value for t in entry.tasks]))
    assert entry.lam_mean.value == pytest.approx(np.mean([t.lam.value for t in entry.tasks]))
    per_task = [[s.lam for s in t.seeds] for t in entry.tasks]
    assert entry.lam.value == pytest.approx(task_balanced_iqm(per_task))
    assert entry.lam.interval.low < entry.lam.value < entry.lam.interval.high


def test_a_failed_run_is_counted_and_named(five_summary: Board):
    entry = five_summary.entries[0]
    assert entry.failed == ("counting seed-03: kl_cap at iteration 22",)
    assert len(entry.tasks[1].seeds) == 5 and entry.n == 5
    said = " ".join(words.standing(entry, five_summary))
    assert "1 run failed and counts with u = 0" in said and "counting seed-03: kl_cap" in said


@pytest.mark.parametrize(
    ("seeds", "standing", "said"),
    [
        (1, "preview", "Preview: one seed, so no interval"),
        (3, "preview", "3 seeds: a preview"),
        (5, "provisional", "5 seeds: provisional"),
        (7, "preview", "7 seeds: a preview."),
        (10, "ranked", "10 seeds: enough for a rank"),
    ],
)
def test_standing_by_the_number_of_seeds(tmp_path: Path, seeds: int, standing: str, said: str):
    summary = summary_of(tmp_path, Plan(seeds=seeds, items=8, placebo=3))
    (entry,) = summary.entries
    assert (entry.n, entry.standing) == (seeds, standing)
    assert words.standing(entry, summary)[0].startswith(said)
    assert (entry.lam.interval is None) == (seeds == 1)
    assert all((t.lam.interval is None) == (seeds < 5) for t in entry.tasks)


def test_one_task_one_seed(tmp_path: Path):
    summary = summary_of(tmp_path, Plan(tasks=("addition",), seeds=1, items=8))
    entry = summary.entries[0]
    assert entry.lam.interval is None and entry.gain.interval is None
    assert entry.lam.value == entry.tasks[0].lam.value
    assert entry.absent == ("counting", "key-value", "list-ops")


def test_missing_cells_are_named(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=6, **SMALL))
    shutil.rmtree(next(board.rglob("counting/real/seed-02")))
    for name in ("plan.json", "ledger.jsonl"):
        next(board.rglob(name)).unlink()
    summary = summarise_board(load_runs(board), replicates=200)
    entry = summary.entries[0]
    assert entry.missing == ("counting seed-02",)
    assert (entry.n, entry.standing) == (5, "preview")
    assert "1 run missing (the same command makes it)" in " ".join(words.standing(entry, summary))


def test_the_plan_knows_which_cells_are_still_to_come(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=2, **SMALL))
    run = next(board.rglob("plan.json")).parent
    declare(run, arms={"real": 3})
    entry = summarise_board(load_runs(board), replicates=200).entries[0]
    assert entry.missing == ("addition seed-02", "counting seed-02") and entry.vanished == ()
    (run / "ledger.jsonl").unlink()
    entry = summarise_board(load_runs(board), replicates=200).entries[0]
    assert entry.vanished == ("addition seed-02", "counting seed-02") and entry.missing == ()


def test_shortened_runs_are_never_mixed_with_whole_ones(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=3, **SMALL))
    folder = next(board.rglob("addition/real/seed-01"))
    whole = summarise_board(load_runs(board), replicates=200).entries[0]
    rewrite(folder, status={"state": "partial"})
    entry = summarise_board(load_runs(board), replicates=200).entries[0]
    assert entry.partial == ("addition seed-01",)
    assert [len(t.seeds) for t in entry.tasks] == [2, 3]
    kept = [s.lam for s in whole.tasks[0].seeds if s.index != 1]
    assert entry.tasks[0].lam.value == pytest.approx(np.mean(kept))


def test_a_smoke_run_says_that_it_shows_nothing(tmp_path: Path):
    summary = summary_of(tmp_path, Plan(seeds=1, partial=True, division="open", **SMALL))
    entry = summary.entries[0]
    assert entry.standing == "partial" and entry.lam.value is not None
    assert "These numbers are not results." in words.standing(entry, summary)[0]


def test_a_smoke_run_with_a_failure_stays_a_smoke_run(tmp_path: Path):
    plan = Plan(seeds=1, partial=True, failed=(("addition", 0, 2),), **SMALL)
    entry = summary_of(tmp_path, plan).entries[0]
    assert entry.standing == "partial" and len(entry.tasks) == 2 and len(entry.failed) == 1


def test_the_placebo_arm_has_no_end(tmp_path: Path):
    summary = summary_of(tmp_path, Plan(arm="placebo", seeds=3, **SMALL))
    (entry,) = summary.controls
    assert entry.end is None and entry.gain.value is None and entry.gain.interval is None
    assert entry.lam.value is not None
    assert "placebo" in words.standing(entry, summary)[0]


def test_a_failed_placebo_run_has_no_invented_end(tmp_path: Path):
    plan = Plan(arm="placebo", seeds=2, failed=(("addition", 0, 4),), **SMALL)
    (entry,) = summary_of(tmp_path, plan).controls
    assert entry.tasks[0].end is None and entry.failed


def test_an_entry_does_not_move_another_ones_numbers(tmp_path: Path):
    plan = Plan(seeds=5, **SMALL)
    alone = summary_of(tmp_path / "a", plan).entries[0]
    others = Plan(model="a-model", seeds=3, **SMALL), Plan(recipe="zz", seeds=10, **SMALL)
    found = summary_of(tmp_path / "b", plan, *others).entries
    together = next(e for e in found if (e.model, e.recipe) == ("tiny-llama", "ppo"))
    assert plain(together) == plain(alone) and together.summary() == alone.summary()


def test_runs_under_different_conditions_are_refused(tmp_path: Path):
    plan = Plan(seeds=1, **SMALL)
    board = write_board(tmp_path, plan)
    write_run(board / "other@0" / "ppo", Plan(model="other", seeds=1, **SMALL | {"items": 8}))
    with pytest.raises(NotComparable, match=r"evaluation\.curve_items: (16|8) / (8|16)"):
        summarise_board(load_runs(board))


def test_runs_on_different_hardware_are_refused(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=2, **SMALL))
    folder = next(board.rglob("addition/real/seed-01"))
    rewrite(folder, environment={"hardware_class": "gpu-141"})
    with pytest.raises(NotComparable, match=r"classes of hardware \(cpu / gpu-141\)"):
        summarise_board(load_runs(board))


def test_the_finding_follows_the_interval(tmp_path: Path):
    plans = {
        "the sampled score rose": Plan(seeds=5, items=64, slope=1.5),
        "the sampled score fell": Plan(seeds=5, items=64, slope=-1.5),
        "no change is shown": Plan(seeds=5, items=64, slope=0.0),
    }
    for said, plan in plans.items():
        summary = summary_of(tmp_path / said.replace(" ", "-"), plan)
        assert said in " ".join(words.standing(summary.entries[0], summary))


def test_json_is_strict_whole_and_reproducible(five_summary: Board, five: Path):
    data = five_summary.summary()
    text = json.dumps(data, allow_nan=False)
    assert json.dumps(summarise_board(load_runs(five)).summary()) == text
    assert json.loads(text) == data
    entry = data["entries"][0]
    assert len(entry["tasks"][0]["seeds"][0]["curve"]["x"]) == 21
    assert data["bootstrap"]["replicates"] == 10_000 and isinstance(data["bootstrap"]["seed"], int)
    assert entry["lam"]["interval"].keys() == {"low", "high", "level"}


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (None, 3, False, "–"),
        (0.12345, 3, False, "0.123"),
        (-0.0004, 3, True, "0.000"),
        (0.5, 2, True, "+0.50"),
        (-0.5, 2, False, "−0.50"),
    ],
)
def test_numbers_as_text(value, digits, signed, text):
    assert wording.number(value, digits, signed) == text


def test_invisible_characters_become_visible():
    assert wording.visible("a\x00\u202eb\n") == "a\\u0000\\u202eb\n"
    assert wording.visible("é 漢 \u05d0") == "é 漢 \u05d0"
    assert wording.visible("x" * 1050, 1000) == f"{'x' * 1000} … (50 more characters)"
    assert wording.visible("x" * 1005, 1000) == "x" * 1005, "a cut would say more than it hides"


def test_both_arms_are_entries_and_the_real_one_alone_has_all_axes(tmp_path: Path):
    failing = Plan(**SMALL, seeds=3, placebo=3, failed=(("counting", 1, 22),))
    board = summary_of(tmp_path, failing)
    control, real = board.arms
    assert (control.arm, real.arm) == ("placebo", "real") and control.name == real.name
    assert (board.entries, board.controls) == ((real,), (control,))
    assert set(real.axes) == set(AXES) and set(control.axes) == {"efficiency"}
    assert control.stability is control.generalization is control.efficiency is None
    assert real.placebo.lam == control.lam and real.placebo.n == control.n
    said = board.summary()
    assert [entry["arm"] for entry in said["entries"]] == ["placebo", "real"]
    (entry,) = said["board"]["entries"]
    assert entry["tasks"] == ["addition", "counting"] and "arm" not in entry
