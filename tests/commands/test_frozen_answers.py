"""DPO and SFT as commands: runs, their records, ``verify``, kills, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from crlbench import cli
from crlbench.algo import recipes
from crlbench.algo.recipe import to_config
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import control_leaves, override
from crlbench.contract.dynamics import STATS
from crlbench.contract.experience import FROZEN, leaves_of, prompts_of, source_of
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell
from crlbench.errors import UsageError
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.execute import run_cell
from crlbench.run.learners import Inputs
from crlbench.run.origin import Origin
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe
from tests.support.commands import SHORT

TINY = SHORT | {
    "budget.completions": 4,
    "evaluation.curve_items": 32,
    "evaluation.retain": "[]",
    "evaluation.pass_draws": 0,
}
TASKS = {"dpo": "judged", "sft": "addition"}
FILES = ("digests.jsonl", "curve.csv", "policy.safetensors", "items.npz")


def evaluate(out: Path, recipe: str, *extra: str, **changed: Any) -> int:
    settings = TINY | {name.replace("__", "."): value for name, value in changed.items()}
    pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    tasks = () if "--tasks" in extra else ("--tasks", TASKS.get(recipe.partition("+")[0], "judged"))
    where = ["--model", "tiny-llama", "--recipe", recipe, *tasks, "--out", str(out)]
    return cli.main(["evaluate", *where, "--seeds", "1", "-q", *pairs, *extra])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "arms"),
    [("dpo", ["real", "placebo"]), pytest.param("sft", ["real"], marks=pytest.mark.full)],
)
def test_one_command_runs_and_verify_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, arms: list[str]
) -> None:
    assert evaluate(tmp_path, recipe, "--arm", ",".join(arms)) == 0
    captured = capsys.readouterr()
    source = source_of(to_config(recipes.load(recipe)))
    assert f"learns from frozen {source}" in captured.err
    folder = Path(captured.out.splitlines()[-1]).parent
    assert sorted(path.name for path in (folder / TASKS[recipe]).iterdir()) == sorted(arms)
    for arm in arms:
        record = read_record(folder / TASKS[recipe] / arm / "seed-00" / "record.json")
        assert record.status.state == "completed" and record.protocol.division == "open"
        assert record.fingerprint.leaves["experience"] == source
        assert [*record.health] == sorted(["iteration", *STATS[source]])
        assert record.counts == {"left_out": 0, "skipped_updates": 0}
        assert record.cost["generated_tokens"] == 0 < record.cost["trained_tokens"]
        assert [point.x for point in record.curve] == [0, 16, 32]
        assert [point.prompts for point in record.curve] == [
            0, 16 // FROZEN[source], 32 // FROZEN[source],
        ]  # fmt: skip
    assert cli.main(["verify", str(folder), "--updates", "all"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out


def cell_of(board: Board, folder: Path, recipe: str, task: str) -> Cell:
    config = to_config(recipes.load(recipe))
    changes = {name: str(value) for name, value in TINY.items()} | {"budget.grid": "3"}
    conditions = override(board.conditions, changes)
    control = control_leaves(board.track, conditions, {}) | leaves_of(config)
    short = replace(board, conditions=conditions, control=control, division="open", tasks=(task,))
    contender = Contender("tiny-llama", "tiny-llama", "0a1b2c3d", "e" * 64)
    declared = Declaration(
        short, contender, NamedRecipe(recipe, config), (task,), ("real",), 1, folder,
        Execution(loggers=()),
    )  # fmt: skip
    return declared.plan().cells[0].model_copy(update={"entry_sha256": None, "control": {}})


@pytest.fixture(scope="module")
def board() -> Board:
    opened = open_board(Catalog(), "mini")
    return make_board(opened.catalog, opened.track, Request())[0]


class Killed(BaseException):
    """What nothing catches."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        "dpo",
        pytest.param("sft", marks=pytest.mark.full),
        pytest.param("dpo+reference=ema:decay=0.9", marks=pytest.mark.full),
    ],
)
def test_a_killed_run_continues_to_the_same_bytes(
    board: Board, tmp_path: Path, recipe: str
) -> None:
    task = TASKS[recipe.partition("+")[0]]
    whole = cell_of(board, tmp_path / "whole", recipe, task)
    record = run_cell(whole, lambda event: None, lambda: False)
    again = cell_of(board, tmp_path / "again", recipe, task)

    def kill(event: Any) -> None:
        if event.get("phase") == "train" and event["iteration"] == 2:
            raise Killed

    with pytest.raises(Killed):
        run_cell(again, kill, lambda: False)
    assert (Path(again.folder) / "ckpt" / "last.ckpt").exists()
    continued = run_cell(again, lambda event: None, lambda: False)
    assert continued.digest_root == record.digest_root and continued.health == record.health
    for name in FILES:
        ours, theirs = (Path(cell.folder) / name for cell in (again, whole))
        assert ours.read_bytes() == theirs.read_bytes(), name


