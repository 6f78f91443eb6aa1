"""An archived track and its tasks: old entries are checked in full beside newer versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.catalog.find import ARCHIVE, Catalog
from crlbench.catalog.retain_panel import FOLDER
from crlbench.contract.conditions import Track
from crlbench.disk.packed import PACKED, unpack
from crlbench.disk.seal import NAME, seal
from crlbench.errors import UsageError
from crlbench.pages import reproduce
from crlbench.run.archive import catalog_of, open_board, open_track
from crlbench.run.board import Request, make_board
from crlbench.verdict import resources
from crlbench.verdict.load import load_runs
from tests.contribute.honest import TRACK, catalog, crlbench, evaluated
from tests.contribute.test_base import checked
from tests.contribute.test_changes import repository

__all__ = ["repository"]

OLD = f"{ARCHIVE}/nano@1"
SYSTEM = "Add the two numbers."
VERIFIER = "return numeric(text, answer)"
STRICTER = "return float(text == answer)"


def present(folder: Path) -> Path:
    """A catalogue in which ``nano`` and ``addition`` are at version 1."""
    catalog(folder)
    shutil.copytree(Catalog().find("task", "addition").path, folder / "tasks" / "addition")
    return folder


def run(home: Path, *command: str) -> str:
    """What a command prints that must succeed."""
    done = crlbench("--quiet", *command, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def changed_task(folder: Path) -> Path:
    """Other words and a stricter verifier of ``addition``, which is not frozen yet."""
    path = folder / "tasks" / "addition" / "task.py"
    code = path.read_text()
    assert SYSTEM in code and VERIFIER in code
    path.write_text(code.replace(SYSTEM, "What is the sum?").replace(VERIFIER, STRICTER))
    return path


def track_at(folder: Path, version: int) -> Path:
    """The track's file, at a version."""
    track = folder / "leaderboard" / "tracks" / "nano.toml"
    track.write_text(TRACK.replace("version = 1", f"version = {version}", 1))
    return track


def raised(folder: Path) -> Path:
    """Both at version 2; the verifier is a stricter one."""
    changed_task(folder)
    run(folder, "freeze", "addition", "--bump")
    track_at(folder, 2)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The later catalogue, whose track was archived before."""
    folder = present(tmp_path_factory.mktemp("kept"))
    assert run(folder, "archive", "track", "nano") == str(folder / OLD)
    return raised(folder)


@pytest.fixture(scope="module")
def lost(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The later catalogue without its archive."""
    folder = tmp_path_factory.mktemp("lost") / "home"
    shutil.copytree(kept, folder, ignore=shutil.ignore_patterns("archive"))
    return folder


def changed(kept: Path, folder: Path) -> Path:
    """A copy of the later catalogue, to be tampered with."""
    shutil.copytree(kept, folder)
    return folder


def sealed_again(home: Path) -> None:
    """What a forger does who knows of the list."""
    (home / OLD / NAME).write_bytes(seal(home / OLD))


def fingerprint(home: Path, track: str) -> str:
    done = crlbench("--quiet", "fingerprint", "--track", track, catalog=home)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_an_entry_is_checked_under_the_version_that_it_states(entry: Path, kept: Path) -> None:
    """It is new here: what is new is checked without a gap, or refused."""
    code, printed = checked(entry, kept, "validate")
    assert code == 0, printed
    assert "cannot be checked" not in printed and "not checked" not in printed
    code, printed = checked(entry, kept, "verify", "--recompute-only")
    assert code == 0, printed
    assert "not checked" not in printed
    assert "stored completions (addition 1.0.0, counting 1.0.0)" in printed


def test_without_the_archive_it_cannot_be_checked(entry: Path, lost: Path) -> None:
    for command in (["validate"], ["verify", "--recompute-only"]):
        code, printed = checked(entry, lost, *command)
        assert code == 3, printed
        assert "track nano version 1 cannot be checked here: this checkout has version 2" in printed


def test_what_stood_has_no_gap_either(
    repository: Path, entry: Path, kept: Path, lost: Path
) -> None:
    stood = repository / "leaderboard" / "results" / Path(*entry.parts[-3:])
    assert "not checked any more" in checked(stood, lost, "validate")[1]
    assert "not checked any more" not in checked(stood, kept, "validate")[1]


