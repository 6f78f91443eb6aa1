"""Plans are declared before they are run, and results that are gone stay visible."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlbench.algo import recipes
from crlbench.algo.recipe import to_config
from crlbench.catalog.find import Catalog
from crlbench.commands.running import Ending, say_preview, verdict
from crlbench.commands.settings import Settings
from crlbench.contract.arms import why_unstressed
from crlbench.contract.attempts import LEDGER_NAME, declarations, planned, read
from crlbench.contract.conditions import Track
from crlbench.contract.fields import TaskKind
from crlbench.contract.records import Cell
from crlbench.disk.hashing import sha256_file
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.launch.local import LocalLauncher
from crlbench.run.board import load_track
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Plan, label
from crlbench.run.progress import Progress
from crlbench.run.record import status
from crlbench.run.session import StopSwitch, Work, opened, run_missing, survey
from tests.run.test_plan import finish
from tests.support.checkpoints import write_checkpoint

PlanOf = Callable[..., Plan]
BOTH = ("real", "placebo")
SMALL = load_track(Catalog(), "small")
RANKED_2 = SMALL.model_copy(update={"protocol": "CRL-2"})


class InstantLauncher:
    """Every cell leaves a record and is done."""

    def run(self, cells: list[Cell], on_event: Any, stop_level: Any) -> Any:
        for cell in cells:
            on_event(cell, {"kind": "start", "attempt": 1})
            finish(cell)
            yield Outcome(cell, "done")


def sit(*plans: Plan, fresh: bool = False, repeat: bool = False) -> tuple[Work, list[Outcome]]:
    """One sitting: what there was to do, and what was done."""
    with opened(plans, "test", fresh=fresh, repeat=repeat, shard=None) as work:
        missing = Progress(work.missing, quiet=True)
        return work, run_missing(work, InstantLauncher(), missing, StopSwitch())


def events(plan: Plan) -> list[str]:
    return [entry["event"] for entry in read(plan.folder / LEDGER_NAME)]


def test_a_run_begins_with_its_plan_on_the_disk_and_in_the_ledger(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    launcher = LocalLauncher(1, 1, function="tests.support.cells:witness", warm=None)
    with opened([plan], "test", fresh=False, shard=None) as work:
        (outcome,) = run_missing(work, launcher, Progress([], quiet=True), StopSwitch())
    assert outcome.state == "done", outcome.message
    seen = json.loads((Path(plan.cells[0].folder) / "seen").read_text())
    assert seen == {"stored": plan.hash, "first": {"event": "plan", "plan_hash": plan.hash}}
    start = read(plan.folder / LEDGER_NAME)[1]
    assert start["event"] == "start" and start["detail"]["plan_hash"] == plan.hash


def test_more_seeds_are_declared_again_and_only_add(plan_of: PlanOf) -> None:
    few, many = plan_of(seeds=5), plan_of(seeds=10)
    sit(few)
    _, outcomes = sit(many)
    assert {o.cell.seed_index for o in outcomes} == {5, 6, 7, 8, 9}
    declared = declarations(read(many.folder / LEDGER_NAME))
    assert [(d.plan_hash, d.arms, d.ended) for d in declared] == [
        (few.hash, {"real": 5}, 0),
        (many.hash, {"real": 10}, 10),
    ]
    assert json.loads(many.path.read_text())["plan_hash"] == many.hash


def test_fewer_seeds_make_no_declared_plan_smaller(
    plan_of: PlanOf, capsys: pytest.CaptureFixture[str]
) -> None:
    from crlbench.commands.running import _say_declared

    many, few = plan_of(seeds=10), plan_of(seeds=5)
    sit(many)
    work, _ = sit(few)
    assert set(planned(declarations(read(many.folder / LEDGER_NAME))).values()) == {10}
    assert json.loads(many.path.read_text())["plan_hash"] == many.hash
    _say_declared(work)
    assert "declared 10 seeds of the real arm before. With 5" in capsys.readouterr().err


def test_the_end_of_a_run_names_its_record(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    sit(plan)
    path = Path(plan.cells[0].folder) / RECORD_NAME
    done = read(plan.folder / LEDGER_NAME)[-1]
    assert done["event"] == "done" and done["detail"] == {
        "record_id": json.loads(path.read_text())["record_id"],
        "record_sha256": sha256_file(path),
    }


def test_a_vanished_run_is_said_and_not_made_again(plan_of: PlanOf) -> None:
    plan = plan_of(seeds=2)
    sit(plan)
    before = events(plan)
    gone = plan.cells[1]
    (Path(gone.folder) / RECORD_NAME).unlink()
    work, outcomes = sit(plan)
    assert (work.vanished, work.missing, outcomes) == ([gone], [], [])
    assert events(plan) == before
    code, sentences = verdict(Ending(work, outcomes, stopped=False, expired=False), verbose=False)
    assert code == 7 and sentences == ["1 run vanished, counted as failed"]
    shutil.rmtree(gone.folder)
    assert survey([plan]).vanished == [gone]


def test_a_vanished_run_is_repeated_on_request_and_the_ledger_says_so(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=2)
    sit(plan)
    shutil.rmtree(plan.cells[0].folder)
    work, outcomes = sit(plan, repeat=True)
    assert [o.cell for o in outcomes] == [plan.cells[0]] and work.vanished == []
    assert events(plan)[-3:] == ["discarded", "start", "done"]
    discarded = read(plan.folder / LEDGER_NAME)[-3]
    assert discarded["cell"] == label(plan.cells[0])
    assert discarded["detail"] == {"reason": "its record was gone"}
    assert survey([plan]).vanished == survey([plan]).missing == []


def test_fresh_says_which_vanished_runs_it_gives_up(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    sit(plan)
    shutil.rmtree(plan.cells[0].folder)
    _, outcomes = sit(plan, fresh=True)
    assert len(outcomes) == 1
    assert events(plan) == ["plan", "start", "done", "discarded", "start", "done"]


def test_a_run_that_was_only_interrupted_goes_on(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    with opened([plan], "test", fresh=False, shard=None) as work:
        work.ledger(plan.cells[0]).append("start", label(plan.cells[0]), plan_hash=plan.hash)
    assert survey([plan]).missing == [plan.cells[0]]


def test_a_record_that_was_exchanged_is_refused(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    sit(plan)
    finish(plan.cells[0], hardware="cpu")
    assert survey([plan]).missing == []
    path = Path(plan.cells[0].folder) / RECORD_NAME
    content = json.loads(path.read_text()) | {"cost": {"completions": 1}}
    from crlbench.contract.records import RunRecord

    path.write_text(RunRecord.model_validate(content).sealed().model_dump_json())
    with pytest.raises(ValidationError, match=r"ended with another record.*--repeat"):
        survey([plan])


def test_the_end_of_a_run_is_noted_later_where_its_command_died(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=2)
    first, elsewhere = plan.cells
    with opened([plan], "test", fresh=False, shard=None) as work:
        work.ledger(first).append("start", label(first), plan_hash=plan.hash)
    finish(first)
    finish(elsewhere)
    sit(plan)
    assert events(plan) == ["plan", "start", "done"]
    done = read(plan.folder / LEDGER_NAME)[-1]
    assert done["cell"] == label(first) and done["detail"]["found"] is True
    (Path(first.folder) / RECORD_NAME).unlink()
    assert survey([plan]).vanished == [first]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 4}, "4 seeds declared; a rank needs 5, 10 or 20"),
        ({"seeds": 1}, "1 seed declared; a rank needs 5, 10 or 20"),
        ({"seeds": 12, "arm": BOTH}, "12 seeds declared; a rank needs 5, 10 or 20"),
        ({"seeds": 5}, "a rank also needs the placebo arm (--arm real,placebo)"),
        ({"seeds": 20}, "a rank also needs the placebo arm (--arm real,placebo)"),
        ({"seeds": 5, "arm": BOTH}, ""),
        ({"seeds": 10, "arm": BOTH}, ""),
        ({"seeds": 20, "arm": BOTH}, ""),
        ({"seeds": 3, "smoke": True}, ""),
        ({"seeds": 5, "smoke": True}, ""),
        ({"seeds": 3, "arm": ("placebo",)}, ""),
    ],
)
def test_a_declaration_that_never_ranks_is_said(
    capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    say_preview(Settings(**change), (), SMALL)
    assert capsys.readouterr().err == (f"preview: {said}\n" if said else "")


def test_a_track_that_is_not_ranked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of seeds and arms that would not change it."""
    core = load_track(Catalog(), "core")
    assert not core.ranked
    say_preview(Settings(seeds=3), (), core)
    assert capsys.readouterr().err == "preview: track 'core' is not ranked\n"


