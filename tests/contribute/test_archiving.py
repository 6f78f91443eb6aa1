"""What may be archived, when a version may rise, and what ``validate --since`` says of both."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.catalog.find import ARCHIVE, Catalog
from crlbench.catalog.retain_panel import FOLDER
from crlbench.contribute.results.changes import changes_since
from crlbench.contribute.review.growth import check_tracks
from crlbench.contribute.review.published import check_archives
from crlbench.disk.seal import NAME, seal
from crlbench.run.archive import archive
from tests.contribute.honest import crlbench
from tests.contribute.test_archive import (
    OLD,
    append,
    changed_task,
    present,
    raised,
    run,
    sealed_again,
    track_at,
)
from tests.contribute.test_changes import commit, git, repository, validated

pytestmark = pytest.mark.slow

__all__ = ["repository"]


@pytest.fixture
def published(repository: Path) -> Path:
    """A clone whose commit ``base`` has the track and its tasks at version 1, none archived."""
    return based(standing(repository))


def standing(root: Path) -> Path:
    """A checkout with the track ``nano`` and all that it rests on."""
    present(root)
    shutil.copytree(Catalog().find("task", "counting").path, root / "tasks" / "counting")
    shutil.copytree(Catalog().roots[-1] / FOLDER, root / FOLDER)
    return root


def based(root: Path) -> Path:
    """The same, after a commit that is the base from now on."""
    commit(root)
    git(root, "tag", "-f", "base")
    return root


def archived_in(repository: Path, base: str = "base") -> str:
    return "\n".join(check_archives(changes_since(base, repository)))


def test_a_new_archive_brings_what_stood(published: Path) -> None:
    """In the commit that raises the version, and later, when only the history has it."""
    run(published, "archive", "track", "nano")
    assert archived_in(published) == ""
    raised(published)
    assert archived_in(published) == ""
    late = shutil.move(published / OLD, published.parent / "kept")
    based(published)
    shutil.move(late, published / OLD)
    assert archived_in(published) == ""


def test_a_new_archive_of_what_never_stood_is_refused(published: Path) -> None:
    run(published, "archive", "track", "nano")
    track = published / OLD / "leaderboard" / "tracks" / "nano.toml"
    track.write_text(track.read_text().replace("learning_rate = 1e-4", "learning_rate = 2e-4", 1))
    assert "nano@1: is not what was archived: leaderboard/tracks/nano.toml was changed" in \
        archived_in(published)
    sealed_again(published)
    found = archived_in(published)
    assert f"{OLD}: is no state in which track 'nano' 1 was published: in the nearest, " in found
    assert "leaderboard/tracks/nano.toml is another." in found


def reworded(root: Path, word: str) -> Path:
    """A later state under the same versions: another README of both tasks."""
    for task in ("addition", "counting"):
        append(root / "tasks" / task / "README.md", f"\n{word}\n")
    return based(root)


def test_every_state_of_a_version_may_be_archived_and_no_mixture(published: Path) -> None:
    """Each file of the mixture stood in its place, and never beside the others."""
    run(published, "archive", "track", "nano")
    first = shutil.move(published / OLD, published.parent / "first")
    reworded(published, "Second words.")
    reworded(published, "Third words.")
    run(published, "archive", "track", "nano")
    assert archived_in(published) == ""
    shutil.copy(first / "tasks/addition/README.md", published / OLD / "tasks/addition/README.md")
    sealed_again(published)
    found = archived_in(published)
    assert "is no state in which track 'nano' 1 was published" in found
    assert "tasks/addition/README.md is another" in found and "counting" not in found
    shutil.rmtree(published / OLD)
    shutil.move(first, published / OLD)
    assert archived_in(published) == ""


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file less": (
        lambda old: (old / "tasks/addition/README.md").unlink(),
        "tasks/addition/README.md is missing",
    ),
    "a file more": (
        lambda old: (old / "tasks/addition/notes.md").write_text("x"),
        "tasks/addition/notes.md does not belong there",
    ),
    "a word": (
        lambda old: append(old / "tasks/counting/README.md", "x"),
        "tasks/counting/README.md is another",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_new_archive_is_what_stood_as_a_whole(name: str, published: Path) -> None:
    forge, words = FORGED[name]
    run(published, "archive", "track", "nano")
    forge(published / OLD)
    sealed_again(published)
    found = archived_in(published)
    assert "is no state in which track 'nano' 1 was published" in found and words in found
    code, printed = validated(published, published)
    assert code == 3 and words in printed


def test_what_a_merged_branch_went_through_was_never_published(published: Path) -> None:
    git(published, "switch", "-q", "-c", "side")
    track = published / "leaderboard" / "tracks" / "nano.toml"
    original = track.read_text()
    track.write_text(original.replace("learning_rate = 1e-4", "learning_rate = 2e-4", 1))
    commit(published)
    run(published, "archive", "track", "nano")
    easier = shutil.move(published / OLD, published.parent / "easier")
    track.write_text(original)
    commit(published)
    git(published, "switch", "-q", "-")
    git(published, "merge", "-q", "--no-ff", "side", "-m", "merge")
    git(published, "tag", "-f", "base")
    shutil.move(easier, published / OLD)
    assert "is no state in which track 'nano' 1 was published" in archived_in(published)


def test_an_archive_of_a_later_task_under_the_same_track_is_refused(published: Path) -> None:
    """The state stood, after somebody had raised the task alone."""
    run(published, "archive", "track", "nano")
    shutil.move(published / OLD, published.parent / "right")
    changed_task(published)
    run(published.parent, "freeze", str(published / "tasks" / "addition"), "--bump")
    based(published)
    put_away = archive(Catalog([published]), "track", "nano")
    assert put_away == published / OLD
    words = "track 'nano' 1 was published in commit"
    found = archived_in(published)
    assert words in found and "with other tasks: addition 1.0.0 (not 2.0.0)" in found
    shutil.rmtree(published / OLD)
    shutil.move(published.parent / "right", published / OLD)
    assert archived_in(published) == ""


def test_a_task_is_archived_as_it_stood(published: Path) -> None:
    """A task that no archive of this checkout holds."""
    shutil.copytree(Catalog().find("task", "letters").path, published / "tasks" / "letters")
    based(published)
    run(published, "archive", "task", "letters")
    assert archived_in(published) == ""
    old = published / ARCHIVE / "letters@1.0.0"
    append(old / "tasks/letters/README.md", "x")
    (old / NAME).write_bytes(seal(old))
    assert "is no state in which task 'letters' 1.0.0 was published" in archived_in(published)


@pytest.mark.parametrize(
    ("version", "words"),
    [(0, "track 'nano' 0 is a draft"), (3, "track 'nano' never had version 3")],
)
def test_an_archive_of_what_was_never_published_is_refused(
    published: Path, version: int, words: str
) -> None:
    run(published, "archive", "track", "nano")
    old = (published / OLD).rename(published / ARCHIVE / f"nano@{version}")
    path = old / "leaderboard" / "tracks" / "nano.toml"
    path.write_text(path.read_text().replace("version = 1", f"version = {version}", 1))
    (old / NAME).write_bytes(seal(old))
    assert words in archived_in(published)


def test_an_archive_that_its_name_does_not_announce_is_refused(published: Path) -> None:
    run(published, "archive", "track", "nano")
    (published / OLD).rename(published / ARCHIVE / "nano@2")
    code, printed = validated(published, published)
    assert code == 3 and "an archive is called name@version after the track" in printed


def test_a_version_in_an_archive_is_the_version_elsewhere(published: Path) -> None:
    """The task's code under its version is one; no archive says otherwise."""
    run(published, "archive", "track", "nano")
    frozen = published / OLD / "tasks/addition/frozen.toml"
    text = frozen.read_text()
    assert "max_completion_bytes = 64" in text
    frozen.write_text(text.replace("max_completion_bytes = 64", "max_completion_bytes = 65"))
    sealed_again(published)
    code, printed = validated(published, published)
    assert code == 3 and "task 'addition' 1.0.0 is two things" in printed