def test_other_conditions_in_the_archive_refute_the_entry(
    entry: Path, kept: Path, tmp_path: Path
) -> None:
    home = changed(kept, tmp_path / "home")
    track = home / OLD / "leaderboard" / "tracks" / "nano.toml"
    track.write_text(track.read_text().replace("learning_rate = 1e-4", "learning_rate = 2e-4", 1))
    sealed_again(home)
    code, printed = checked(entry, home, "verify", "--recompute-only")
    assert code == 5 and "optimization.learning_rate = 0.0001 (track: 0.0002)" in printed


@pytest.mark.slow
def test_the_first_updates_are_made_again_from_the_archive(entry: Path, kept: Path) -> None:
    """Workers find the tasks of that version: with those of today the prompts would differ."""
    code, printed = checked(entry, kept, "verify", "--seed-index", "0")
    assert code == 0, printed
    assert printed.count("equal to the last bit") == 4


def test_versions_are_boards_of_their_own(entry: Path, home: Path, kept: Path) -> None:
    old, new = fingerprint(kept, "nano@1"), fingerprint(kept, "nano")
    assert old == fingerprint(home, "nano") == entry.parts[-3].removeprefix("nano-")
    assert new == fingerprint(kept, "nano@2") != old
    assert fingerprint(home, "nano@1") == old


@pytest.mark.slow
def test_a_run_of_an_archived_track_is_the_run_that_it_was(
    entry: Path, kept: Path, tmp_path: Path
) -> None:
    run = evaluated(tmp_path, kept, arms="real", more=("--track", "nano@1", "--tasks", "addition"))
    assert run.parts[-3:] == entry.parts[-3:]
    cell = "addition/real/seed-00"
    (stored,) = (
        json.loads(text)
        for name, text in unpack((entry / PACKED).read_bytes()).items()
        if name == f"{cell}/record.json"
    )
    made = json.loads((run / cell / "record.json").read_text())
    assert made["digest_root"] == stored["digest_root"]
    assert made["fingerprint"] == stored["fingerprint"] and made["protocol"] == stored["protocol"]


def test_what_is_shown(kept: Path) -> None:
    def said(*command: str) -> str:
        done = crlbench(*command, catalog=kept)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(said("--json", "show", "track", "nano@1"))["version"] == 1
    assert json.loads(said("--json", "show", "track", "nano"))["version"] == 2
    tracks = {row["name"]: row["version"] for row in json.loads(said("--json", "list", "tracks"))}
    assert tracks["nano"] == 2 and tracks["nano@1"] == 1
    tasks = {row["name"]: row["version"] for row in json.loads(said("--json", "list", "tasks"))}
    assert tasks["addition"] == "2.0.0" and tasks["addition@1.0.0"] == "1.0.0"
    assert "counting@1.0.0" not in tasks  # the current one
    old = json.loads(said("--json", "show", "task", "addition@1.0.0", "--prompts", "1"))
    new = json.loads(said("--json", "show", "task", "addition", "--prompts", "1"))
    assert (old["version"], new["version"]) == ("1.0.0", "2.0.0")
    assert old["digest"] == Catalog().open_task("addition").digest != new["digest"]


@pytest.mark.slow
def test_an_archived_task_is_validated_by_its_name(kept: Path) -> None:
    done = crlbench("--quiet", "validate", "addition@1.0.0", "--quick", catalog=kept)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["show", "track", "nano@3"], "track 'nano' has no version '3' here. Known: 1, 2."),
        (["show", "task", "addition@1.0"], "task 'addition' has no version '1.0' here."),
        (["show", "track", "nan@1"], "unknown track 'nan'. Did you mean nano"),
        (["evaluate", "--track", "nano@", "--model", "tiny-llama"], "has no version ''"),
        (["validate", "counting@2.0.0"], "has no version '2.0.0' here. Known: 1.0.0."),
    ],
)
def test_an_unknown_version_names_the_known(kept: Path, command: list[str], message: str) -> None:
    done = crlbench(*command, catalog=kept)
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.parametrize("part", ["tasks/counting", "leaderboard/retain"])
def test_an_archive_is_whole(entry: Path, kept: Path, tmp_path: Path, part: str) -> None:
    """Else the next version of what it lacks would take its place unseen."""
    home = changed(kept, tmp_path / "home")
    shutil.rmtree(home / OLD / part)
    sealed_again(home)
    for command in (["show", "track", "nano@1"], ["verify", "--recompute-only", entry]):
        done = crlbench("--quiet", *command, catalog=home)
        assert done.returncode == 3 and f"without {part}/" in done.stderr + done.stdout