def test_the_short_form_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    say_preview(Settings(seeds=1, short=True, tasks=("x", "y")), (), SMALL)
    assert capsys.readouterr().err == (
        "preview: --short is one seed of x, y, which never ranks; without it all tasks of 'small' "
        "run\n"
    )


def test_a_model_that_never_ranks_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    say_preview(Settings(seeds=5, arm=BOTH), [Catalog().load_model("qwen3-0.6b")], SMALL)
    assert capsys.readouterr().err == ""
    unlisted = Catalog().load_model(str(write_checkpoint(tmp_path / "mine")))
    loose = Catalog().load_model("qwen3-0.6b")
    source = loose.source.model_copy(update={"revision": "unpinned"})
    cards = [unlisted, loose.model_copy(update={"source": source})]
    say_preview(Settings(seeds=5, arm=BOTH), cards, SMALL)
    assert capsys.readouterr().err == (
        "preview: model 'mine' has no entry in models/, so it never ranks\n"
        "preview: the entry of model 'qwen3-0.6b' names no commit, so it never ranks\n"
    )


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (("real",), "preview: a rank also needs the placebo and mode arms"),
        (("real", "placebo"), "preview: a rank also needs the mode arm"),
        (("real", "placebo", "mode"), "preview of stability: it is ranked with the stress arm"),
        (("real", "placebo", "mode", "stress"), ""),
    ],
)
def test_protocol_2_names_the_arms_that_are_lacking(
    capsys: pytest.CaptureFixture[str], arms: tuple[str, ...], said: str
) -> None:
    say_preview(Settings(seeds=5, arm=arms), (), RANKED_2)
    err = capsys.readouterr().err
    assert err.startswith(said) and bool(err) == bool(said)


