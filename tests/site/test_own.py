"""A board with one's own runs: ``crlbench leaderboard build --runs``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.commands.own_results import with_own
from crlbench.errors import UsageError
from crlbench.verdict.entry import OWN
from tests.site.simulated import TASKS, submit
from tests.support.simulate import Plan, write_board

RANKED = Plan(tasks=TASKS, board=TASKS, revision="0" * 40, items=16, seeds=5, placebo=3,
              track_version=1)  # fmt: skip


def named(model: str, slope: float, **more: object) -> Plan:
    return replace(RANKED, model=model, display_name=model.title(), slope=slope, **more)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Results of two models, and runs of one's own: a new model with all that a rank takes, one
    that is stored, and a shortened one."""
    home = tmp_path_factory.mktemp("own")
    write_board(home / "theirs", named("tiny-llama", 0.4), named("tiny-qwen2", 1.4))
    results = submit(home / "theirs", home / "leaderboard" / "results")
    write_board(home / "runs", named("my-model", 2.6), named("tiny-llama", 0.5))
    write_board(home / "runs", named("short", 1.0, partial=True, seeds=1, placebo=0))
    return results, home / "runs"


def table(folder: Path) -> str:
    """The first table of the front page."""
    text = (folder / "index.html").read_text(encoding="utf-8")
    return text[text.index('<tr role="row" data-name=') :]


def row(text: str, name: str) -> str:
    found = re.search(rf'<tr role="row" data-name="{name}[^>]*>.*?</tr>', text, re.DOTALL)
    assert found is not None, name
    return found[0]


@pytest.mark.slow
def test_own_runs_stand_beside_the_results_and_never_rank(
    places: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, runs = places
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    out = tmp_path / "site"
    build = ["leaderboard", "build", "--results", str(results), "--out", str(out), "--no-cache"]
    assert cli.main([*build, "--runs", str(runs)]) == 0
    said = capsys.readouterr().err
    assert "tiny-llama@00000000/ppo is among the results already" in said
    assert "its runs were shortened" in said
    assert re.search(r"Your runs on it: mini-\w+/my-model@00000000/ppo\.", said)
    text = table(out)
    mine = row(text, "my-model@00000000/ppo")
    assert "your runs" in mine and "preview" in mine and 'class="own"' in mine.replace("next ", "")
    assert OWN in mine and "provisional" not in mine and "<b>1</b>" not in mine
    for name in ("tiny-llama", "tiny-qwen2"):
        theirs = row(text, f"{name}@00000000/ppo")
        assert "your runs" not in theirs and re.search(r"<b>[12]</b>", theirs)
    pages = [path for path in out.rglob("*.html") if "my-model" in str(path.relative_to(out))]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    assert texts and any(OWN in text for text in texts)
    assert not any("seeds rank provisionally" in text for text in texts)
    assert {path: path.read_bytes() for path in before} == before
    assert cli.main([*build]) == 0
    assert "my-model" not in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", ["board", "run"])
def test_a_board_and_a_single_run_folder_will_do(places: tuple[Path, Path], where: str) -> None:
    results, runs = places
    (mine,) = runs.glob("*/my-model@*/ppo")
    root = mine if where == "run" else mine.parents[1]
    with with_own(results, [root, root], [].append) as (folder, own):
        assert own == {"/".join(mine.parts[-3:])}
        assert all((folder / name / "runs.tar.zst").is_file() for name in own)
    assert not folder.exists()


def test_what_shows_nothing_is_refused(
    places: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, runs = places
    (tmp_path / "empty").mkdir()
    said: list[str] = []
    for roots, why in (([tmp_path / "away"], "no such folder"), ([tmp_path / "empty"], "no run"),
                       ([*runs.glob("*/tiny-llama@*/ppo")], "no run"), ([results], "no run")):
        with pytest.raises(UsageError, match=why), with_own(results, roots, said.append):
            pass
    assert len(said) == 1
    call = ["leaderboard", "build", "--results", str(results), "--runs", str(runs)]
    for flag in ("--url", "--source-url"):
        assert cli.main([*call, flag, "https://example.org/"]) == 2
        assert flag in capsys.readouterr().err
