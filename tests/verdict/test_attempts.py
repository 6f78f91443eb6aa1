"""What was declared and attempted in a run folder, as a report reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.attempts import plan_hash
from crlbench.errors import ValidationError
from crlbench.verdict.attempts import Attempts, Extension, read_attempts
from crlbench.verdict.load import load_runs
from tests.support.ledgers import Writer, second
from tests.support.simulate import Plan, rewrite, write_board

TASKS = ["addition", "counting"]


def plan(seeds: int, tasks: list[str] = TASKS, **arms: int) -> dict[str, Any]:
    return {"tasks": tasks, "arms": {"real": seeds} | arms, "recipe": "ppo"}


def cell(task: str, index: int, arm: str = "real") -> str:
    return f"tiny-llama@00000000/ppo/{task}/{arm}/seed-{index:02d}"


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def attempts(write: Writer) -> Attempts:
    found = read_attempts(write.path.parent)
    assert found is not None
    return found


def test_no_ledger_says_nothing(tmp_path: Path):
    assert read_attempts(tmp_path) is None


def test_what_is_declared_is_the_widest_and_an_extension_shows(write: Writer):
    write("plan", **plan(5, placebo=3))("start", cell("addition", 0))("done", cell("addition", 0))
    write("plan", **plan(10, placebo=3))("plan", **plan(5, ["addition"]))
    found = attempts(write)
    assert found.planned == {(t, a): n for t in TASKS for a, n in (("real", 10), ("placebo", 3))}
    assert found.extensions() == (Extension(time=second(3), before=5, after=10, ended=1),)
    assert found.extensions("placebo") == ()
    assert [d.arms["real"] for d in found.declared] == [5, 10, 5]


def test_tasks_declared_one_after_another_are_all_planned(write: Writer):
    write("plan", **plan(5, ["addition"]))("plan", **plan(10, ["counting"]))
    found = attempts(write)
    assert found.planned == {("addition", "real"): 5, ("counting", "real"): 10}
    assert found.extensions() == ()


@pytest.mark.parametrize(
    ("events", "vanished"),
    [
        ([], False),
        (["start"], False),
        (["start", "interrupted", "resume"], False),
        (["start", "error"], False),
        (["start", "done"], True),
        (["start", "failed"], True),
        (["start", "resume", "lost"], False),
        (["start", "lost", "resume"], False),
        (["start", "done", "discarded"], False),
        (["start", "done", "discarded", "start", "done"], True),
    ],
)
def test_a_planned_cell_without_a_record(write: Writer, events: list[str], vanished: bool):
    write("plan", **plan(2, ["addition"]))
    for event in events:
        write(event, cell("addition", 1))
    assert attempts(write).vanished(("addition", "real", 1)) is vanished


def test_interruptions_are_no_repetitions(write: Writer):
    write("plan", **plan(3, ["addition"]))
    for event in ("start", "interrupted", "resume", "lost", "resume", "done"):
        write(event, cell("addition", 0))
    for event in ("start", "error", "start", "done"):
        write(event, cell("addition", 1))
    found = attempts(write)
    assert found.repeated == found.redrawn == found.given_up == ()


def test_a_run_that_was_discarded_and_did_not_end_again_is_given_up(write: Writer):
    write("plan", **plan(2, ["addition"]))
    for index, events in enumerate((("start", "discarded"), ("start", "done", "discarded"))):
        for event in events:
            write(event, cell("addition", index))
    found = attempts(write)
    assert found.repeated == ()
    assert found.given_up == (("addition", "real", 0), ("addition", "real", 1))


def test_a_repetition_with_another_result_is_another_draw(write: Writer):
    write("plan", **plan(2, ["addition"]))
    for index, results in enumerate((("aa", "aa"), ("aa", "bb"))):
        for result in results:
            write("start", cell("addition", index))
            write("done", cell("addition", index), items_sha256=result)
            write("discarded", cell("addition", index))
    found = attempts(write)
    assert found.repeated == (("addition", "real", 0), ("addition", "real", 1))
    assert found.redrawn == (("addition", "real", 1),)


def test_a_discarded_plan_stays_declared(write: Writer):
    write("plan", **plan(20))("discarded", "plan.json")("plan", **plan(5))
    found = attempts(write)
    assert set(found.planned.values()) == {20} and found.extensions() == ()
    assert found.discarded == ("plan.json",)


def test_plans_of_another_recipe_hold_only_for_it(write: Writer):
    other = plan(5) | {"recipe": "grpo"}
    write("plan", **plan(20))("discarded", "plan.json")("plan", **other)
    assert set(attempts(write).planned.values()) == {5}
    write("discarded", "plan.json")("plan", **plan(5))
    assert set(attempts(write).planned.values()) == {20}


def test_a_result_of_another_recipe_is_no_other_draw(write: Writer):
    for recipe, result in (("ppo", "aa"), ("grpo", "bb"), ("ppo", "aa")):
        write("plan", **plan(1, ["addition"]) | {"recipe": recipe})
        write("start", cell("addition", 0))
        write("done", cell("addition", 0), items_sha256=result)
        write("discarded", cell("addition", 0))
    assert attempts(write).redrawn == ()
    write("start", cell("addition", 0))("done", cell("addition", 0), items_sha256="cc")
    assert attempts(write).redrawn == (("addition", "real", 0),)


def test_a_broken_chain_names_its_line(write: Writer):
    write("plan", **plan(5))("start", cell("addition", 0))("done", cell("addition", 0))
    lines = write.path.read_text().splitlines(keepends=True)
    write.path.write_text("".join([lines[0], lines[2]]))
    with pytest.raises(ValidationError, match=r"ledger\.jsonl:2: the attempt ledger was changed"):
        read_attempts(write.path.parent)


def test_a_run_before_its_plan_is_refused(write: Writer):
    write("plan", **plan(5))("start", cell("addition", 0), plan_hash=plan_hash(plan(10)))
    write("plan", **plan(10))
    with pytest.raises(ValidationError, match=r"ledger\.jsonl:2: a run began under the plan"):
        read_attempts(write.path.parent)


def test_a_stored_plan_that_was_never_declared_is_refused(write: Writer):
    write("plan", **plan(5))
    stored = write.path.parent / "plan.json"
    stored.write_text(json.dumps(plan(5) | {"plan_hash": plan_hash(plan(5))}))
    assert attempts(write).planned
    stored.write_text(json.dumps(plan(4)))
    with pytest.raises(ValidationError, match=r"plan\.json: this plan .* was never declared"):
        read_attempts(write.path.parent)


def test_a_cell_without_a_place_is_named(write: Writer):
    write("plan", **plan(5))("done", "somewhere")
    with pytest.raises(ValidationError, match=r"cell 'somewhere': expected"):
        read_attempts(write.path.parent)


def test_records_must_be_those_of_the_ledger(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16))
    home = next(board.rglob("plan.json")).parent
    folder = home / "addition" / "real" / "seed-00"
    for name in ("plan.json", "ledger.jsonl"):
        (home / name).unlink()
    write = Writer(home)("plan", **plan(1, ["addition"]))
    with pytest.raises(ValidationError, match=r"record\.json: plan_hash: .* was never declared"):
        attempts(write).check(load_runs(home))
    rewrite(folder, plan_hash=write.plan)
    attempts(write).check(load_runs(home))
    record = load_runs(home).runs[0].record
    write("start", cell("addition", 0))("done", cell("addition", 0), record_id=record.record_id)
    attempts(write).check(load_runs(home))
    rewrite(folder, submitter="somebody")
    with pytest.raises(ValidationError, match=r"record\.json: record_id: .* was exchanged"):
        attempts(write).check(load_runs(home))
