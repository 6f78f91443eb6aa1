"""What became of every declared run, and what it allows to say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crlbench.disk.hashing import digest
from crlbench.errors import ValidationError
from crlbench.pages import words
from crlbench.run.ledger import Ledger
from crlbench.verdict.board import summarise_board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import load_runs
from tests.support.ledgers import Writer
from tests.support.simulate import Plan, declare, rewrite, write_board

SMALL = {"items": 16, "track_version": 1, "tasks": ("addition", "counting"), "placebo": 3}
TASKS = {"board": ("addition", "counting")}
GONE = "addition seed-04"


def entry_of(board: Path) -> Entry:
    (entry,) = summarise_board(load_runs(board), replicates=100).entries
    return entry


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """Five declared seeds of two tasks; the last one of addition left no record."""
    folder = write_board(tmp_path, Plan(**SMALL, **TASKS))
    shutil.rmtree(next(folder.rglob("addition/real/seed-04")))
    return folder


def tell(board: Path, *events: str, cell: str = "addition/real/seed-04", **detail: str) -> Ledger:
    """Let the ledger of the run folder say that the stored runs ended, then events of one cell."""
    run = next(board.rglob("plan.json")).parent
    cited = declare(run)
    ledger = Ledger(run / "ledger.jsonl")
    for event in events:
        name = f"tiny-llama@00000000/ppo/{cell}"
        ledger.append(event, name, plan_hash=cited, **detail)
    return ledger


def test_without_a_ledger_a_planned_run_vanished(board: Path):
    next(board.rglob("ledger.jsonl")).unlink()
    entry = entry_of(board)
    assert entry.vanished == (GONE,) and entry.missing == () and entry.failed == ()
    assert (entry.n, entry.standing, entry.declared) == (5, "preview", 5)
    assert entry.why == (
        "No attempt ledger stands beside the runs, so what was tried cannot be known.",
    )


@pytest.mark.parametrize("ledger", [True, False])
def test_records_cite_a_plan_that_was_declared(board: Path, ledger: bool):
    if not ledger:
        next(board.rglob("ledger.jsonl")).unlink()
    rewrite(next(board.rglob("counting/real/seed-02")), plan_hash=digest("another"))
    with pytest.raises(ValidationError, match=r"seed-02/record\.json: plan_hash: .* declared"):
        entry_of(board)


def test_a_ledger_counts_without_a_stored_plan(board: Path):
    next(board.rglob("plan.json")).unlink()
    entry = entry_of(board)
    assert entry.vanished == (GONE,) and (entry.standing, entry.declared) == ("provisional", 5)


@pytest.mark.parametrize("events", [(), ("start",), ("start", "done", "discarded")])
def test_a_record_that_the_ledger_does_not_know_keeps_from_a_rank(
    tmp_path: Path, events: tuple[str, ...]
):
    """Another machine made it, or the command died between the record and its last event."""
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    assert entry_of(board).standing == "provisional"
    away, cell = tmp_path / "away", next(board.rglob("addition/real/seed-04"))
    shutil.move(cell, away)
    tell(board, *events)
    shutil.move(away, cell)
    entry = entry_of(board)
    assert entry.standing == "preview" and entry.vanished == entry.missing == ()
    assert "The ledger does not know how 1 stored run ended: addition seed-04." in entry.why[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"listed": False}, "no entry in models/"),
        ({"listed": True, "hf_id": "org/name", "revision": "unpinned"}, "names no commit"),
    ],
)
def test_a_model_that_nobody_can_repeat_never_ranks(
    tmp_path: Path, changed: dict[str, object], said: str
):
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    for path in board.rglob("record.json"):
        subject = json.loads(path.read_text())["subject"]
        rewrite(path.parent, subject=subject | changed)
    if "revision" in changed:
        next(board.rglob("ledger.jsonl")).unlink()  # it names the cells of the pinned model
    entry = entry_of(board)
    assert entry.standing == "preview" and not entry.ranks
    assert said in entry.why[-1] and entry.why[-1].endswith("never ranks.")
    assert entry.decides == ("revision" not in changed)  # verdicts on pairs need no rank


def test_an_end_without_a_start_keeps_from_a_rank(tmp_path: Path):
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    away, cell = tmp_path / "away", next(board.rglob("addition/real/seed-04"))
    shutil.move(cell, away)
    tell(board, "done")
    shutil.move(away, cell)
    assert entry_of(board).standing == "preview"


AGAIN = ("start", "done", "discarded", "start", "done")


def test_a_repetition_with_the_same_result_is_told_and_ranks(board: Path):
    tell(board, *AGAIN, items_sha256="aa")
    entry = entry_of(board)
    assert entry.standing == "provisional"
    (note,) = entry.notes
    assert note == "1 run had ended, was discarded and was made again: addition seed-04."


def test_another_result_under_the_same_seed_keeps_from_a_rank(board: Path):
    ledger = tell(board, *AGAIN[:3], items_sha256="aa")
    name, cited = ledger.entries[-1]["cell"], ledger.entries[-1]["detail"]["plan_hash"]
    ledger.append("start", name, plan_hash=cited)
    ledger.append("done", name, items_sha256="bb")
    entry = entry_of(board)
    said = "1 run ended with another result under the same seed: addition seed-04."
    assert entry.standing == "preview" and said in entry.why
    assert any("made again" in note for note in entry.notes)


def test_discarded_runs_are_told(board: Path):
    tell(board, "start", "discarded", "start", "interrupted", cell="counting/real/seed-01")
    assert "1 run was discarded: counting seed-01." in entry_of(board).notes


def test_discarded_placebo_runs_are_told_with_their_arm(board: Path):
    tell(board, *AGAIN, cell="counting/placebo/seed-01", items_sha256="aa")
    assert entry_of(board).notes[0].endswith("made again: counting placebo seed-01.")


@pytest.mark.parametrize("name", ["plan.json", "ledger.jsonl"])
def test_a_discarded_file_is_told_and_a_ledger_keeps_from_a_rank(board: Path, name: str):
    ledger = tell(board, "start", "done")
    ledger.append("discarded", name)
    entry = entry_of(board)
    lost = name == "ledger.jsonl"
    assert entry.standing == ("preview" if lost else "provisional")
    assert any("ledger was damaged" in sentence for sentence in entry.why) == lost
    assert any("stored plan was replaced" in note for note in entry.notes) != lost


@pytest.mark.parametrize(
    ("name", "standing"),
    [
        ("ledger.jsonl", "preview"),
        ("plan.json", "provisional"),
        ("start/addition_id.npz", "provisional"),
        ("addition/real/seed-04/curve.csv", "provisional"),
    ],
)
def test_only_a_ledger_that_was_begun_anew_keeps_from_a_rank(board: Path, name: str, standing: str):
    ledger = tell(board, "start", "done")
    ledger.append("rebuilt", name, reason="it was damaged")
    entry = entry_of(board)
    assert entry.standing == standing and not entry.notes
    assert any("ledger was damaged or gone" in why for why in entry.why) == (standing == "preview")


@pytest.mark.parametrize("last", ["done", "failed"])
def test_a_run_that_ended_and_left_nothing_vanished(board: Path, last: str):
    tell(board, "start", last)
    assert entry_of(board).vanished == (GONE,)


@pytest.mark.parametrize(
    "events",
    [(), ("start",), ("start", "interrupted"), ("start", "lost"), ("start", "lost", "resume")],
)
def test_a_run_that_was_only_interrupted_is_missing(board: Path, events: tuple[str, ...]):
    tell(board, *events)
    entry = entry_of(board)
    assert entry.missing == (GONE,) and entry.vanished == ()
    assert entry.standing == "preview" and not entry.ranks
    assert "1 run missing (the same command makes it): addition seed-04." in entry.why


def test_a_vanished_run_learned_nothing(board: Path):
    entry = entry_of(board)
    curve = entry.efficiency.tasks["addition"].curves[4]
    assert (curve.seed, curve.state, curve.measured) == (4, "vanished", 0)
    assert set(curve.u) == {0.0} and len(curve.u) == 21
    measure = entry.evidence.tasks["addition"].measures[4]
    assert measure.E == 0.0 and measure.L == -measure.H
    assert measure.H == entry.evidence.tasks["addition"].measures[0].H
    stability = entry.stability.tasks["addition"].runs[4]
    assert stability.failed and stability.final == 0.0 and stability.drawdown == 0.0
    gen = entry.generalization.runs["addition"][4]
    assert gen.id < 0 and gen.forgetting.expected == 0 and gen.audit_gap is None
    others = entry.efficiency.tasks["addition"].curves[:4]
    assert curve.x["bytes"][-1] == np.mean([c.x["bytes"][-1] for c in others])
    assert all(
        not arrival.censored[0] or arrival.censored[4]
        for arrival in entry.efficiency.tasks["addition"].arrivals["bytes"]
    )


def test_hiding_a_bad_seed_never_helps(tmp_path: Path):
    """Of five runs, deleting any one lowers every headline or leaves it."""
    folder = write_board(tmp_path, Plan(slope=0.6, **SMALL, **TASKS))
    whole = entry_of(folder)
    for index in range(5):
        cell = next(folder.rglob(f"addition/real/seed-{index:02d}"))
        shutil.move(cell, tmp_path / "away")
        found = entry_of(folder)
        assert found.axes["efficiency"].value <= whole.axes["efficiency"].value
        shutil.move(tmp_path / "away", cell)


def test_the_summary_counts_the_same_runs(board: Path):
    summary = summarise_board(load_runs(board), replicates=100)
    (entry,) = summary.entries
    assert entry.vanished == (GONE,) and entry.n == 5
    seed = entry.tasks[0].seeds[4]
    assert (seed.state, seed.rule, seed.at) == ("failed", "vanished", None)
    said = " ".join(words.standing(entry, summary))
    assert "1 planned run left no record and counts as failed" in said


def test_a_task_whose_runs_all_vanished_is_absent(board: Path):
    shutil.rmtree(next(board.rglob("addition")))
    entry = entry_of(board)
    assert entry.absent == ("addition",) and len(entry.vanished) == 5
    assert entry.standing == "preview" and entry.task_names == ("counting",)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"arms": {"real": 7}}, "Ranking needs 5, 10 or 20 seeds; this has 7."),
        ({}, "No plan declares the number of seeds"),
        ({"arms": {"real": 4}}, "More seeds are stored than were declared: addition, counting."),
    ],
)
def test_what_keeps_an_entry_from_a_rank(tmp_path: Path, plan: dict, why: str):
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    run = next(board.rglob("plan.json")).parent
    (run / "plan.json").write_text(json.dumps({"tasks": ["addition", "counting"]}))
    declare(run, **plan)
    entry = entry_of(board)
    assert entry.standing == "preview" and any(why in sentence for sentence in entry.why)


def test_seeds_that_were_added_after_a_look_are_told(board: Path):
    run = next(board.rglob("plan.json")).parent
    tell(board, "start", "failed")
    plan = json.loads((run / "plan.json").read_text()) | {"arms": {"real": 10}}
    Ledger(run / "ledger.jsonl").append("plan", **plan)
    entry = entry_of(board)
    assert entry.declared == 10 and entry.standing == "preview"
    assert "raised from 5 to 10 seeds" in entry.notes[0]


def test_the_largest_declaration_holds(board: Path):
    """A smaller plan, made later, does not make seeds that went badly disappear."""
    tell(board, "start", "failed")
    run = next(board.rglob("plan.json")).parent
    smaller = json.loads((run / "plan.json").read_text()) | {"arms": {"real": 4}}
    Ledger(run / "ledger.jsonl").append("plan", **smaller)
    (run / "plan.json").write_text(json.dumps(smaller))
    entry = entry_of(board)
    assert entry.declared == 5 and entry.vanished == (GONE,)


def test_one_seed_is_told_what_a_rank_needs_once(tmp_path: Path):
    """With one run of the control arm: how many are missing, not which."""
    plan = Plan(seeds=1, **SMALL | {"placebo": 1}, **TASKS)
    board = summarise_board(load_runs(write_board(tmp_path, plan)), replicates=100)
    (entry,) = board.entries
    runs = 3 * len(entry.tasks)
    assert words.standing(entry, board)[:3] == [
        "Preview: one seed, so no interval; that needs 3.",
        "Ranking needs 5, 10 or 20 seeds; this has 1.",
        f"A rank needs 3 seeds of the placebo arm ({runs - len(entry.tasks)} of {runs} runs "
        "missing), which show what any reward would have brought: --arm real,placebo.",
    ]


@pytest.mark.parametrize("seeds", [5, 10])
def test_without_its_placebo_arm_an_entry_is_a_preview(tmp_path: Path, seeds: int):
    board = write_board(tmp_path, Plan(seeds=seeds, **SMALL | {"placebo": 0}, **TASKS))
    entry = entry_of(board)
    assert (entry.n, entry.standing, entry.placebo) == (seeds, "preview", None)
    (why,) = entry.why
    assert why.startswith("A rank needs 3 seeds of the placebo arm, which")
    assert why.endswith(": --arm real,placebo.")
    summary = summarise_board(load_runs(board), replicates=100)
    said = words.standing(summary.entries[0], summary)
    assert said[:2] == [f"{seeds} seeds: a preview.", why]


@pytest.mark.parametrize(
    ("status", "standing"),
    [
        ({"state": "failed", "rule": "kl_cap", "at": 40}, "provisional"),
        ({"state": "partial"}, "preview"),
    ],
)
def test_a_placebo_run_that_failed_is_a_control_and_a_shortened_one_is_none(
    tmp_path: Path, status: dict, standing: str
):
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    rewrite(next(board.rglob("addition/placebo/seed-02")), status=status)
    entry = entry_of(board)
    assert entry.standing == standing
    assert any("(1 of 6 runs missing)" in s for s in entry.why) == (standing == "preview")


def test_the_placebo_arm_of_another_recipe_is_none_of_this_one(tmp_path: Path):
    other = Plan(recipe="grpo", **SMALL | {"placebo": 0}, **TASKS)
    board = write_board(tmp_path, Plan(**SMALL, **TASKS), other)
    entries = summarise_board(load_runs(board), replicates=100).entries
    assert {e.recipe: e.standing for e in entries} == {"ppo": "provisional", "grpo": "preview"}


def raised(tmp_path: Path, seeds: int, seen: int) -> Path:
    """A board whose seeds were raised from five when those below ``seen`` had ended."""
    board = write_board(tmp_path, Plan(seeds=seeds, **SMALL, **TASKS))
    run = next(board.rglob("plan.json")).parent
    plan = json.loads((run / "plan.json").read_text())
    (run / "ledger.jsonl").unlink()
    write = Writer(run)("plan", **plan | {"arms": {"real": 5, "placebo": 3}})
    cells = sorted("/".join(path.parts[-6:-1]) for path in run.rglob("record.json"))
    before = [name for name in cells if int(name[-2:]) < seen]
    for name in before:
        write("start", name)("done", name)
    write("plan", **plan)
    for name in cells:
        if name not in before:
            write("start", name)("done", name)
    return board


@pytest.mark.parametrize("seeds", [10, 20])
def test_seeds_that_were_added_after_a_look_keep_from_a_full_rank(tmp_path: Path, seeds: int):
    board = raised(tmp_path, seeds, seen=5)
    entry = entry_of(board)
    assert (entry.n, entry.declared, entry.standing) == (seeds, seeds, "provisional")
    why = (
        f"Seeds were added after results could be seen, and {seeds} seeds rank fully only where "
        "all were declared before the first run ended."
    )
    assert entry.why == (why,) and entry.ranks
    assert f"raised from 5 to {seeds} seeds" in entry.notes[0]
    summary = summarise_board(load_runs(board), replicates=100)
    (told,) = summary.entries
    said = words.standing(told, summary)
    assert said[:2] == [f"{seeds} seeds: provisional.", why]
    assert not any("enough for a rank" in sentence for sentence in said)


def test_seeds_that_were_added_before_any_run_ended_rank_fully(tmp_path: Path):
    entry = entry_of(raised(tmp_path, 10, seen=0))
    assert (entry.n, entry.standing, entry.why, entry.notes) == (10, "ranked", (), ())


@pytest.mark.parametrize("known", [True, False])
def test_a_placebo_run_that_was_drawn_twice_or_brought_keeps_from_a_rank(
    tmp_path: Path, known: bool
):
    board = write_board(tmp_path, Plan(**SMALL, **TASKS))
    cell = "addition/placebo/seed-01"
    if known:
        ledger = tell(board, *AGAIN[:3], cell=cell, items_sha256="aa")
        name, cited = ledger.entries[-1]["cell"], ledger.entries[-1]["detail"]["plan_hash"]
        ledger.append("start", name, plan_hash=cited)
        ledger.append("done", name, items_sha256="bb")
        said = "ended with another result under the same seed: addition placebo seed-01."
    else:
        away = tmp_path / "away"
        shutil.move(next(board.rglob(cell)), away)
        declare(next(board.rglob("plan.json")).parent)
        shutil.move(away, next(board.rglob("addition/placebo")) / "seed-01")
        said = "The ledger does not know how 1 stored run ended: addition placebo seed-01."
    entry = entry_of(board)
    assert entry.standing == "preview" and any(said in sentence for sentence in entry.why)