@pytest.fixture(scope="module")
def alone(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue that archived the task and raised it, and left its track as it was."""
    home = present(tmp_path_factory.mktemp("alone"))
    # By hand: the command knows that the checkout has this version in an archive of a track.
    old = home / "leaderboard" / "archive" / "addition@1.0.0"
    shutil.copytree(Catalog([home]).find("task", "addition").path, old / "tasks" / "addition")
    shutil.rmtree(old / "tasks" / "addition" / "__pycache__", ignore_errors=True)
    (old / NAME).write_bytes(seal(old))
    shutil.copytree(kept / "tasks", home / "tasks", dirs_exist_ok=True)
    return home


def test_a_task_alone_may_be_archived(entry: Path, alone: Path) -> None:
    """Other tasks of its folder take no current one's place."""
    record = load_runs(entry).runs[0].record
    there = catalog_of(record, Catalog([alone]))
    assert there.version_of("task", "addition") == "1.0.0"
    assert there.find("task", "counting") == Catalog([alone]).find("task", "counting")


def test_a_closed_board_holds_the_tasks_of_its_track(
    repository: Path, entry: Path, alone: Path, kept: Path
) -> None:
    """The track took the newer task under its version: what stood may be old, what is new not."""
    words = "task 'addition' 1.0.0 is not the one of track nano version 1 here, which has 2.0.0"
    stood = repository / "leaderboard" / "results" / Path(*entry.parts[-3:])
    code, printed = checked(stood, alone, "validate")
    assert code == 0 and words in printed, printed
    code, printed = checked(stood, alone, "verify", "--recompute-only")
    assert code == 0 and words in printed and "(addition 1.0.0, counting 1.0.0)" in printed
    for command in (["validate"], ["verify", "--recompute-only"]):
        code, printed = checked(entry, alone, *command)
        assert code == 3 and words in printed, printed


def test_a_task_of_another_version_moves_to_the_open_division(kept: Path) -> None:
    opened = open_board(Catalog([kept]), "nano", ["addition@1.0.0", "counting"])
    request = Request(tasks=opened.tasks, replaced=opened.replaced)
    board, tasks, reasons = make_board(opened.catalog, opened.track, request)
    assert (board.division, tasks) == ("open", ["addition", "counting"])
    assert reasons == ["task 'addition' is 1.0.0 (track: 2.0.0)"]
    assert board.control["tasks.addition.version"] == "1.0.0"
    newer = open_board(Catalog([kept]), "nano@1", ["addition@2.0.0"])
    assert newer.replaced == {"addition": "1.0.0"}
    for track, tasks in (("nano", ["addition@2.0.0"]), ("nano@1", ["addition@1.0.0"]),
                         ("nano@1", ["addition"])):  # fmt: skip
        assert not open_board(Catalog([kept]), track, tasks).replaced
    with pytest.raises(UsageError, match="a board has one version of a task"):
        open_board(Catalog([kept]), "nano", ["addition@1.0.0", "addition"])


@pytest.mark.slow
def test_runs_of_the_open_division_are_checked_under_both_versions(
    kept: Path, tmp_path: Path
) -> None:
    """The track at one version and its task at another: nothing of it is taken on trust."""
    tasks = ("--tasks", "addition@1.0.0,counting")
    made = evaluated(tmp_path, kept, arms="real", more=("--track", "nano", *tasks))
    plan = json.loads((made / "plan.json").read_text())
    assert plan["division"] == "open" and plan["track_version"] == 2
    code, printed = checked(made, kept, "verify", "--recompute-only")
    assert code == 0 and "(addition 1.0.0, counting 1.0.0)" in printed, printed


DAMAGED: dict[str, Callable[[Path], object]] = {
    "a row": lambda old: append(old / "tasks/counting/id.jsonl.zst", "\n"),
    "the track": lambda old: (old / "leaderboard/tracks/nano.toml").write_text("version ="),
    "the list": lambda old: (old / NAME).unlink(),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("what", ["tracks", "tasks"])
def test_a_list_goes_on_past_a_damaged_archive(
    name: str, what: str, kept: Path, lost: Path, tmp_path: Path
) -> None:
    home = changed(kept, tmp_path / "home")
    run(home, "archive", "track", "nano")
    track_at(home, 3)
    DAMAGED[name](home / OLD)
    done = crlbench("--json", "list", what, catalog=home)
    assert done.returncode == 3
    assert done.stderr.count("crlbench: ") == 1 and str(home / OLD) in done.stderr
    names = [row["name"] for row in json.loads(done.stdout)]
    found = ("nano", "nano@2") if what == "tracks" else ("addition", "counting", "letters")
    assert set(found) <= set(names) and "nano@1" not in names
    elsewhere = Catalog([lost]).archived("task")  # in the checkout's own archives
    assert ("addition@1.0.0" in names) == (what == "tasks" and "addition@1.0.0" in elsewhere)


def test_a_list_goes_on_past_a_broken_entry(kept: Path, tmp_path: Path) -> None:
    home = changed(kept, tmp_path / "home")
    (home / "models").mkdir()
    (home / "models" / "mine.toml").write_text("schema =")
    (home / "leaderboard/tracks/bad.toml").write_text("version =")
    (home / "tasks/counting").mkdir()
    (home / "tasks/counting/task.py").write_text("")
    (home / "tasks/counting/frozen.toml").write_text("version =")
    for what, path, other in (
        ("models", "models/mine.toml", "tiny-llama"),
        ("tracks", "leaderboard/tracks/bad.toml", "nano@1"),
        ("tasks", "tasks/counting/frozen.toml", "addition@1.0.0"),
    ):
        done = crlbench("--json", "list", what, catalog=home)
        assert done.returncode == 3 and str(home / path) in done.stderr, done.stderr
        assert other in [row["name"] for row in json.loads(done.stdout)]


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a word of the track": (
        lambda old: append(old / "leaderboard/tracks/nano.toml", "# other\n"),
        "leaderboard/tracks/nano.toml was changed",
    ),
    "a row of a task": (
        lambda old: append(old / "tasks/counting/id.jsonl.zst", "\n"),
        "tasks/counting/id.jsonl.zst was changed",
    ),
    "the retain panel": (
        lambda old: (old / FOLDER / "copy.jsonl").unlink(),
        "leaderboard/retain/copy.jsonl is missing",
    ),
    "a file more": (
        lambda old: (old / "tasks/counting/conftest.py").write_text("raise SystemExit"),
        "tasks/counting/conftest.py does not belong there",
    ),
    "a link": (
        lambda old: linked(old / "tasks/addition/task.py"),
        "tasks/addition/task.py is a link",
    ),
    "the list": (lambda old: (old / NAME).unlink(), f"without {NAME}"),
    "a line of the list": (
        lambda old: append(old / NAME, "0" * 64 + "\n"), f"{NAME}:25: expected a SHA-256",
    ),
}  # fmt: skip