def test_a_rank_on_episodes_needs_no_arm_that_asks_for_an_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds: list[TaskKind] = ["environment"]
    say_preview(Settings(seeds=5, arm=("real", "placebo", "stress")), (), RANKED_2, kinds)
    assert capsys.readouterr().err == ""
    say_preview(Settings(seeds=5, arm=("real",)), (), RANKED_2, kinds)
    assert "needs the placebo arm (--arm real,placebo)" in capsys.readouterr().err


def test_a_recipe_without_a_learning_rate_is_not_told_to_run_the_stress_arm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = why_unstressed(to_config(recipes.load("trpo")))
    say_preview(Settings(seeds=5, arm=("real", "placebo", "mode")), (), RANKED_2, (), why)
    err = capsys.readouterr().err
    assert "no rank on stability" in err and "trust-region steps" in err and "--arm" not in err
    assert why_unstressed(to_config(recipes.load("ppo"))) == ""


@pytest.mark.parametrize(
    ("arm", "state"),
    [
        *(("real", "failed"), ("stress", "failed")),
        *(("placebo", "completed"), ("mode", "completed"), ("wrong", "completed")),
    ],
)
def test_only_arms_that_the_task_pays_fail_by_a_lower_score(
    plan_of: PlanOf, track: Track, arm: str, state: str
) -> None:
    (cell,) = plan_of(tasks=("addition",), seeds=1, arms=(arm,)).cells
    lower = SimpleNamespace(failure=None, recorder=SimpleNamespace(curve=3 * [{"score": 0.2}]))
    found = status(cell, track.conditions, lower, {"start/id": np.ones((4, 8))})
    assert found.state == state and (found.rule == "score_drop") == (state == "failed")


def test_other_rules_hold_for_the_placebo_arm_too(plan_of: PlanOf, track: Track) -> None:
    (cell,) = plan_of(tasks=("addition",), seeds=1, arms=("placebo",)).cells
    stopped = SimpleNamespace(failure=SimpleNamespace(rule="kl_cap", iteration=7))
    found = status(cell, track.conditions, stopped, {})
    assert (found.state, found.rule, found.at) == ("failed", "kl_cap", 7)