def frozen_in(home: Path) -> subprocess.CompletedProcess[str]:
    return crlbench("freeze", "addition", "--bump", catalog=home)


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A catalogue outside of git whose task was changed and is not frozen yet."""
    folder = present(tmp_path / "later")
    changed_task(folder)
    return folder


def test_a_task_of_a_published_track_rises_once_it_is_archived(later: Path) -> None:
    before = (later / "tasks/addition/task.py").read_text()
    done = frozen_in(later)
    assert done.returncode == 2
    assert "belongs to published tracks that are not archived: nano@1." in done.stderr
    assert "crlbench archive track nano" in done.stderr and "mini" not in done.stderr
    assert (later / "tasks/addition/task.py").read_text() == before
    by_hand = before.replace('"version": "1.0.0"', '"version": "2.0.0"')
    (later / "tasks/addition/task.py").write_text(by_hand)
    assert crlbench("freeze", "addition", catalog=later).returncode == 2
    original = Catalog().find("task", "addition").path / "task.py"
    shutil.copy(original, later / "tasks/addition/task.py")
    run(later, "archive", "track", "nano")
    changed_task(later)
    done = frozen_in(later)
    assert done.returncode == 0, done.stderr
    assert "now raise the version of the tracks that hold it: nano@1" in done.stderr


def test_a_task_of_no_published_track_rises_freely(later: Path) -> None:
    track_at(later, 0)
    done = frozen_in(later)
    assert done.returncode == 0, done.stderr
    assert "raise the version of the tracks" not in done.stderr


def test_the_last_commit_says_what_is_published(published: Path) -> None:
    """The track may have risen in the same change."""
    changed_task(published)
    track_at(published, 2)
    done = frozen_in(published)
    assert done.returncode == 2 and "not archived: nano@1." in done.stderr
    git(published, "checkout", "-q", "--", ".")
    run(published, "archive", "track", "nano")
    track_at(published, 2)
    changed_task(published)
    done = frozen_in(published)
    assert done.returncode == 0, done.stderr
    assert "raise the version of the tracks" not in done.stderr


def test_a_track_rises_with_its_task(published: Path) -> None:
    run(published, "archive", "track", "nano")
    changed_task(published)
    run(published, "freeze", "addition", "--bump")
    code, printed = validated(published, published, "--quick")
    assert code == 3
    assert "rests on what rises: task 'addition' from 1.0.0 to 2.0.0. Results of nano@1 would" in \
        printed
    assert "mean two things: raise its version" in printed
    assert check_tracks(changes_since("base", published))
    shutil.rmtree(published / ARCHIVE)
    (found,) = check_tracks(changes_since("base", published))
    assert "mean two things: archive it as it was (crlbench archive track nano), and" in found
    track_at(published, 2)
    assert not check_tracks(changes_since("base", published))


def test_a_track_rises_with_the_retain_panel(published: Path) -> None:
    panel = published / FOLDER / "panel.toml"
    panel.write_text(panel.read_text().replace('version = "1.0.0"', 'version = "2.0.0"'))
    (found,) = check_tracks(changes_since("base", published))
    assert "rests on what rises: retain panel from 1.0.0 to 2.0.0" in found
    track = track_at(published, 1)
    track.write_text(track.read_text().replace('retain = ["copy"]', "retain = []"))
    git(published, "stash", "-q", "--", str(panel))
    based(published)
    git(published, "stash", "pop", "-q")
    assert not check_tracks(changes_since("base", published))


@pytest.mark.parametrize("draft", ["track", "task"])
def test_drafts_rise_freely(published: Path, draft: str) -> None:
    frozen = published / "tasks/addition/frozen.toml"
    text = frozen.read_text()
    if draft == "track":
        track_at(published, 0)
    else:
        frozen.write_text(text.replace('version = "1.0.0"', 'version = "0.9.0"', 1))
    based(published)
    frozen.write_text(text.replace('version = "1.0.0"', 'version = "2.0.0"', 1))
    assert not check_tracks(changes_since("base", published))


def test_a_track_is_archived_with_the_tasks_that_it_was_published_with(published: Path) -> None:
    """By the commit that published it."""
    changed_task(published)
    run(published.parent, "freeze", str(published / "tasks" / "addition"), "--bump")
    first = head(published)
    for _ in range(2):  # before and after the mistake is committed
        done = crlbench("archive", "track", "nano", catalog=published)
        assert done.returncode == 2 and not (published / ARCHIVE).exists()
        assert f"was published with other tasks (commit {first})" in done.stderr
        assert f"addition 1.0.0 (not 2.0.0). To archive 1, check out {first}" in done.stderr
        commit(published)
    track_at(published, 2)
    commit(published)
    run(published, "archive", "track", "nano")


def head(root: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    return done.stdout[:12]


def test_stored_results_say_which_tasks_a_track_has(entry: Path, later: Path) -> None:
    """Outside of git nothing else does."""
    run(later.parent, "freeze", str(later / "tasks" / "addition"), "--bump")
    place = later / "leaderboard" / "results" / Path(*entry.parts[-3:])
    shutil.copytree(entry, place)
    done = crlbench("archive", "track", "nano", catalog=later)
    assert done.returncode == 2 and not (later / ARCHIVE).exists()
    assert f"was published with other tasks ({place}): addition 1.0.0 (not 2.0.0)" in done.stderr


def test_a_draft_is_archived_where_results_of_it_stand(published: Path) -> None:
    track_at(published, 0)
    based(published)
    done = crlbench("archive", "track", "nano", catalog=published)
    assert done.returncode == 2 and "no result of it is stored" in done.stderr
    plan = published / "leaderboard/results/nano-000000000000/tiny@00000000/ppo/plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text('{"track": "nano", "track_version": 0, "division": "closed", "control": {}}')
    based(published)
    run(published, "archive", "track", "nano")
    assert (published / ARCHIVE / "nano@0").is_dir()
    assert archived_in(published) == ""
    shutil.rmtree(published / "leaderboard/results")
    assert "track 'nano' 0 is a draft" in archived_in(published)


@pytest.mark.parametrize("kind", ["track", "task"])
def test_what_is_not_committed_is_not_archived(published: Path, kind: str) -> None:
    """Who raised the version first would archive the new one."""
    name, old, new = ("nano", "1", "2") if kind == "track" else ("addition", "1.0.0", "2.0.0")
    if kind == "track":
        track_at(published, 2)
    else:
        changed_task(published)
        run(published.parent, "freeze", str(published / "tasks" / "addition"), "--bump")
    done = crlbench("archive", kind, name, catalog=published)
    assert done.returncode == 2 and not (published / ARCHIVE).exists()
    assert f"{kind} '{name}' {new} is not committed: the last commit has {old}." in done.stderr


def test_an_archive_stays_as_it_is(published: Path) -> None:
    run(published, "archive", "track", "nano")
    based(published)
    assert archived_in(published) == ""
    track = published / OLD / "leaderboard" / "tracks" / "nano.toml"
    track.write_text(track.read_text().replace("for tests", "for a test"))
    (published / OLD / "tasks" / "addition" / "frozen.toml").unlink()
    (published / OLD / "tasks" / "addition" / "more.jsonl").write_text("")
    (published / OLD / NAME).write_bytes(seal(published / OLD))
    found = archived_in(published)
    assert found.count("an archived version is frozen, and this file of it was") == 4
    assert "more.jsonl: an archived version is frozen, and this file of it was added" in found
    code, printed = validated(published, published)
    assert code == 3 and "an archived version is frozen" in printed
