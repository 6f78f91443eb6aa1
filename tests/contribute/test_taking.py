"""``.ci/take-badges``: badges from a job without a token are checked before they are pushed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.verification import BADGES, OUTCOMES, read_verifications
from crlbench.contribute.results import taking
from crlbench.contribute.results.layout import MAX_BYTES
from crlbench.contribute.results.layout import RESULTS as OF_LAYOUT
from crlbench.disk.linked_lines import linked
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.run.ledger import append_line
from tests.contribute.test_changes import commit, git

ROOT = Path(__file__).parents[2]
ENTRIES = ("mini-543da47d0c99/tiny-llama@25666175/ppo", "mini-543da47d0c99/tiny-qwen2@c280b0bf/ppo")
RECORDS = ("a" * 64, "b" * 64)


def body(record: str = RECORDS[0], **changes: Any) -> dict[str, Any]:
    return {
        "record_id": record, "run": "m@1/ppo/addition/real/seed-00", "kind": "replayed",
        "by": "maintainers", "date": "2026-11-25T03:17:00Z", "updates": 3, "outcome": "equal",
        "crlbench": "0.1.0",
    } | changes


def chained(*bodies: dict[str, Any], after: list[dict[str, Any]] | None = None) -> list[dict]:
    entries = list(after or [])
    for one in bodies:
        entries.append(linked(entries, one))
    return entries[len(after or []) :]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository with two entries, of which the first has one badge."""
    work = tmp_path / "work"
    for entry in ENTRIES:
        folder = work / taking.RESULTS / entry
        for record in RECORDS:
            event = {"cell": "x", "event": "done", "detail": {"record_id": record}}
            append_line(folder / "ledger.jsonl", _ledger(folder), event)
    append_line(work / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME, [], body())
    git(tmp_path, "init", "-q", "-b", "main", str(work))
    commit(work)
    git(tmp_path, "clone", "-q", "--bare", str(work), str(tmp_path / "remote.git"))
    return tmp_path / "remote.git"


def _ledger(folder: Path) -> list[dict[str, Any]]:
    path = folder / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def clone(remote: Path, name: str) -> Path:
    root = remote.parent / name
    git(remote.parent, "clone", "-q", str(remote), str(root))
    git(root, "config", "user.name", "crlbench")
    git(root, "config", "user.email", "crlbench@example.org")
    return root


@pytest.fixture
def checkout(remote: Path) -> Path:
    return clone(remote, "checkout")


def written(root: Path, lines: list[tuple[str, Any]]) -> Path:
    path = root.parent / "badges.jsonl"
    path.write_text("".join(json.dumps({"entry": e, "line": line}) + "\n" for e, line in lines))
    return path


def taken(root: Path, lines: list[tuple[str, Any]], *flags: str) -> int:
    return taking.main([str(written(root, lines)), "--checkout", str(root), *flags])


def log(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(root), "log", "--format=%s", *arguments], capture_output=True, text=True
    )
    return done.stdout.splitlines()


def first_and_second(root: Path) -> list[tuple[str, Any]]:
    stored = read_verifications(root / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME)
    one = chained(body(RECORDS[1], outcome="mismatch"), after=stored)
    other = chained(body(kind="recomputed", updates=0), body(machine="0" * 12))
    return [(ENTRIES[0], one[0]), *((ENTRIES[1], line) for line in other)]


def test_lines_are_appended_and_each_entry_is_a_commit(checkout: Path, remote: Path) -> None:
    before = (checkout / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME).read_bytes()
    assert taken(checkout, first_and_second(checkout), "--push") == 0
    after = checkout / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME
    assert after.read_bytes().startswith(before)
    outcomes = [line["outcome"] for line in read_verifications(after)]
    assert outcomes == ["equal", "mismatch"]
    assert len(read_verifications(checkout / taking.RESULTS / ENTRIES[1] / VERIFICATION_NAME)) == 2
    assert log(remote, "main")[:2] == [f"Badges of {ENTRIES[1]}", f"Badges of {ENTRIES[0]}"]
    assert log(checkout, "--name-only", "--format=", "-2") == [
        f"{taking.RESULTS}/{entry}/{VERIFICATION_NAME}" for entry in reversed(ENTRIES)
    ]


