"""Only what stood at the base may be "not checked any more"."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tests.contribute.forged_ledgers  # noqa: F401  (adds to the catalogue)
from crlbench.contribute.results.changes import base_of
from crlbench.verdict.load import load_runs
from tests.contribute.catalogue import FORGERIES
from tests.contribute.forger import Forger
from tests.contribute.honest import catalog, copied, crlbench
from tests.contribute.test_changes import RESULTS, commit, git, place, repository, validated

__all__ = ["repository"]


@pytest.fixture
def later_home(tmp_path: Path) -> Path:
    """The catalogue after its track has moved on to version 2."""
    return moved_on(tmp_path, "version = 1", "version = 2")


def moved_on(tmp_path: Path, old: str, new: str) -> Path:
    folder = catalog(tmp_path / "later")
    track = folder / "leaderboard" / "tracks" / "nano.toml"
    assert old in track.read_text()
    track.write_text(track.read_text().replace(old, new, 1))
    return folder


def checked(path: Path, home: Path, *command: str) -> tuple[int, str]:
    done = crlbench("--quiet", *command, path, catalog=home)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_what_stood_is_not_checked_any_more(
    repository: Path, entry: Path, later_home: Path
) -> None:
    stood = place(repository, entry)
    for command in (["validate"], ["verify", "--recompute-only"]):
        code, printed = checked(stood, later_home, *command)
        assert code == 0, printed
        assert "track nano version 1 cannot be checked here: this checkout has" in printed


@pytest.mark.slow
def test_what_is_new_is_refused(
    repository: Path, entry: Path, other: Path, later_home: Path
) -> None:
    """The same version of the same track, of an entry that nobody knew."""
    new = place(repository, other)
    shutil.copytree(other, new)
    for command in (["validate"], ["verify", "--recompute-only"], ["verify"]):
        code, printed = checked(new, later_home, *command)
        assert code == 3, printed
        assert "track nano version 1 cannot be checked here" in printed
    code, printed = validated(repository, later_home)
    assert code == 3 and "What is new is checked, or it is not taken" in printed
    # The branch's own commit makes it no base.
    git(repository, "update-ref", "refs/remotes/origin/main", "base")
    commit(repository)
    assert checked(new, later_home, "validate")[0] == 3
    assert validated(repository, later_home)[0] == 3
    assert checked(place(repository, entry), later_home, "validate")[0] == 0


def test_a_record_that_was_rewritten_did_not_stand(
    repository: Path, entry: Path, later_home: Path
) -> None:
    stood = place(repository, entry)
    forger = Forger(stood)
    forger.edit("addition/real/seed-00", lambda r: r["volatile"].update(peak_memory_bytes=2**33))
    forger.edit("addition/real/seed-00", lambda r: r["environment"].update(cores=77))
    forger.write()
    assert checked(stood, later_home, "validate")[0] == 3


def test_outside_of_git_everything_is_new(
    entry: Path, tmp_path: Path, later_home: Path
) -> None:
    folder = tmp_path / "results" / Path(*entry.parts[-3:])
    shutil.copytree(entry, folder)
    assert checked(folder, later_home, "validate")[0] == 3
    assert base_of(tmp_path / "nowhere") is None


def test_a_name_that_was_lost_is_known_to_a_stated_base_alone(
    repository: Path, entry: Path, tmp_path: Path
) -> None:
    home = tmp_path / "empty"
    (home / "leaderboard" / "tracks").mkdir(parents=True)
    stood = place(repository, entry)
    assert checked(stood, home, "validate")[0] == 3
    base = base_of(stood)
    assert base is not None and not base.named
    assert all(base.holds(run) for run in load_runs(stood))


def test_submit_refuses_what_this_checkout_does_not_know(
    run_folder: Path, later_home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out" / RESULTS
    done = crlbench(
        *("--quiet", "submit", run_folder, "--to", target, "--submitter", "@me", "--no-pr"),
        catalog=later_home,
    )
    assert done.returncode == 3 and "cannot be checked here" in done.stdout
    assert not list(tmp_path.rglob("runs.tar.zst"))


PROTOCOLS = {
    "a_protocol_that_nobody_wrote": 3,
    "runs_name_another_protocol_than_their_conditions": 3,
    "conditions_name_another_protocol_than_their_runs": 5,
    "the_protocol_is_named_where_it_goes_without_saying": 5,
    "the_protocol_is_nothing": 5,
    "one_run_names_another_protocol": 3,
}
"""Forgeries, and how ``verify`` leaves: 3 where a protocol is not known, 5 where two disagree."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_verify_believes_no_protocol_either(
    name: str, entry: Path, home: Path, tmp_path: Path
) -> None:
    folder = copied(entry, tmp_path / "results")
    FORGERIES[name][0](folder)
    code, printed = checked(folder, home, "verify", "--recompute-only")
    assert code == PROTOCOLS[name] and "rotocol" in printed, printed


def test_a_track_of_another_protocol_has_other_entries(
    entry: Path, tmp_path: Path
) -> None:
    """Both protocols are known, and the entry was not made by that of the track."""
    # A ranked track of CRL-2 needs more tasks and items than this one has.
    home = moved_on(tmp_path, "ranked = true", 'ranked = false\nprotocol = "CRL-2"')
    code, printed = checked(entry, home, "validate")
    assert code == 3, printed
    assert "fingerprint.leaves.protocol_name: stored None, expected CRL-2" in printed
    code, printed = checked(entry, home, "verify", "--recompute-only")
    assert code == 5 and "fingerprint.leaves.protocol_name: stored None" in printed


def test_a_track_of_no_known_protocol_is_refused(entry: Path, tmp_path: Path) -> None:
    home = moved_on(tmp_path, "version = 1", 'version = 1\nprotocol = "CRL-9"')
    for command in (["validate", entry], ["verify", "--recompute-only", entry],
                    ["evaluate", "--track", "nano", "--model", "tiny-llama", "--dry-run"],
                    ["list", "tracks"]):  # fmt: skip
        done = crlbench("--quiet", *command, catalog=home)
        assert done.returncode == 3, command
        assert "the protocols are CRL-1" in done.stdout + done.stderr
