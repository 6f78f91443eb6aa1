"""Two versions of a track side by side: entries of both, in every command that takes a version."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from crlbench.catalog.find import ARCHIVE, Catalog
from crlbench.disk.seal import NAME, seal
from crlbench.site.build import build
from crlbench.site.reading import read_site
from crlbench.verdict import resources
from tests.contribute.catalogue import moved
from tests.contribute.forgeries import FORGERIES
from tests.contribute.honest import copied, crlbench, evaluated, submitted
from tests.contribute.test_archive import kept, run
from tests.contribute.test_base import checked

__all__ = ["kept"]

FORGED = (
    "the_last_score_is_raised",
    "a_luckier_seed_is_taken",
    "another_learning_rate_is_called_closed",
    "a_kinder_verifier_is_used",
    "other_passages_are_retained",
    "a_condition_that_no_track_has",
    "samples_are_exchanged",
    "a_protocol_that_nobody_wrote",
)
"""Of every kind one that the version's own track and tasks, or the runs alone, must catch."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_entry_of_an_archived_version_is_caught(
    name: str, entry: Path, kept: Path, tmp_path: Path
) -> None:
    forge, verb, words = FORGERIES[name]
    folder = copied(entry, tmp_path / "results")
    forge(folder)
    code, printed = checked(moved(folder), kept, verb)
    assert code == 3 and re.search(words, printed), printed


def test_completions_are_judged_by_the_version_that_paid_them(
    entry: Path, kept: Path, tmp_path: Path
) -> None:
    """The next version's verifier is another one, so that a switch would be seen."""
    home = tmp_path / "home"
    shutil.copytree(kept, home)
    code = home / "tasks" / "addition" / "task.py"
    code.write_text(code.read_text().replace("float(text == answer)", "0.0"))
    assert crlbench("--quiet", "archive", "--check", catalog=home).returncode == 0
    status, printed = checked(entry, home, "verify", "--recompute-only")
    assert status == 0 and "(addition 1.0.0, counting 1.0.0)" in printed, printed


