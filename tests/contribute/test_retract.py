"""Results that were taken back: shown, never ranked, and the log of them only grows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crlbench.contract.retractions import ENTRY_PATTERN, read_retractions
from crlbench.contribute.results.retract import RETRACTIONS, main, retract
from crlbench.errors import ValidationError
from crlbench.verdict.board import summarise_board
from crlbench.verdict.runs import load_runs
from tests.contribute.honest import crlbench
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]

REASON = "trained on the wrong weights"


def named(entry: Path) -> str:
    return "/".join(entry.parts[-3:])


def typed(root: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.chdir(root)
    return main([*arguments, "--reason", REASON, "--by", "@someone"])


def test_a_retracted_entry_stays_readable_and_does_not_rank(
    repository: Path, home: Path, entry: Path, other: Path, tmp_path: Path
) -> None:
    shutil.copytree(other, place(repository, other))
    commit(repository)
    board = place(repository, entry).parents[1]
    before = {one.name: one.standing for one in summarise_board(load_runs(board)).entries}
    assert "retracted" not in before.values()
    line = retract(repository, named(entry), REASON, "@someone")
    said = f"Retracted on {line.date} by @someone: {REASON}"
    after = {one.name: one for one in summarise_board(load_runs(board)).entries}
    mine = after.pop("/".join(entry.parts[-2:]))
    assert (mine.standing, mine.why, mine.ranks, mine.decides) == (
        "retracted", (said,), False, False,
    )
    assert {name: one.standing for name, one in after.items()} == {
        name: standing for name, standing in before.items() if name != mine.name
    }
    # One entry, named by its own folder, is found by the same log.
    (alone,) = summarise_board(load_runs(place(repository, entry))).entries
    assert alone.standing == "retracted"
    page = tmp_path / "page.html"
    assert crlbench("report", board, "--out", page).returncode == 0
    assert said in page.read_text() and 'class="badge retracted"' in page.read_text()
    done = crlbench("validate", place(repository, entry), catalog=home)
    assert done.returncode == 0 and ", retracted)" in done.stdout and said in done.stdout


@pytest.mark.slow
def test_list_results_says_it(
    repository: Path, entry: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(other, place(repository, other))
    assert typed(repository, monkeypatch, named(entry)) == 0
    done = crlbench("--json", "list", "results", catalog=repository)
    listed = json.loads(done.stdout)
    rows = {(row["board"], row["model"]): row["retracted"] for row in listed}
    assert rows.pop(entry.parts[-3:-1]).endswith(REASON)
    assert set(rows.values()) == {None}
    shown = crlbench("list", "results", catalog=repository).stdout
    assert REASON in shown and shown.splitlines()[0].endswith("retracted")


def test_some_records_take_the_entry_out_of_the_ranks(repository: Path, entry: Path) -> None:
    runs = load_runs(place(repository, entry))
    retract(repository, named(entry), REASON, "@someone", [runs.runs[0].record.record_id])
    (found,) = summarise_board(load_runs(place(repository, entry))).entries
    assert found.standing == "retracted" and f"(1 of {len(runs)} records)" in found.why[0]


def test_a_retraction_may_be_added_and_never_rewritten(
    repository: Path, home: Path, entry: Path
) -> None:
    log = repository / RETRACTIONS
    retract(repository, named(entry), REASON, "@someone")
    assert validated(repository, home)[0] == 0
    commit(repository)
    git(repository, "tag", "-f", "base")
    first = log.read_bytes()
    retract(repository, named(entry), "again", "@someone")
    assert [line.n for line in read_retractions(log.parent)] == [0, 1]
    assert validated(repository, home)[0] == 0
    for content, words in (
        (b"", "only grows"),
        (first.replace(b"wrong", b"other"), "only grows"),
        (first + b"{}\n", "does not follow"),
        (first + log.read_bytes()[len(first) :].rstrip(), "does not follow"),
    ):
        log.write_bytes(content)
        code, printed = validated(repository, home)
        assert code == 3 and words in printed, printed
    log.unlink()
    code, printed = validated(repository, home)
    assert code == 3 and "removed" in printed, printed


def test_a_retraction_and_a_result_do_not_come_together(
    repository: Path, home: Path, entry: Path, other: Path
) -> None:
    shutil.copytree(other, place(repository, other))
    retract(repository, named(entry), REASON, "@someone")
    code, printed = validated(repository, home)
    assert code == 3 and "results stand alone" in printed


def test_what_is_not_there_cannot_be_taken_back(
    repository: Path, home: Path, entry: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, words in (
        (["../../x/y"], "entry"),
        (["nano-1/m@1/ppo"], "no such entry"),
        ([named(entry), "--record", "0" * 64], "has no record"),
        ([named(entry), "--record", "first"], "records"),
    ):
        assert typed(repository, monkeypatch, *arguments) == 2
        assert words in capsys.readouterr().err
    assert not (repository / RETRACTIONS).exists()
    retract(repository, named(entry), REASON, "@someone")
    shutil.rmtree(place(repository, entry))
    assert "no such entry" in validated(repository, home)[1]


def test_a_damaged_log_hides_nothing(repository: Path, home: Path, entry: Path) -> None:
    (repository / RETRACTIONS).write_text('{"entry": "x"}\n')
    with pytest.raises(ValidationError, match=r"retractions.jsonl:1: changed or damaged"):
        summarise_board(load_runs(place(repository, entry)))
    done = crlbench("validate", repository / RESULTS, catalog=home)
    assert done.returncode == 3 and "retractions.jsonl:1" in done.stdout


def test_the_committed_log_is_sound() -> None:
    root = Path(__file__).parents[2]
    assert read_retractions(root / "leaderboard") is not None
    kept = subprocess.run(
        ["git", "ls-files", "--error-unmatch", str(RETRACTIONS)], cwd=root, capture_output=True
    )
    assert kept.returncode == 0


@pytest.mark.parametrize(
    "recipe", ["grpo+clip.high=0.28", "grpo+clip=ppo-clip:low=0.2,high=0.28", "dr-grpo"]
)
def test_entries_of_every_recipe_can_be_taken_back(recipe: str) -> None:
    assert re.match(ENTRY_PATTERN, f"mini-543da47d0c99/tiny-llama@25666175/{recipe}")
    assert not re.match(ENTRY_PATTERN, f"../tiny-llama@25666175/{recipe}")