@pytest.mark.slow
def test_a_stage_begins_with_the_weights_of_the_stage_before(board: Board, tmp_path: Path) -> None:
    first = cell_of(board, tmp_path / "sft", "sft", "addition")
    run_cell(first, lambda event: None, lambda: False)
    weights = load_file(Path(first.folder) / "policy.safetensors")
    second = cell_of(board, tmp_path / "dpo", "dpo", "judged")
    origin = Origin(Inputs(start=weights))
    record = run_cell(second, lambda event: None, lambda: False, lambda *_: origin)
    plain = run_cell(
        cell_of(board, tmp_path / "plain", "dpo", "judged"), lambda event: None, lambda: False
    )
    assert record.health["reference_kl"][0] == pytest.approx(0.0, abs=1e-6)
    assert record.curve[0].score != plain.curve[0].score


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "extra", "changed", "message"),
    [
        ("dpo", ("--tasks", "addition"), {},
         "task 'addition' has none .tasks with pairs: judged"),
        ("dpo", (), {"sampling__temperature": 0.7}, "temperature 1, and .* is 0.7. Set"),
        ("dpo", ("--arm", "real,mode"), {}, "--arm mode: .* real, placebo, stress"),
        ("sft", ("--arm", "placebo"), {}, "--arm placebo: .* are real, stress"),
        ("sft", ("--tasks", "guess"), {}, "task 'guess' is not single-turn"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_from_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    extra: tuple[str, ...],
    changed: dict[str, Any],
    message: str,
) -> None:
    code = evaluate(tmp_path, recipe, "--dry-run", *extra, **changed)
    said = " ".join(capsys.readouterr().err.split())
    assert code == UsageError.exit_code
    assert re.search(message, said), said
    assert not list(tmp_path.iterdir())


def test_an_odd_number_of_answers_makes_no_pairs(tmp_path: Path, capsys: Any) -> None:
    odd = {"budget__prompts": 3, "budget__completions": 3, "optimization__minibatches": 1}
    assert evaluate(tmp_path, "dpo", "--dry-run", **odd) == UsageError.exit_code
    assert "an iteration has 9 completions" in " ".join(capsys.readouterr().err.split())


def test_every_kind_of_recipe_says_what_it_learns_from(board: Board) -> None:
    sources = {name: source_of(to_config(recipes.load(name))) for name in recipes.names()}
    assert {name for name, source in sources.items() if source == "pairs"} == {
        "dpo", "ipo", "robust-dpo", "rpo",
    }  # fmt: skip
    assert {name for name, source in sources.items() if source == "demonstrations"} == {"sft"}
    assert leaves_of(to_config(recipes.load("ppo"))) == {}
    budget = board.conditions.budget
    assert prompts_of("rewards", budget) == budget.prompts
    assert prompts_of("pairs", budget) * 2 == prompts_of("demonstrations", budget) == budget.rows
