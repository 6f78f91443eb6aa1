"""``crlbench add task``: what it writes works at once, and it overwrites nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.task_card import read_task_card
from crlbench.suite import scaffold
from tests.support.tracks import MINI_1
from tests.test_layers import imports

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue folder with a task that was added and frozen, nothing else done to it."""
    root = tmp_path_factory.mktemp("mine")
    assert cli.main(["add", "task", "my-spread", "--to", str(root), "-q"]) == 0
    assert cli.main(["freeze", str(root / "tasks" / "my-spread"), "-q"]) == 0
    return root


@pytest.mark.slow
def test_an_added_task_keeps_every_rule_as_it_stands(
    added: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["validate", str(added / "tasks" / "my-spread")]) == 0
    assert "my-spread 0.1.0: keeps every rule" in capsys.readouterr().out


@pytest.mark.slow
def test_its_own_tests_pass_and_can_fail(added: Path) -> None:
    test = added / "tests" / "tasks" / "test_my_spread.py"
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "13 passed" in done.stdout, done.stdout + done.stderr
    broken = added / "tests" / "tasks" / "test_broken.py"
    broken.write_text(test.read_text().replace("numbers[-1] - numbers[0]", "numbers[-1]"))
    done = subprocess.run([*call[:-1], str(broken)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "4 failed" in done.stdout


def test_it_is_a_draft_of_the_catalogue_with_its_own_canary(added: Path) -> None:
    card = Catalog([added]).task_card("my-spread")
    assert card.version == "0.1.0" and card.canary == scaffold.canary("my-spread")
    assert scaffold.canary("my-spread") != scaffold.canary("my-spread-2")
    canaries = [read_task_card(p).canary for p in ROOT.glob("tasks/*/frozen.toml")]
    assert card.canary not in canaries
    assert card.splits["hard"].levels == (3,) and card.splits["id"].count == 512


def test_a_ranked_track_refuses_the_draft(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracks = added / "leaderboard" / "tracks"
    tracks.mkdir(parents=True, exist_ok=True)
    text = MINI_1.read_text()
    text = text.replace('id = "mini"', 'id = "mine"').replace('"list-ops"', '"my-spread"')
    (tracks / "mine.toml").write_text(text)
    assert cli.main(["show", "track", "mine", "--catalog", str(added)]) == 3
    assert "'my-spread' 0.1.0 is a draft" in capsys.readouterr().err


def test_it_imports_what_a_task_may(added: Path) -> None:
    for name, _ in imports(added / "tasks" / "my-spread" / "task.py"):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or name.startswith("crlbench.reward."), name


@pytest.mark.slow
def test_the_next_commands_are_said_and_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["add", "task", "b.spread-2", "--to", str(tmp_path)]) == 0
    shown, _, following = capsys.readouterr().out.partition("next:")
    written = [tmp_path / "tasks/b.spread-2/task.py", tmp_path / "tasks/b.spread-2/README.md"]
    written.append(tmp_path / "tests/tasks/test_b_spread_2.py")
    assert [Path(line) for line in shown.split()] == written
    assert not any(re.search("@[A-Z]+@", path.read_text()) for path in written)
    assert cli.main(["list", "tasks", "--catalog", str(tmp_path)]) == 0
    assert "crlbench freeze b.spread-2" in capsys.readouterr().out
    freeze, validate, test = (line.split() for line in following.strip().splitlines())
    assert cli.main([*freeze[1:], "-q"]) == 0
    assert validate[:2] == ["crlbench", "validate"] and Path(validate[2]) == written[0].parent
    assert test[0] == "pytest" and Path(test[1]) == written[2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("My Task", "lowercase letters, digits, '-' and '.'. Did you mean my-task?"),
        ("../up", "Did you mean up?"),
        ("a--b", "Did you mean a-b?"),
        ("", "is not allowed"),
        ("addition", "task 'addition' exists already in"),
    ],
)
def test_a_wrong_name_is_refused(
    tmp_path: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["add", "task", name, "--to", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests" / "tasks").mkdir(parents=True)
    test = tmp_path / "tests" / "tasks" / "test_spread.py"
    test.write_text("mine")
    assert cli.main(["add", "task", "spread", "--to", str(tmp_path)]) == 2
    assert f"{test} exists already" in capsys.readouterr().err
    assert test.read_text() == "mine" and not (tmp_path / "tasks").exists()


def test_a_place_that_is_no_folder_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["add", "task", "spread", "--to", str(tmp_path / "file")]) == 6
    assert "cannot be written: Not a directory" in capsys.readouterr().err


def test_without_a_checkout_a_place_must_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from crlbench.catalog import find

    monkeypatch.setattr(find, "CHECKOUT", tmp_path)
    monkeypatch.setattr(find, "BUNDLED", tmp_path)
    assert cli.main(["add", "task", "spread"]) == 2
    assert "--to DIR" in capsys.readouterr().err


def test_the_templates_travel_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    (pattern,) = project["package-data"]["crlbench.suite.scaffold"]
    found = {path.name for path in scaffold.HERE.glob(pattern)}
    kinds = ("task", "environment")
    assert found == {f for k in kinds for f in (f"{k}.py.in", f"{k}.md.in", f"test_{k}.py.in")}


def test_outside_the_checkout_the_place_must_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["add", "task", "my-stray"]) == 2
    said = capsys.readouterr().err
    assert "not in the checkout" in said and "--to ." in said and str(ROOT) in said
    assert not (ROOT / "tasks" / "my-stray").exists()
    assert cli.main(["add", "task", "my-stray", "--to", "."]) == 0
    assert (tmp_path / "tasks" / "my-stray" / "task.py").is_file()
