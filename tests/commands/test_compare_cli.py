"""``crlbench compare`` as a person meets it: names, formats, refusals, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands import stored_entries
from crlbench.commands.stored_entries import find_entries, find_entry
from crlbench.errors import UsageError
from crlbench.verdict import compare_read
from tests.support.simulate import Plan

ROOT = Path(__file__).parents[2]
LLAMA = Plan(seeds=5, items=16, slope=0.5, placebo=3)
QWEN = replace(LLAMA, model="tiny-qwen2", slope=2.5)
MISTRAL = replace(LLAMA, model="tiny-mistral")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models under ppo and one of them under grpo; another board, and a shortened run."""
    from tests.verdict.test_compare import write_entries

    root = tmp_path_factory.mktemp("runs")
    write_entries(root, LLAMA, QWEN, replace(LLAMA, recipe="grpo"))
    write_entries(root, replace(QWEN, items=8))
    write_entries(root, replace(QWEN, model="tiny-mistral", partial=True, seeds=1))
    write_entries(root, replace(QWEN, model="tiny-mistral", seeds=1))
    return root


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    read = compare_read.read_entry
    monkeypatch.setattr(compare_read, "read_entry", lambda folder: read(folder, replicates=300))


def board(runs: Path) -> str:
    """The board on which models have 16 items."""
    return next(e.board for e in stored_entries.stored_entries(runs) if e.model == "tiny-llama")