def test_what_others_pushed_meanwhile_stays(
    checkout: Path, remote: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(taking, "PAUSE_S", 0.0)
    lines = first_and_second(checkout)
    other = clone(remote, "other")
    (other / "README.md").write_text("x")
    commit(other)
    # Somebody verified the first entry too: their line stands where ours would.
    assert taken(other, lines[:1], "--push") == 0
    append = [(ENTRIES[0], chained(body(RECORDS[1]), after=read_verifications(
        checkout / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME))[0]), *lines[1:]]
    assert taken(checkout, append, "--push") == 0
    assert f"left out, verified elsewhere meanwhile: Badges of {ENTRIES[0]}" in (
        capsys.readouterr().err
    )
    assert log(remote, "main")[:3] == [
        f"Badges of {ENTRIES[1]}", f"Badges of {ENTRIES[0]}", "change"
    ]


def test_a_branch_that_nobody_may_push_to_is_an_error(
    checkout: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "PAUSE_S", 0.0)
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert taken(checkout, first_and_second(checkout), "--push") == 6


def forged(**changes: Any) -> Callable[[Path], list[tuple[str, Any]]]:
    """A second line of the first entry, hashed anew after the change."""

    def make(root: Path) -> list[tuple[str, Any]]:
        stored = read_verifications(root / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME)
        return [(ENTRIES[0], chained(body(RECORDS[1], **changes), after=stored)[0])]

    return make


def edited(**changes: Any) -> Callable[[Path], list[tuple[str, Any]]]:
    """The same, changed after it was hashed."""
    return lambda root: [(ENTRIES[0], forged()(root)[0][1] | changes)]


def without(name: str) -> Callable[[Path], list[tuple[str, Any]]]:
    def make(root: Path) -> list[tuple[str, Any]]:
        ((entry, line),) = forged()(root)
        return [(entry, {key: value for key, value in line.items() if key != name})]

    return make


FORGED = {
    "a record of nobody": (forged(record_id="c" * 64), "is no record of this entry"),
    "a badge that there is not": (forged(kind="certified"), "kind"),
    "an outcome that there is not": (forged(outcome="proven"), "outcome"),
    "a day to come": (forged(date="9999-12-31T00:00:00Z"), "is in the future"),
    "no date": (forged(date="yesterday"), "date"),
    "markup as a name": (forged(by="<img src=x>"), "by"),
    "a line feed in a reason": (forged(why="x\n::set-env::"), "why"),
    "60 kB of reason": (forged(why="x" * 60_000), "why"),
    "another field": (forged(note="x"), "expected the fields"),
    "a missing field": (without("by"), "expected the fields"),
    "negative updates": (forged(updates=-1), "updates"),
    "true updates": (forged(updates=True), "updates"),
    "another chain": (edited(previous="0" * 64), "does not follow"),
    "a place further on": (edited(n=5), "does not follow"),
    "an edited line": (edited(outcome="within"), "hash"),
    "an entry of nobody": (
        lambda root: [("mini-1/m@1/ppo", chained(body())[0])], "no such entry"
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_line_that_breaks_a_rule_is_left_out_and_the_others_are_taken(
    name: str, checkout: Path, capsys: pytest.CaptureFixture
) -> None:
    make, words = FORGED[name]
    before = (checkout / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME).read_bytes()
    good = [pair for pair in first_and_second(checkout) if pair[0] == ENTRIES[1]]
    assert taken(checkout, [*make(checkout), *good]) == 3
    assert words in capsys.readouterr().err
    assert (checkout / taking.RESULTS / ENTRIES[0] / VERIFICATION_NAME).read_bytes() == before
    assert log(checkout)[:2] == [f"Badges of {ENTRIES[1]}", "change"]


@pytest.mark.parametrize(
    "content",
    [
        b"{}\n", b"[]\n", b"x\n", b'{"entry": "../../x/y/z", "line": {}}\n',
        b'{"entry": "/etc/x/y", "line": {}}\n', b'{"entry": "a/b/c", "entry": "a/b/d", "line": {}}',
        b'{"entry": "a/b/c", "line": []}\n', b"[" * 100_000, b'{"entry": 3, "line": {}}\n',
    ],
)
def test_a_file_of_another_form_is_refused_whole(content: bytes, checkout: Path) -> None:
    path = checkout.parent / "badges.jsonl"
    path.write_bytes(content)
    assert taking.main([str(path), "--checkout", str(checkout)]) == 3
    assert log(checkout) == ["change"]


def test_links_are_not_followed(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    lines = first_and_second(checkout)
    path = written(checkout, lines)
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))
    assert taking.main([str(path), "--checkout", str(checkout)]) == 3
    target = checkout / taking.RESULTS / ENTRIES[1] / VERIFICATION_NAME
    target.symlink_to(checkout.parent / "nowhere")
    path.unlink()
    assert taken(checkout, lines) == 3
    assert "cannot be read" in capsys.readouterr().err and target.is_symlink()


def test_it_needs_nothing_that_is_installed(checkout: Path) -> None:
    """The job that holds the token runs Python's own library alone, whatever the cwd holds."""
    (checkout / "json.py").write_text("raise SystemExit('of the checkout')\n")
    path = written(checkout, first_and_second(checkout))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    flags = [str(path), "--checkout", str(checkout)]
    for module, arguments, code in (("results.taking", flags, 0), ("review.posting", [], 1)):
        command = [sys._base_executable, "-S", "-P", "-m", f"crlbench.contribute.{module}"]
        done = subprocess.run(
            [*command, *arguments], cwd=checkout, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code and "ModuleNotFoundError" not in done.stderr, done.stderr


def test_it_says_what_the_package_says() -> None:
    """Without pydantic the forms are written a second time; they must not part."""
    assert taking.RESULTS == OF_LAYOUT
    assert taking.MAX_STORED <= MAX_BYTES
    assert taking.TEXTS["kind"].split("|") == [*BADGES]
    assert taking.TEXTS["outcome"].split("|") == [*OUTCOMES]
