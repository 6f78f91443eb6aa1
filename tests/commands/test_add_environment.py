"""``crlbench add task --environment``: what it writes is frozen, played and learned at once."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.verdict.load import load_runs
from tests.test_layers import imports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue folder with an environment that was added and frozen, nothing else done to it."""
    root = tmp_path_factory.mktemp("mine")
    assert cli.main(["add", "task", "--environment", "my-game", "--to", str(root), "-q"]) == 0
    assert cli.main(["freeze", str(root / "tasks" / "my-game"), "-q"]) == 0
    return root


def test_it_keeps_every_rule_as_it_stands(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(added / "tasks" / "my-game")]) == 0
    assert "my-game 0.1.0: keeps every rule" in capsys.readouterr().out


def test_its_own_tests_pass_and_can_fail(added: Path) -> None:
    test = added / "tests" / "tasks" / "test_my_game.py"
    broken = added / "tests" / "tasks" / "test_broken.py"
    broken.write_text(test.read_text().replace('"abc".index(door)', '"acb".index(door)'))
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run([*call, test, broken], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "4 failed, 22 passed" in done.stdout
    assert "test_my_game" not in done.stdout.partition("short test summary")[2]


def test_it_is_a_draft_of_an_environment_with_room_to_learn(added: Path) -> None:
    card = Catalog([added]).task_card("my-game")
    assert (card.version, card.kind, card.golds) == ("0.1.0", "environment", False)
    for split in card.splits.values():
        assert split.ceiling == 1.0 and split.floor < 0.25


def test_it_imports_what_a_task_may(added: Path) -> None:
    for name, _ in imports(added / "tasks" / "my-game" / "task.py"):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or name.startswith("crlbench.reward."), name


def test_the_next_commands_are_said_and_it_is_played_by_hand(
    added: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main(["add", "task", "--environment", "b.game", "--to", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.partition("next:")[2].split("\n")[1:5]
    assert [line.split()[:2] for line in lines] == [
        ["crlbench", "freeze"], ["crlbench", "validate"], ["pytest", lines[2].split()[1]],
        ["crlbench", "show"],
    ]  # fmt: skip
    play = lines[3].replace("b.game", "my-game").replace(str(tmp_path), str(added)).split()
    row = Catalog([added]).load_task("my-game").rows("id")[0]
    gold = json.loads(Catalog([added]).load_task("my-game").code.gold(row["answer"]))
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{text}\n" for text in gold)))
    assert cli.main(play[1:]) == 0
    out = capsys.readouterr().out
    assert f"user: {row['messages'][-1]['content']}" in out and "over; score 1" in out


@pytest.mark.full
def test_a_bundled_model_learns_it(added: Path, tmp_path: Path) -> None:
    """Its views are documents that the bundled models have read: no model of its own is needed."""
    sizes = {"budget.grid": 2, "budget.iterations_per_point": 4, "evaluation.curve_items": 128,
             "evaluation.end_items": 16, "evaluation.retain_items": 8}  # fmt: skip
    pairs = [part for name, value in sizes.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--tasks", "my-game", "--out", str(tmp_path), "--seeds", "1"]
    assert cli.main(["evaluate", *where, "--catalog", str(added), *pairs, "-q"]) == 0
    (plan,) = tmp_path.rglob("plan.json")
    ((run,),) = [[*load_runs(plan.parent)]]
    start, end = (run.record.splits["id"].start, run.record.splits["id"].end)
    floor = run.record.task.floor
    assert floor < start < 0.8 and end is not None and end > start + 0.15
    assert run.record.health["faults"][-1] < run.record.health["faults"][0]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["task", "--environment"], "the task's name is missing"),
        (["task", "--environment", "My Game"], "Did you mean my-game?"),
        (["task", "--environment", "guess"], "task 'guess' exists already in"),
        (["model", "--environment", "./x"], "--environment belongs to tasks, not to a model."),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["add", *command, "--to", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