def append(path: Path, text: str) -> None:
    path.write_bytes(path.read_bytes() + text.encode())


def linked(path: Path) -> None:
    """To the same bytes, which may change where they stand."""
    elsewhere = path.rename(path.parents[5] / "elsewhere.py")
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_archive_is_refused(name: str, entry: Path, kept: Path, tmp_path: Path) -> None:
    tamper, words = TAMPERED[name]
    home = changed(kept, tmp_path / "home")
    tamper(home / OLD)
    for command in (
        ["show", "track", "nano@1"],
        ["show", "task", "addition@1.0.0"],
        ["evaluate", "--track", "nano@1", "--model", "tiny-llama", "--dry-run"],
        ["archive", "--check"],
        ["validate", entry],
        ["verify", "--recompute-only", entry],
    ):
        done = crlbench("--quiet", *command, catalog=home)
        assert done.returncode == 3 and words in done.stdout + done.stderr, command
    assert crlbench("--quiet", "show", "track", "nano", catalog=home).returncode == 0


def test_lines_that_git_rewrote_are_named_as_that(kept: Path, tmp_path: Path) -> None:
    home = changed(kept, tmp_path / "home")
    track = home / OLD / "leaderboard" / "tracks" / "nano.toml"
    track.write_bytes(track.read_bytes().replace(b"\n", b"\r\n"))
    done = crlbench("--quiet", "archive", "--check", catalog=home)
    assert done.returncode == 3 and "Its text is the right one" in done.stderr


def test_pages_know_the_archived_track(
    entry: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "leaderboard_folder", lambda: kept / "leaderboard")
    old, _ = open_track(Catalog([kept]), "nano@1")
    assert resources.known_track("nano", 1) == old
    now = resources.known_track("nano")
    assert isinstance(now, Track) and now.version == 2
    assert resources.known_track("nano", 3) is None
    command = reproduce.command(load_runs(entry).runs)
    assert " --track nano@1 " in command and "--set" not in command
