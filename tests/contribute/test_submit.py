"""``crlbench submit``: from finished runs to a folder that others can review."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crlbench.contribute.review.pull_request import HUMAN, check_boxes
from crlbench.verdict.load import load_runs
from tests.contribute.honest import crlbench, evaluated, run_in


def submit(run: Path, results: Path, home: Path, *more: object) -> tuple[int, str, str]:
    done = crlbench(
        *("submit", run, "--to", results, "--submitter", "@someone", *more), catalog=home
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_what_was_run_is_what_is_submitted(run_folder: Path, entry: Path) -> None:
    assert sorted(path.name for path in entry.iterdir()) == [
        "ledger.jsonl",
        "plan.json",
        "runs.tar.zst",
        "submission.json",
    ]
    ran, packed = load_runs(run_folder), load_runs(entry)
    assert [run.record for run in packed] == [run.record for run in ran]
    assert [run.samples() for run in packed] == [run.samples() for run in ran]
    assert (entry / "runs.tar.zst").stat().st_size < 20_000 * len(ran)


def test_the_text_of_the_pull_request(run_folder: Path, home: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.md"
    code, printed, _ = submit(run_folder, tmp_path / "results", home, "--pr-body", body)
    assert code == 0
    assert "keeps every rule" in printed and "gh pr create" in printed
    assert "git switch -c results-tiny-llama-0.3m-" in printed
    text = body.read_text()
    assert "tiny-llama-0.3m" in text and "on nano v1 (closed division" in text
    assert "- [x] `nano-" in text
    assert len(check_boxes(text)) == len(HUMAN)
    assert check_boxes(text.replace("- [ ]", "- [x]")) == []


def test_as_json(run_folder: Path, home: Path, tmp_path: Path) -> None:
    done = crlbench(
        *("--json", "--quiet", "submit", run_folder, "--to", tmp_path, "--no-pr"),
        *("--submitter", "@someone"),
        catalog=home,
    )
    (result,) = json.loads(done.stdout)["results"]
    assert result["ok"] and result["runs"] == 8 and Path(result["folder"]).is_dir()


@pytest.mark.slow
def test_more_seeds_are_added_and_nothing_else_changes(
    one_seed_then_two: Path, home: Path, tmp_path: Path
) -> None:
    first, second = (run_in(one_seed_then_two / stage) for stage in ("one", "two"))
    results = tmp_path / "results"
    assert submit(first, results, home, "--no-pr")[0] == 0
    (submission,) = results.rglob("submission.json")
    before = submission.read_bytes()
    code, printed, _ = submit(second, results, home, "--no-pr", "--submitter", "@another")
    assert code == 0 and "4 runs" in printed
    assert submission.read_bytes() == before
    assert len(load_runs(results)) == 4


@pytest.mark.slow
def test_what_stands_is_never_exchanged(home: Path, entry: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(entry.parents[2], results)
    again = evaluated(tmp_path / "runs", home, seeds=2)
    code, _, error = submit(again, results, home, "--no-pr")
    assert code == 3 and "Results are never changed" in error
    assert "is already on this board, from @someone" in error
    kept = load_runs(results.joinpath(*entry.parts[-3:]))
    assert [run.record for run in kept] == [run.record for run in load_runs(entry)]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("submit", "{run}"), 2, "--submitter @HANDLE"),
        (("submit", "{run}", "--submitter", "me"), 2, "no GitHub handle"),
        (("submit", "{run}/addition", "--submitter", "@me"), 2, "a part of an entry"),
        (("submit", "{tmp}", "--submitter", "@me"), 2, "no plan.json"),
        (("submit", "{run}", "--submitter", "@me", "--no-pr", "--pr-body", "x"), 2, "contradict"),
        (("validate",), 2, "either PATH"),
        (("validate", "{run}", "--kind", "result"), 2, "holds no submitted result"),
        (("validate", "{run}", "--body", "x"), 2, "belongs to --since"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...],
    code: int,
    words: str,
    run_folder: Path,
    home: Path,
    tmp_path: Path,
) -> None:
    filled = [part.format(run=run_folder, tmp=tmp_path) for part in arguments]
    more = ("--to", tmp_path / "results") if filled[0] == "submit" else ()
    done = crlbench(*filled, *more, catalog=home, cwd=tmp_path)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "results").exists() and not (tmp_path / "pull-request.md").exists()


@pytest.mark.slow
def test_a_shortened_run_is_not_submitted(home: Path, tmp_path: Path) -> None:
    run = evaluated(tmp_path / "runs", home, arms="real", more=("--limit", "8"))
    code, printed, _ = submit(run, tmp_path / "results", home)
    assert code == 3 and "shortened runs" in printed
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.full
def test_an_open_result_is_submitted_and_says_so(home: Path, tmp_path: Path) -> None:
    more = ("--set", "optimization.learning_rate=1e-3")
    run = evaluated(tmp_path / "runs", home, arms="real", more=more)
    code, printed, _ = submit(run, tmp_path / "results", home, "--no-pr")
    assert code == 0 and "Open division" in printed


@pytest.mark.slow
@pytest.mark.full
def test_a_study_is_submitted_with_all_its_arms(home: Path, tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    (tmp_path / "grid.toml").write_text(
        '[[arm]]\nname = "slow"\nset = { "optimization.learning_rate" = 3e-5 }\n'
    )
    done = crlbench(
        *("--quiet", "--no-progress", "ablate", "--model", "tiny-llama-0.3m", "--track", "nano"),
        *("--base", "grpo", "--flip", "clip=ppo-clip:low=0.2,high=0.28", "--seeds", "1"),
        *("--grid", tmp_path / "grid.toml", "--logger", "none", "--out", runs),
        catalog=home,
    )
    assert done.returncode in (0, 7), done.stderr
    (study,) = runs.glob("ablations/*")
    code, printed, error = submit(study, results, home, "--no-pr")
    assert code == 0, printed + error
    entries = [plan.parent for plan in results.rglob("plan.json")]
    assert len({entry.parents[1].name for entry in entries}) == 2
    names = sorted(entry.name for entry in entries)
    assert names == ["grpo", "grpo", "grpo+clip=ppo-clip:high=0.28,low=0.2"]
    checked = crlbench("validate", results, catalog=home)
    assert checked.returncode == 0, checked.stdout

    (arm,) = runs.glob("*/*/grpo+clip*")
    shutil.rmtree(arm)
    code, _, error = submit(study, tmp_path / "again", home, "--no-pr")
    assert code == 2 and "1 of 3 arms" in error and not (tmp_path / "again").exists()


def test_a_report_of_results_goes_elsewhere(entry: Path, tmp_path: Path) -> None:
    done = crlbench("report", entry)
    assert done.returncode == 2 and "--out" in done.stderr
    done = crlbench("report", entry, "--out", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    assert "tiny-llama-0.3m" in (tmp_path / "r.html").read_text()


def test_entries_are_compared_where_they_stand(entry: Path, other: Path) -> None:
    done = crlbench("compare", entry, other)
    assert done.returncode == 0, done.stderr
    assert "tiny-llama-0.3m" in done.stdout