def call(capsys: pytest.CaptureFixture[str], runs: Path, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["compare", *arguments, "--runs", str(runs)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def pair(runs: Path) -> tuple[str, str]:
    return "tiny-llama/ppo", f"{board(runs)}/tiny-qwen2"


# -- names ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_entry_is_found_by_every_name_that_it_has(runs: Path):
    home = board(runs)
    ppo = runs / home / "tiny-llama@00000000" / "ppo"
    for name in (
        "tiny-llama/ppo",
        "tiny-llama@00000000/ppo",
        "tiny-llama@0000000000000000/ppo",
        f"{home}/tiny-llama/ppo",
        f"{home}/tiny-llama@00000000/ppo",
        str(ppo),
        f"{ppo}/",
    ):
        assert find_entry(name, runs) == ppo
    assert find_entry("tiny-llama/grpo", runs).name == "grpo"


def test_an_entry_is_found_below_its_board_alone(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = board(runs)
    ppo = runs / home / "tiny-llama@00000000" / "ppo"
    for name in ("tiny-llama/ppo", f"{home}/tiny-llama/ppo"):
        assert find_entry(name, runs / home) == ppo
    monkeypatch.chdir(runs / home)
    assert find_entry(f"{home}/tiny-llama/ppo", Path(".")).absolute() == ppo


def test_a_bare_model_means_it_with_the_recipe_that_evaluate_takes(runs: Path):
    assert find_entry("tiny-llama", runs) == find_entry("tiny-llama/ppo", runs)


def test_a_bare_model_means_it_under_the_conditions_of_its_track(tmp_path: Path):
    from tests.verdict.test_compare import write_entries

    write_entries(tmp_path, replace(LLAMA, seeds=1))
    write_entries(tmp_path, replace(LLAMA, seeds=1, items=8, division="open"))
    closed, opened = (
        next(e.folder for e in stored_entries.stored_entries(tmp_path) if e.plan["division"] == d)
        for d in ("closed", "open")
    )
    assert find_entry("tiny-llama", tmp_path) == closed
    assert find_entry(f"{opened.parts[-3]}/tiny-llama", tmp_path) == opened


def test_names_are_looked_up_on_the_board_that_the_others_lie_on(tmp_path: Path) -> None:
    from tests.verdict.test_compare import write_entries

    mine, stored = tmp_path / "runs", tmp_path / "results"
    write_entries(mine, replace(QWEN, seeds=1), replace(LLAMA, seeds=1, items=8, partial=True))
    write_entries(stored, replace(LLAMA, seeds=1), replace(MISTRAL, seeds=1))
    write_entries(stored, replace(LLAMA, seeds=1, items=12))
    found = find_entries(["tiny-qwen2", "tiny-llama"], [mine, stored])
    assert found[0].is_relative_to(mine) and found[1].is_relative_to(stored)
    assert found[0].parts[-3] == found[1].parts[-3]
    write_entries(mine, replace(LLAMA, seeds=1))
    assert find_entry("tiny-llama", mine, stored).is_relative_to(mine)
    with pytest.raises(UsageError, match="Looked in .*runs and .*results"):
        find_entries(["tiny-qwen2", "tiny-phi"], [mine, stored])


def test_the_folder_of_a_model_means_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.verdict.test_compare import write_entries

    mine, stored = tmp_path / "runs", tmp_path / "results"
    write_entries(mine, replace(QWEN, model="my-model", seeds=1))
    write_entries(stored, replace(LLAMA, seeds=1))
    for folder in ("checkpoints/My Model", "models/other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name in ("my-model", "checkpoints/My Model", "./checkpoints/My Model/",
                 str(tmp_path / "checkpoints/My Model")):
        found = find_entries([name, "tiny-llama"], [mine, stored])
        assert [folder.parts[-2].partition("@")[0] for folder in found] == [
            "my-model", "tiny-llama"]  # fmt: skip
    with pytest.raises(UsageError, match="models/other"):
        find_entry("models/other", mine, stored)


def test_the_examples_of_the_help_find_the_committed_results():
    for name in ("tiny-llama", "tiny-qwen2", "tiny-gemma"):
        found = find_entry(name, ROOT / "leaderboard" / "results")
        assert found.name == "ppo" and found.parts[-3].startswith("mini-")


def test_an_ambiguous_name_is_answered_with_names_that_are_not(runs: Path):
    with pytest.raises(UsageError, match="'tiny-qwen2' is ambiguous: 2 stored") as caught:
        find_entry("tiny-qwen2", runs)
    offered = [line.split()[0] for line in str(caught.value).splitlines()[1:]]
    assert len({find_entry(name, runs) for name in offered}) == 2


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Entries of two checkpoints of a bundled design, without their runs."""
    for name in ("tiny2-llama", "tiny2-llama@i1o1"):
        revision = Catalog().load_model(name).revision[:8]
        place = tmp_path / "mini-0" / f"tiny2-llama@{revision}" / "ppo"
        place.mkdir(parents=True)
        (place / "plan.json").write_text('{"track_version": 2}')
        (place / "record.json").write_text("{}")
    return tmp_path


def test_the_name_of_a_design_means_the_checkpoint_that_evaluate_takes(checkpoints: Path):
    revision = Catalog().load_model("tiny2-llama").revision[:8]
    for name in ("tiny2-llama", "tiny2-llama@i0o0", "tiny2-llama@i0o0/ppo"):
        assert find_entry(name, checkpoints).parent.name == f"tiny2-llama@{revision}"


def test_a_checkpoint_is_found_by_its_label(checkpoints: Path):
    revision = Catalog().load_model("tiny2-llama@i1o1").revision[:8]
    for name in ("tiny2-llama@i1o1", "mini-0/tiny2-llama@i1o1/ppo", "mini@2/tiny2-llama@i1o1"):
        assert find_entry(name, checkpoints).parent.name == f"tiny2-llama@{revision}"
    with pytest.raises(UsageError, match="unknown entry 'tiny2-llama@i7o7'"):
        find_entry("tiny2-llama@i7o7", checkpoints)


def test_a_shortened_run_makes_no_name_ambiguous(runs: Path):
    found = find_entry("tiny-mistral", runs)
    assert json.loads((found / "plan.json").read_text())["partial"] is False


def test_an_unknown_name_is_answered_with_the_nearest(runs: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="Did you mean tiny-llama") as caught:
        find_entry("tiny-lama", runs)
    assert "--runs" in str(caught.value)
    for name in ("zzz", "a" * 5000, "nul\0"):
        with pytest.raises(UsageError, match="unknown entry"):
            find_entry(name, runs)
    with pytest.raises(UsageError, match="holds no entry"):
        find_entry("tiny-llama", tmp_path / "nowhere")


def test_only_the_folders_that_are_asked_for_are_read(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    read = []
    usual = compare_read.load_runs
    monkeypatch.setattr(
        compare_read, "load_runs", lambda f, **k: (read.append(f), usual(f, **k))[1]
    )
    assert call(capsys, runs, *pair(runs))[0] == 0
    assert [folder.name for folder in read] == ["ppo", "ppo"]


# -- formats -------------------------------------------------------------------------------


def test_text_is_the_default_and_plain_in_a_pipe(runs: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = call(capsys, runs, *pair(runs))
    assert (code, err) == (0, "") and "\x1b" not in out
    assert "B tiny-qwen2/ppo against A tiny-llama/ppo" in out and "▲ better" in out


def test_a_terminal_gets_colours_unless_it_is_told_not_to(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    coloured = call(capsys, runs, *pair(runs))[1]
    assert "\x1b[1;32m▲ better" in coloured
    assert "\x1b[1;32m" not in call(capsys, runs, *pair(runs), "--no-color")[1]


def test_json_by_either_flag_and_equal(runs: Path, capsys: pytest.CaptureFixture[str]):
    texts = [
        call(capsys, runs, *pair(runs), *flag)[1] for flag in (["--json"], ["--format", "json"])
    ]
    assert texts[0] == texts[1] and json.loads(texts[0])["schema_version"] == 1


@pytest.mark.slow
def test_the_name_of_the_file_says_the_format(
    runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    begins = {"a.html": "<!doctype html>", "a.md": "# Compare", "a.json": "{", "a.txt": "Compare"}
    for name, start in begins.items():
        target = tmp_path / "deep" / name
        code, out, _ = call(capsys, runs, *pair(runs), "--out", str(target))
        assert (code, out) == (0, f"{target}\n")
        assert target.read_text(encoding="utf-8").startswith(start)
    call(capsys, runs, *pair(runs), "--out", str(tmp_path / "b"), "--format", "md")
    assert (tmp_path / "b").read_text(encoding="utf-8").startswith("# Compare")


def test_axis_tasks_and_by_reach_the_numbers(runs: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["--axis", "efficiency", "--tasks", "addition", "--by", "updates", "--json"]
    data = json.loads(call(capsys, runs, *pair(runs), *asked)[1])
    assert (data["axes"], data["tasks"], data["by"]) == (["efficiency"], ["addition"], "updates")


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.slow
def test_unequal_conditions_leave_with_4_and_by_force_with_0(
    runs: Path, capsys: pytest.CaptureFixture[str]
):
    other = next(
        e
        for e in stored_entries.stored_entries(runs)
        if e.model == "tiny-qwen2" and e.board != board(runs)
    )
    names = ("tiny-llama/ppo", f"{other.board}/tiny-qwen2")
    code, out, err = call(capsys, runs, *names)
    assert (code, out) == (4, "") and "conditions.evaluation.curve_items: 16 / 8" in err
    code, out, err = call(capsys, runs, *names, "--force-unequal")
    assert (code, err) == (0, "") and "NOT COMPARABLE" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny-llama/ppo"], "at least two entries"),
        (["tiny-llama/ppo", "tiny-llama/ppo"], "given twice"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--axis", "stabilty"], "Did you mean stability"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--by", "byte"], "Did you mean bytes"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--by", "flops"], "record.json has no ledger of"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--tasks", "adition"], "Did you mean addition"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--tasks", ","], "names no task"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--json", "--format", "md"], "contradict"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--out", "."], "is a folder"),
        (["a", "b", "--out", "a.pdf"], "allowed are .html, .htm, .json"),
        (["a", "b", "--out", "a.html", "--json"], "ends in .json"),
        (["a", "b", "--out", "a.md", "--format", "html"], "ends in .html or .htm"),
        (["tiny-llama/ppo", "tiny-llama/grpo", "--force"], "unknown option '--force'"),
    ],
)
def test_wrong_usage_says_what_to_do(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    code, out, err = call(capsys, runs, *arguments)
    assert (code, out) == (2, "") and message in err


def test_a_report_is_no_folder(runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    entry = runs / board(runs) / "tiny-llama@00000000" / "ppo"
    assert cli.main(["report", str(entry), "--out", str(tmp_path)]) == 2
    assert f"--out {tmp_path}: is a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_has_examples_and_imports_nothing_heavy():
    script = (
        "import sys; from crlbench.cli import main\n"
        "try: main(['compare', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'transformers', 'jinja2', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for flag in ("--axis", "--tasks", "--by", "--format", "--out", "--force-unequal", "--runs"):
        assert flag in done.stdout
    assert "crlbench compare tiny-llama tiny-qwen2" in done.stdout and "Exit code 4" in done.stdout
