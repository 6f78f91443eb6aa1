"""Forgeries that a pull request brings: what only the commit before it shows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.contribute.results.retract import RETRACTIONS, digest_of, submitted_files
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from tests.contribute.forger import extended
from tests.contribute.test_archive import OLD, changed_task, run, sealed_again
from tests.contribute.test_archiving import based, standing
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]

PULL_REQUESTS: dict[str, tuple[Callable[[Path, Path], Any], tuple[str, ...], str]] = {}
"""What only the base shows: what is done to a checkout with an entry, flags, and the words."""


def brought(words: str, *flags: str) -> Callable[[Callable[[Path, Path], Any]], Any]:
    def add(forge: Callable[[Path, Path], Any]) -> Callable[[Path, Path], Any]:
        PULL_REQUESTS[forge.__name__] = forge, flags, words
        return forge

    return add


@brought("@mallory adds to an entry of @someone", "--author", "@mallory")
def somebody_elses_entry_is_extended(root: Path, entry: Path) -> None:
    extended(entry, 5)


@brought("submitter @someone, and @mallory brings it", "--author", "@mallory")
def an_entry_is_brought_in_anothers_name(root: Path, entry: Path) -> None:
    shutil.copytree(entry, entry.parent / "grpo")


def retracting(root: Path, entry: Path, **changes: str) -> None:
    body = {"entry": "/".join(entry.parts[-3:]), "records": "all", "date": "2026-11-24",
            "reason": "x", "by": "@crlbench-maintainer",
            "digest": digest_of(submitted_files(entry))}
    line = canonical_json(linked([], body | changes))
    (root / RETRACTIONS).write_text(f"{line}\n")


@brought("taken back by @crlbench-maintainer, and @mallory brings it", "--author", "@mallory")
def an_entry_is_retracted_in_a_maintainers_name(root: Path, entry: Path) -> None:
    retracting(root, entry)


@brought("day is out of range|month must be in 1..12|date")
def an_entry_is_retracted_on_a_day_that_there_is_not(root: Path, entry: Path) -> None:
    retracting(root, entry, date="2026-02-30")


@brought("date: 9999-12-31 is in the future")
def an_entry_is_retracted_on_a_day_to_come(root: Path, entry: Path) -> None:
    retracting(root, entry, date="9999-12-31")


@brought("taken back by @mallory: @someone submitted it, and only they or", "--author", "@mallory")
def an_entry_is_retracted_by_somebody_else(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@mallory")


@brought("by: 'the maintainers', expected a GitHub handle")
def an_entry_is_retracted_by_nobody(root: Path, entry: Path) -> None:
    retracting(root, entry, by="the maintainers")


@brought("reason: holds a character that is not printed")
def a_retraction_turns_its_reason_around(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@someone", reason="all is well\u202e")


@brought("retractions.jsonl:1: not in the bytes that crlbench leaderboard retract writes")
def a_retraction_is_spelled_with_spaces(root: Path, entry: Path) -> None:
    retracting(root, entry, by="@someone")
    path = root / RETRACTIONS
    path.write_text(json.dumps(json.loads(path.read_text())) + "\n")


@brought("results stand alone in a pull request, and this one also touches code")
def the_page_of_the_results_comes_with_a_result(root: Path, entry: Path) -> None:
    extended(entry, 5)
    (root / RESULTS / "README.md").write_text("All of these are proven.\n")


@brought("README.md: is a link")
def the_page_of_the_results_becomes_a_link(root: Path, entry: Path) -> None:
    (root / RESULTS / "README.md").symlink_to("/etc/passwd")


@brought("tasks/x.*: is a submodule")
def a_task_is_another_repository(root: Path, entry: Path) -> None:
    git(root, "init", "-q", str(root / "tasks/x"))
    git(root / "tasks/x", "commit", "--allow-empty", "-m", "x")


@brought("models stand alone in a pull request, and this one also touches crlbench/proof/audit")
def the_rules_are_removed_beside_a_model(root: Path, entry: Path) -> None:
    for path in ("models/my-model.toml", "crlbench/proof/audit.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


@brought("also touches tests/models/conftest.py")
def a_model_brings_code_for_the_tests(root: Path, entry: Path) -> None:
    for path in ("models/my-model.toml", "tests/models/conftest.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


@brought("version: 1.0, and track 1 was published: a version only rises")
def a_published_track_gets_the_same_version_in_other_words(root: Path, entry: Path) -> None:
    path = root / "leaderboard/tracks/nano.toml"
    text = path.read_text().replace("1e-4", "1e-2")
    path.write_text(text.replace("version = 1\n", "version = 1.0\n"))


@brought("learning_rate: 0.01, and track 1 was published with 0.0001")
def a_published_track_is_made_easier(root: Path, entry: Path) -> None:
    path = root / "leaderboard/tracks/nano.toml"
    path.write_text(path.read_text().replace("1e-4", "1e-2"))


def archived(root: Path) -> Path:
    """A new archive of a track that was published with the tasks that it rests on."""
    run(based(standing(root)), "archive", "track", "nano")
    return root / OLD


@brought("nano@1: is no state in which track 'nano' 1 was published.*README.md is another")
def an_archive_is_put_together_from_two_commits(root: Path, entry: Path) -> None:
    """Each of its files was published; never beside the others."""
    words = (archived(root) / "tasks/addition/README.md").read_bytes()
    shutil.rmtree(root / OLD)
    for task in ("addition", "counting"):
        (root / "tasks" / task / "README.md").write_text("Other words.\n")
    run(based(root), "archive", "track", "nano")
    (root / OLD / "tasks/addition/README.md").write_bytes(words)
    sealed_again(root)


@brought("nano@1: is no state in which .*addition/README.md is missing")
def an_archive_leaves_something_out(root: Path, entry: Path) -> None:
    (archived(root) / "tasks/addition/README.md").unlink()
    sealed_again(root)


@brought("nano@1: is no state in which .*nano.toml is another")
def an_easier_track_is_archived(root: Path, entry: Path) -> None:
    track = archived(root) / "leaderboard/tracks/nano.toml"
    track.write_text(track.read_text().replace("1e-4", "1e-2"))
    sealed_again(root)


@brought("an archive is called name@version after the track that it holds")
def an_archive_is_called_a_later_version(root: Path, entry: Path) -> None:
    archived(root).rename((root / OLD).with_name("nano@2"))


@brought("nano@7: track 'nano' never had version 7")
def a_version_that_was_never_published_is_archived(root: Path, entry: Path) -> None:
    track = archived(root) / "leaderboard/tracks/nano.toml"
    track.write_text(track.read_text().replace("version = 1", "version = 7", 1))
    sealed_again(root)
    (root / OLD).rename((root / OLD).with_name("nano@7"))


@brought("stays at version 1 and rests on what rises: task 'addition' from 1.0.0 to 2.0.0")
def a_task_of_a_published_track_is_raised_alone(root: Path, entry: Path) -> None:
    archived(root)
    changed_task(root)
    run(root, "freeze", "addition", "--bump")


@pytest.mark.slow
@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_a_pull_request_is_caught(
    name: str, repository: Path, home: Path, entry: Path
) -> None:
    forge, flags, words = PULL_REQUESTS[name]
    track = repository / "leaderboard/tracks/nano.toml"
    track.parent.mkdir(parents=True)
    shutil.copy(home / "leaderboard/tracks/nano.toml", track)
    commit(repository)
    git(repository, "tag", "-f", "base")
    forge(repository, place(repository, entry))
    code, printed = validated(repository, home, *flags)
    assert code == 3 and re.search(words, printed), printed
