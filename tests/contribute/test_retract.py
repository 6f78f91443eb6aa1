"""Results that were taken back: shown, never ranked, and the log of them only grows."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.contract.retractions import ENTRY_PATTERN, Retraction, read_retractions
from crlbench.contribute.results.retract import RETRACTIONS, digest_of, retract, submitted_files
from crlbench.contribute.review.people import MAINTAINERS
from crlbench.disk.linked_lines import linked
from crlbench.errors import UsageError, ValidationError
from crlbench.site import updates
from crlbench.site.pages import entry_path
from crlbench.site.reading import read_site
from crlbench.site.render import Renderer
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.contribute.honest import crlbench
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]

REASON = "trained on the wrong weights"


def named(entry: Path) -> str:
    return "/".join(entry.parts[-3:])


Done = subprocess.CompletedProcess[str]


def typed(
    root: Path, entry: object, *more: object, by: str = "@someone", reason: str = REASON
) -> Done:
    """What the command does in a checkout."""
    flags = ("--reason", reason, "--by", by, "--results", root / RESULTS, *more)
    return crlbench("leaderboard", "retract", entry, *flags, cwd=root)


@pytest.mark.slow
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
@pytest.mark.full
def test_list_results_says_it(repository: Path, entry: Path, other: Path) -> None:
    shutil.copytree(other, place(repository, other))
    assert typed(repository, named(entry)).returncode == 0
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
    one = load_runs(place(repository, entry)).runs[0].record.record_id
    retract(repository, named(entry), REASON, "@someone", [one])
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
    repository: Path, home: Path, entry: Path
) -> None:
    for arguments, words in (
        (["../../x/y"], "unknown entry"),
        (["nano-1/m@1/ppo"], "unknown entry"),
        ([named(entry)[:-1]], f"Did you mean {named(entry)}"),
        ([named(entry), "--record", "0" * 64], "has no record"),
        ([named(entry), "--record", "first"], "records"),
        ([named(entry), "--record", "0" * 64, "--personal-data"], "the whole entry"),
    ):
        done = typed(repository, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    for flags, words in (
        ({"by": "the maintainers"}, "a GitHub handle"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
    ):
        done = typed(repository, named(entry), **flags)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    flags = ("--reason", "r", "--by", "@a", "--results", home)
    done = crlbench("leaderboard", "retract", named(entry), *flags)
    assert done.returncode == 2 and "no leaderboard/results of a checkout" in done.stderr
    assert not (repository / RETRACTIONS).exists()
    retract(repository, named(entry), REASON, "@someone")
    shutil.rmtree(place(repository, entry))
    assert "no such entry" in validated(repository, home)[1]


def test_the_command_says_what_was_done_and_what_comes_next(
    repository: Path, entry: Path
) -> None:
    folder = place(repository, entry)
    done = typed(repository, folder, "--json")
    assert done.returncode == 0, done.stderr
    (line,) = read_retractions(repository / "leaderboard")
    assert json.loads(done.stdout) == {
        "log": str(repository / RETRACTIONS), "line": 1, "retraction": line.stored(),
    }
    assert line.entry == named(entry) and line.records == "all" and line.removed is None
    # The digest is computed here from the bytes alone.
    names = ("ledger.jsonl", "plan.json", "runs.tar.zst", "submission.json")
    each = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    text = json.dumps(each, sort_keys=True, separators=(",", ":"))
    assert line.digest == hashlib.sha256(text.encode()).hexdigest()


def test_nothing_is_taken_back_twice(repository: Path, entry: Path) -> None:
    ids = [run.record.record_id for run in load_runs(place(repository, entry))]
    assert typed(repository, named(entry), "--record", ids[0]).returncode == 0
    again = typed(repository, named(entry), "--record", ids[0])
    assert again.returncode == 2 and "these records were taken back already" in again.stderr
    done = typed(repository, named(entry), "--record", ids[1])
    assert done.returncode == 0 and f"(1 of {len(ids)} records)" in done.stdout
    assert typed(repository, named(entry)).returncode == 0
    for more in ([], ["--record", ids[2]]):
        done = typed(repository, named(entry), *more)
        assert done.returncode == 2 and "was taken back already. Retracted on" in done.stderr
    assert len(read_retractions(repository / "leaderboard")) == 3


@pytest.mark.slow
def test_a_retracted_entry_takes_no_more_runs_and_verify_says_it(
    repository: Path, home: Path, entry: Path, run_folder: Path, tmp_path: Path
) -> None:
    line = retract(repository, named(entry), REASON, "@someone")
    done = crlbench("verify", place(repository, entry), "--recompute-only", catalog=home)
    assert done.returncode == 0 and done.stdout.startswith("/".join(entry.parts[-2:]))
    assert line.sentence() in done.stdout and "recomputed:" in done.stdout
    done = crlbench("--json", "verify", place(repository, entry), "--recompute-only", catalog=home)
    assert json.loads(done.stdout)["retracted"][0]["sentence"] == line.sentence()
    done = crlbench(
        *("submit", run_folder, "--to", repository / RESULTS, "--submitter", "@someone", "--no-pr"),
        catalog=home,
    )
    assert done.returncode == 3 and "takes no more runs. Retracted on" in done.stderr


@pytest.fixture
def kept(repository: Path, other: Path) -> Path:
    """The repository with a second entry, a maintainer, and the commit ``base`` at that."""
    shutil.copytree(other, place(repository, other))
    (repository / MAINTAINERS).write_text('handles = ["@keeper"]\n')
    commit(repository)
    git(repository, "tag", "-f", "base")
    return repository


def test_personal_data_leaves_and_the_log_stays(kept: Path, home: Path, entry: Path) -> None:
    before = digest_of(submitted_files(place(kept, entry)))
    done = typed(kept, named(entry), "--personal-data", by="@keeper", reason="a person asked")
    assert done.returncode == 0, done.stderr
    assert "its files removed (personal data): a person asked" in done.stdout
    assert "history of git" in done.stderr and not place(kept, entry).parent.exists()
    (line,) = read_retractions(kept / "leaderboard")
    assert (line.digest, line.removed) == (before, "personal data")
    assert b"@someone" not in (kept / RETRACTIONS).read_bytes()
    code, printed = validated(kept, home, "--author", "@KEEPER")
    assert code == 0, printed
    assert validated(kept, home, "--author", "@keeper", "--only", "retractions")[0] == 0
    code, printed = validated(kept, home, "--author", "@mallory")
    assert code == 3 and "taken back by @keeper, and @mallory brings it" in printed


def test_what_is_left_of_a_removed_entry_says_why(
    kept: Path, home: Path, entry: Path, other: Path, run_folder: Path
) -> None:
    line = retract(kept, named(entry), REASON, "@keeper", personal_data=True)
    boards = summarise_board(load_runs(place(kept, entry).parents[1])).entries
    assert {one.name for one in boards} == {"/".join(other.parts[-2:])}
    words = line.sentence()
    done = crlbench("verify", place(kept, entry), catalog=home)
    assert done.returncode == 2 and words in done.stderr
    for name in (named(entry), "/".join(entry.parts[-2:]), entry.parts[-2].partition("@")[0]):
        pair = (name, place(kept, other), "--runs", kept / RESULTS)
        done = crlbench("compare", *pair)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    again = typed(kept, named(entry), by="@keeper")
    assert again.returncode == 2 and "was taken back already" in again.stderr
    done = crlbench(
        *("submit", run_folder, "--to", kept / RESULTS, "--submitter", "@someone", "--no-pr"),
        catalog=home,
    )
    assert done.returncode == 3 and words in done.stderr
    # Nor does it come back by hand.
    commit(kept)
    git(kept, "tag", "-f", "base")
    shutil.copytree(entry, place(kept, entry))
    code, printed = validated(kept, home)
    assert code == 3 and "was taken back, and no longer changes" in printed


def test_the_site_keeps_the_address_of_a_removed_entry(
    kept: Path, home: Path, entry: Path, other: Path
) -> None:
    retract(kept, named(other), "wrong", "@someone")
    line = retract(kept, named(entry), REASON, "@keeper", personal_data=True)
    site = read_site(kept / RESULTS, Catalog([home]))
    renderer = Renderer(site)
    files = {page.path: renderer.content(page) for page in updates.pages(site)}
    board, model, recipe = entry.parts[-3:]
    page = files[entry_path(board, model, recipe)].decode()
    assert line.digest in page and REASON in page
    assert len(files) == 2 and entry_path(*other.parts[-3:]) not in files
    news = files["updates.html"].decode()
    for folder in (entry, other):
        assert f'href="{entry_path(*folder.parts[-3:])}"' in news
    assert "removed (personal data)" in news and "all records" in news


def test_an_entry_that_was_retracted_may_still_be_removed(
    kept: Path, home: Path, entry: Path
) -> None:
    retract(kept, named(entry), "first", "@someone")
    retract(kept, named(entry), "second", "@keeper", personal_data=True)
    assert validated(kept, home, "--author", "@keeper")[0] == 0
    # A removal that was cut off is finished by the same command.
    shutil.copytree(entry, place(kept, entry))
    code, printed = validated(kept, home, "--author", "@keeper")
    assert code == 3 and "says that its files were removed, and they are there" in printed
    assert typed(kept, named(entry), "--personal-data", by="@keeper").returncode == 0
    assert not place(kept, entry).exists()
    assert len(read_retractions(kept / "leaderboard")) == 2
    with pytest.raises(UsageError, match="was taken back already"):
        retract(kept, named(entry), "third", "@keeper", personal_data=True)


def forged(root: Path, folder: Path, **changes: str) -> None:
    body = {"entry": named(folder), "records": "all", "date": "2026-11-24", "reason": "x",
            "by": "@keeper", "digest": digest_of(submitted_files(place(root, folder))),
            "removed": "personal data"}  # fmt: skip
    line = Retraction.model_validate(linked([], body | changes))
    (root / RETRACTIONS).write_bytes(line.line())


def test_only_what_the_log_names_may_be_removed(
    kept: Path, home: Path, entry: Path, other: Path
) -> None:
    forged(kept, entry)
    shutil.rmtree(place(kept, other).parent)
    code, printed = validated(kept, home, "--author", "@keeper")
    assert code == 3 and "says that its files were removed, and they are there" in printed
    assert f"{RESULTS / named(other)}/plan.json: removed" in printed
    git(kept, "checkout", "--", "leaderboard/results")
    for changes, words in (
        ({"by": "@someone"}, "only a maintainer removes an entry"),
        ({"digest": "0" * 64}, "digest: not that of the files that were removed"),
        ({"entry": "nano-1/m@1/ppo"}, "no such entry"),
    ):
        forged(kept, entry, **changes)
        shutil.rmtree(place(kept, entry).parent)
        code, printed = validated(kept, home, "--author", changes.get("by", "@keeper"))
        assert code == 3 and words in printed, printed
        git(kept, "checkout", "--", "leaderboard/results")


def test_a_reason_does_not_repeat_what_is_removed(kept: Path, entry: Path) -> None:
    done = typed(kept, named(entry), "--personal-data", by="@keeper", reason="SomeOne asked for it")
    assert done.returncode == 2 and "--reason: names @someone" in done.stderr
    assert place(kept, entry).is_dir() and not (kept / RETRACTIONS).exists()


def test_a_new_line_has_a_digest(repository: Path, home: Path, entry: Path) -> None:
    body = {"entry": named(entry), "records": "all", "date": "2026-11-24", "reason": "x",
            "by": "@someone"}  # fmt: skip
    line = Retraction.model_validate(linked([], body))
    (repository / RETRACTIONS).write_bytes(line.line())
    code, printed = validated(repository, home)
    assert code == 3 and "digest: not that of the files of the entry" in printed


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
