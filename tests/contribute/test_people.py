"""Who may bring a change, and what added runs count for before they are replayed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crlbench.contract.verification import UNCHECKED, read_verifications
from crlbench.contribute.results.batch import subject_of
from crlbench.contribute.results.changes import changes_since
from crlbench.contribute.results.retract import retract
from crlbench.contribute.review.people import STANDINGS, author_of
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import UsageError, ValidationError
from crlbench.run.ledger import append_line
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.contribute.forger import extended
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]

ROOT = Path(__file__).parents[2]
RANKED = Path("mini-543da47d0c99/tiny-llama-0.3m@24af9561/ppo")
MAINTAINERS = 'handles = ["@Keeper"]\n'


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    """A clone in which one ranked entry of @crlbench stands at ``base``, kept by @Keeper."""
    root = tmp_path / "clone"
    shutil.copytree(ROOT / RESULTS / RANKED, root / RESULTS / RANKED)
    (root / RESULTS / RANKED / VERIFICATION_NAME).unlink(missing_ok=True)
    (root / "leaderboard/maintainers.toml").write_text(MAINTAINERS)
    git(tmp_path, "init", "-q", str(root))
    commit(root)
    git(root, "tag", "base")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("author", "code", "words"),
    [
        (None, 3, "takes its standing from ranked to provisional: only @crlbench or a maintainer"),
        slow("@mallory", 3, "@mallory adds to an entry of @crlbench"),
        slow("@CRLbench", 0, "@CRLbench may do that"),
        slow("keeper", 0, "keeper may do that"),
    ],
)
def test_only_its_submitter_or_a_maintainer_lowers_an_entry(
    ranked: Path, author: str | None, code: int, words: str
) -> None:
    extended(ranked / RESULTS / RANKED, 20)
    flags = ("--author", author) if author else ()
    # The catalogue is this repository's: the entry is of its track.
    found, printed = validated(ranked, ROOT, *flags)
    assert found == code and words in printed, printed


def test_a_new_entry_is_brought_by_the_person_it_names(
    repository: Path, home: Path, other: Path
) -> None:
    shutil.copytree(other, place(repository, other))
    code, printed = validated(repository, home, "--author", "@mallory")
    assert code == 3 and "submitter @someone, and @mallory brings it" in printed
    assert validated(repository, home, "--author", "@SomeOne")[0] == 0


def test_who_retracts_is_who_brings_it(repository: Path, home: Path, entry: Path) -> None:
    retract(repository, "/".join(entry.parts[-3:]), "wrong weights", "@someone")
    code, printed = validated(repository, home, "--author", "@mallory")
    assert code == 3 and "taken back by @someone, and @mallory brings it" in printed
    assert validated(repository, home, "--author", "someone")[0] == 0
    assert "was not asked (--author)" in validated(repository, home)[1]


def test_nobody_becomes_a_maintainer_by_what_they_bring(ranked: Path) -> None:
    (ranked / "leaderboard/maintainers.toml").write_text('handles = ["@mallory"]\n')
    changes = changes_since("base", ranked)
    assert not author_of(changes, "@mallory").keeps and author_of(changes, "@KEEPER").keeps
    assert not author_of(changes, None).keeps
    with pytest.raises(UsageError, match="a GitHub handle"):
        author_of(changes, "@")
    commit(ranked)
    for content in ("handles = 3\n", "handles = [1]\n", "x = ", ""):
        (ranked / "leaderboard/maintainers.toml").write_text(content)
        commit(ranked)
        with pytest.raises(ValidationError, match="handles"):
            author_of(changes_since("HEAD", ranked), "@mallory")


def line(run, kind: str, outcome: str = "equal") -> dict:
    return {
        "record_id": run.record.record_id, "run": run.name, "kind": kind, "by": "t",
        "date": "2026-11-25T00:00:00Z", "updates": 0, "outcome": outcome, "crlbench": "0.1.0",
    }


def badge(folder: Path, runs, kind: str, outcome: str = "equal") -> None:
    path = folder / VERIFICATION_NAME
    entries = read_verifications(path)
    for run in runs:
        append_line(path, entries, line(run, kind, outcome))


@pytest.mark.slow
def test_added_runs_of_a_verified_entry_count_once_they_are_replayed(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / RESULTS / RANKED, tmp_path / "a/b" / RESULTS / RANKED))
    (folder / VERIFICATION_NAME).unlink(missing_ok=True)

    def entry():
        (found,) = summarise_board(load_runs(folder)).entries
        return found

    before = entry()
    assert before.standing == "ranked" and before.n == 10
    badge(folder, load_runs(folder).runs, "recomputed")
    extended(folder, 20)
    waiting = entry()
    assert (waiting.standing, waiting.n) == ("ranked", 10)
    assert waiting.axes == before.axes
    assert "40 added runs count once they are replayed" in waiting.why[-1]
    new = [run for run in load_runs(folder) if run.record.seed.index >= 10]
    badge(folder, new, "recomputed")
    assert entry().n == 10
    badge(folder, [run for run in new if run.record.seed.index == 13], "replayed", "mismatch")
    assert entry().n == 10
    badge(folder, [run for run in new if run.record.seed.index == 14], "replayed")
    # Seed 13 was refuted, so that not all of them are verified.
    assert entry().n == 10
    badge(folder, [run for run in new if run.record.seed.index == 13], "replayed")
    counted = entry()
    assert (counted.standing, counted.n) == ("provisional", 20)
    assert counted.axes != before.axes


@pytest.mark.slow
@pytest.mark.full
def test_an_entry_that_nobody_verified_counts_as_it_stands(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / RESULTS / RANKED, tmp_path / "a/b" / RESULTS / RANKED))
    (folder / VERIFICATION_NAME).unlink(missing_ok=True)
    extended(folder, 20)
    (found,) = summarise_board(load_runs(folder)).entries
    assert (found.standing, found.n) == ("provisional", 20)


def test_what_is_open_is_decided_by_records(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / RESULTS / RANKED, tmp_path / RESULTS / RANKED))
    (folder / VERIFICATION_NAME).unlink(missing_ok=True)
    runs = load_runs(folder).runs
    assert len(subject_of(folder).without_badge()) == 52
    badge(folder, runs[:1], "recomputed", UNCHECKED)
    assert len(subject_of(folder).without_badge()) == 52
    badge(folder, runs, "recomputed")
    badge(folder, [run for run in runs if run.record.seed.index == 2], "replayed", "mismatch")
    subject = subject_of(folder)
    assert subject.without_badge() == [] and subject.without_replay() == []
    extended(folder, 20)
    grown = subject_of(folder)
    assert len(grown.without_badge()) == 40
    assert [set(group) for group in grown.without_replay()] == 4 * [set(range(10, 20))]


def test_standings_are_in_order() -> None:
    assert STANDINGS == ("partial", "retracted", "preview", "provisional", "ranked")