@pytest.fixture(scope="module")
def both(
    entry: Path, other: Path, kept: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of results: two entries of version 1, one of version 2."""
    results = tmp_path_factory.mktemp("both") / "leaderboard" / "results"
    for old in (entry, other):
        shutil.copytree(old, results.joinpath(*old.parts[-3:]))
    made = evaluated(tmp_path_factory.mktemp("second"), kept, seeds=2)
    submitted(made, results, kept)
    return results


@pytest.mark.slow
def test_entries_of_both_versions_keep_every_rule(both: Path, kept: Path) -> None:
    code, printed = checked(both, kept, "validate")
    assert code == 0 and printed.count("keeps every rule") == 3, printed
    assert "not checked" not in printed
    for board in both.iterdir():
        code, printed = checked(board, kept, "verify", "--recompute-only")
        assert code == 0 and "not checked" not in printed, printed


@pytest.mark.slow
def test_boards_rank_one_version_and_pages_say_which(
    both: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "leaderboard_folder", lambda: kept / "leaderboard")
    site = read_site(both, Catalog([kept]))
    now, then = site.boards
    assert (now.track, now.later, now.board.track_version) == ("current", None, 2)
    assert (then.track, then.later, then.board.track_version) == ("archived", 2, 1)
    assert len(now.board.entries) == 1 and len(then.board.entries) == 2
    assert now.title == "nano v2" and then.title == "nano v1"
    files = {path: content.decode() for path, content in build(site).items()
             if path.endswith(".html")}  # fmt: skip
    words = "Archived: version 1 of nano; the current version is 2."
    said = sorted(path for path, text in files.items() if words in text)
    assert said == sorted([f"boards/{then.id}/index.html", f"boards/{then.id}/ppo.html"])
    assert words not in files["index.html"]
    listed = files["boards/index.html"]
    assert listed.index("frozen, current") < listed.index("frozen, superseded")
    task = files["tasks/addition.html"]
    assert task.count("version 1.0.0 of this task") == 1
    entry = next(path for path in files if path.startswith(f"runs/{then.id}/"))
    assert "--track nano@1" in files[entry.rpartition("/")[0] + "/index.html"]


@pytest.mark.slow
def test_entries_are_named_by_version(both: Path, kept: Path, tmp_path: Path) -> None:
    def compared(*entries: str, more: tuple[str, ...] = ()) -> tuple[int, str]:
        done = crlbench("--quiet", "compare", *entries, "--runs", both, *more, catalog=kept)
        return done.returncode, done.stdout + done.stderr

    one, two = "nano@1/tiny-llama", "nano@1/tiny-llama-0.3m/ppo"
    assert compared(one, two)[0] == 0
    assert compared(one, two, more=("--tasks", "addition@1.0.0"))[0] == 0
    code, printed = compared(one, two, more=("--tasks", "addition@2.0.0"))
    assert code == 2 and "have task 'addition' at version 1.0.0" in printed
    code, printed = compared(one, "nano@3/tiny-llama")
    assert code == 2 and "track 'nano' version '3'. Known: 1, 2." in printed
    code, printed = compared("nano@1/tiny-llama-0.3m", "nano@2/tiny-llama-0.3m")
    assert code == 4 and "track_version" in printed
    assert compared("tiny-llama-0.3m", one)[0] == 0, "on the board of the other one"
    code, printed = compared("tiny-llama-0.3m", "tiny-llama-0.3m/ppo")
    assert code == 2 and "is ambiguous" in printed
    code, printed = compared("nano@1/none", one)
    assert code == 2 and "unknown entry" in printed

    table = tmp_path / "runs.csv"
    export = ("leaderboard", "export", "--what", "runs", "--results", both, "--out", table)
    run(kept, *map(str, export), "--board", "nano@1")
    boards = {row["board"] for row in csv.DictReader(table.open())}
    assert len(boards) == 1 and boards < {board.name for board in both.iterdir()}
    done = crlbench(*export, "--board", "nano@3", catalog=kept)
    assert done.returncode == 2 and "nano@1" in done.stderr


NANO, ADDITION = ("nano", "1, 2"), ("addition", "1.0.0, 2.0.0")
"""What is asked for by version, and the versions that there are."""
EVALUATE = ("evaluate", "--model", "tiny-llama", "--dry-run", "--track")
ABLATE = ("ablate", "--model", "tiny-llama", "--flip", "kl=none", "--dry-run", "--track")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (EVALUATE, NANO),
        ((*EVALUATE, "nano", "--tasks"), ADDITION),
        (ABLATE, NANO),
        ((*ABLATE, "nano", "--tasks"), ADDITION),
        (("evaluate", "--print-config", "--track"), NANO),
        (("evaluate", "--print-config", "--track", "nano", "--tasks"), ADDITION),
        (("fingerprint", "--track"), NANO),
        (("fingerprint", "--track", "nano", "--tasks"), ADDITION),
        (("doctor", "--track"), NANO),
        (("show", "track"), NANO),
        (("show", "task"), ADDITION),
        (("show", "task", "--render", "tiny-llama"), ADDITION),
        (("freeze", "--check"), ADDITION),
    ],
)
def test_every_command_takes_a_version(
    command: tuple[str, ...], asked: tuple[str, str], kept: Path
) -> None:
    """The current one by its number is the current one, to the letter."""
    name, known = asked
    old, _, current = known.partition(", ")

    def said(version: str) -> object:
        text = run(kept, "--json", *command, f"{name}{version}")
        return told(text.replace(f"{name}@{current}", name))

    plain = said("")
    assert plain == said(f"@{current}") != said(f"@{old}")
    done = crlbench(*command, f"{name}@9", catalog=kept)
    assert done.returncode == 2 and f"has no version '9' here. Known: {known}." in done.stderr
    unknown = crlbench(*command, "none@1", catalog=kept)
    assert unknown.returncode == 2 and "unknown" in unknown.stderr


def told(text: str) -> object:
    """What is asked for, without the time, memory and disk of this machine."""
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if "plans" in data:
        return data["plans"]
    if isinstance(data, dict):
        return {name: value for name, value in data.items() if name not in ("findings", "memory")}
    return data


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("freeze", "addition@1.0.0"), "is archived and never changes"),
        (("freeze", "addition@1.0.0", "--bump"), "raise its version: crlbench freeze addition"),
        (("probe", "addition@1.0.0", "--model", "tiny-llama", "--write"), "is archived"),
        (("fit-reward", "--model", "tiny-llama", "--out", "x", "--pairs", "addition@9"),
         "has no version '9' here"),
        (("probe", "addition@9", "--model", "tiny-llama"), "has no version '9' here"),
        (("fetch", "--task", "addition@9"), "has no version '9' here"),
        (("fetch", "--task", "addition@1.0.0"), "its rows travel with it"),
        (("archive", "track", "nano@1"), "is archived already"),
        (("archive", "task", "addition@1.0.0"), "is archived already"),
        (("archive", "track", "nan"), "Did you mean nano"),
        (("archive", "track", "core"), "is at version 0, which changes freely"),
        (("archive", "track"), "archive needs a kind and a name"),
        (("archive", "--check", "track", "nano"), "--check looks at every archive"),
    ],
)  # fmt: skip
def test_an_archived_version_is_read_and_never_written(
    command: tuple[str, ...], words: str, kept: Path
) -> None:
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    done = crlbench(*command, catalog=kept)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("inside", ["an easier copy", "nothing"])
def test_an_archive_that_its_name_does_not_announce_means_nothing(
    inside: str, kept: Path, tmp_path: Path
) -> None:
    """Another folder cannot say what a version is: ``a`` would come before ``nano@1``."""
    home = tmp_path / "home"
    shutil.copytree(kept, home)
    fingerprint = ("fingerprint", "--track", "nano@1", "--json")
    before = crlbench("--quiet", *fingerprint, catalog=home)
    fake = home / ARCHIVE / "a"
    fake.mkdir()
    if inside != "nothing":
        shutil.copytree(home / ARCHIVE / "nano@1", fake, dirs_exist_ok=True)
        track = fake / "leaderboard" / "tracks" / "nano.toml"
        text = track.read_text().replace("learning_rate = 1e-4", "learning_rate = 2e-4", 1)
        assert text != track.read_text()
        track.write_text(text)
    (fake / NAME).write_bytes(seal(fake))
    after = crlbench("--quiet", *fingerprint, catalog=home)
    assert before.returncode == 0 and after.stdout == before.stdout
    done = crlbench("--quiet", "archive", "--check", catalog=home)
    assert done.returncode == 3 and "is called name@version after the track" in done.stderr
