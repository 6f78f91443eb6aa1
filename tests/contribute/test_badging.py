"""``.ci/badges`` and ``.ci/replay``: one bad entry harms no other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from crlbench.contract.verification import UNCHECKED, read_verifications
from crlbench.contribute.results import badging
from crlbench.contribute.results.batch import Prover, Subject, in_order
from crlbench.contribute.review import replaying
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.verdict.badges import Badges
from tests.contribute.forger import Forger
from tests.contribute.test_changes import RESULTS, commit, git, place

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "config", "user.name", "t")
    git(root, "config", "user.email", "t@example.org")
    return root


@pytest.fixture
def script(tmp_path: Path, home: Path) -> str:
    """crlbench as it is called, with the catalogue that has the track of these entries."""
    path = tmp_path / "crlbench"
    path.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m crlbench --catalog {home} "
        '"$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def fake(tmp_path: Path, body: str) -> str:
    """A command in place of crlbench: entries of tests cannot take hours, or be gated."""
    path = tmp_path / "fake"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def badged(checkout: Path, *arguments: object) -> tuple[int, list[dict]]:
    out = checkout.parent / "badges.jsonl"
    out.unlink(missing_ok=True)
    flags = ["--checkout", checkout, "--out", out, *arguments]
    code = badging.main([*map(str, flags)])
    lines = out.read_text().splitlines() if out.exists() else []
    return code, [json.loads(line) for line in lines]


def running(process: int) -> bool:
    """Whether a process is there and more than a name that nobody has asked for yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def log(root: Path) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(root), "log", "--format=%s"], capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_a_forged_a_damaged_and_a_good_entry_each_have_their_outcome(
    checkout: Path, entry: Path, other: Path, script: str, capsys: pytest.CaptureFixture
) -> None:
    good, forged = place(checkout, entry), place(checkout, other)
    shutil.copytree(entry, good)
    shutil.copytree(other, forged)
    forger = Forger(forged)
    cell = next(iter(forger.runs))
    rows = forger.lines(cell, "samples.jsonl.zst")
    next(row for row in rows if row["score"] == 0.0)["score"] = 1.0
    forger.put_lines(cell, "samples.jsonl.zst", rows)
    forger.write()
    damaged = Path(shutil.copytree(entry, checkout / RESULTS / "nano-0" / "a@1" / "ppo"))
    (damaged / "runs.tar.zst").write_bytes(b"no archive")
    commit(checkout)
    code, lines = badged(checkout, "--crlbench", script, "--commit", "each")
    said = capsys.readouterr().out
    assert code == 0, said
    assert "nano-0/a@1/ppo: unchecked" in said
    assert f"{'/'.join(forged.parts[-3:])}: mismatch: MISMATCH" in said
    assert f"{'/'.join(good.parts[-3:])}: proven" in said
    assert {line["outcome"] for line in read_verifications(forged / VERIFICATION_NAME)} == {
        "equal", "mismatch"
    }
    kinds = {line["kind"] for line in read_verifications(good / VERIFICATION_NAME)}
    assert kinds == {"recomputed", "replayed"}
    assert [subject.partition(":")[0] for subject in log(checkout)[:2]] == [
        f"Badges of {'/'.join(folder.parts[-3:])}" for folder in sorted([good, forged])[::-1]
    ]
    assert {line["entry"] for line in lines} == {
        "/".join(folder.parts[-3:]) for folder in (good, forged)
    }
    # What has an outcome is not open any more, whatever it is.
    code, lines = badged(checkout, "--crlbench", script)
    assert code == 0 and lines == []


def test_a_gated_model_is_an_outcome_of_its_entry_alone(
    checkout: Path, entry: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for one in (entry, other):
        shutil.copytree(one, place(checkout, one))
    commit(checkout)
    gated = other.parts[-2]
    command = fake(tmp_path, f'case "$*" in *{gated}*) echo "crlbench: gated" >&2; exit 6;; esac')
    code, lines = badged(checkout, "--crlbench", command, "--commit", "each")
    said = capsys.readouterr().out
    assert code == 0 and "unchecked: gated" in said and "1 proven, 1 unchecked" in said
    ((line),) = [one["line"] for one in lines]
    assert (line["outcome"], line["why"], line["updates"]) == (UNCHECKED, "gated", 0)
    (noted,) = read_verifications(place(checkout, other) / VERIFICATION_NAME)
    assert noted == line and "1 unchecked" in log(checkout)[0]
    assert Badges([noted]).of_run(noted["record_id"]) is None


def test_a_slow_entry_has_its_time_and_leaves_nothing_running(
    checkout: Path, entry: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for one in (entry, other):
        shutil.copytree(one, place(checkout, one))
    slow, mark = other.parts[-2], tmp_path / "pid"
    command = fake(
        tmp_path, f'case "$*" in *{slow}*) sleep 600 & echo $! > {mark}; wait;; esac'
    )
    begun = time.monotonic()
    code, _ = badged(checkout, "--crlbench", command, "--minutes-per-entry", 0.02)
    assert code == 0 and time.monotonic() - begun < 60
    said = capsys.readouterr().out
    assert "unchecked: not done within 0.02 minutes" in said and "1 proven" in said
    assert not running(int(mark.read_text()))


def test_the_batch_ends_with_what_it_has(
    checkout: Path, entry: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for one in (entry, other):
        shutil.copytree(one, place(checkout, one))
    code, lines = badged(
        checkout, "--crlbench", fake(tmp_path, "true"), "--minutes-total", 0.01
    )
    assert code == 0 and lines == []
    assert "out of time: 2 entries stay open" in capsys.readouterr().out
    code, _ = badged(checkout, "--crlbench", fake(tmp_path, "true"), "--first", 1)
    assert code == 0 and "1 entries: 1 proven" in capsys.readouterr().out
    code, _ = badged(checkout, "--crlbench", fake(tmp_path, "true"), "--entry", "core-*/*")
    assert code == 0 and "nothing was open" in capsys.readouterr().out


def subject(name: str, open_division: bool = False, tried: str = "") -> Subject:
    lines = [{"date": tried}] if tried else []
    return Subject(Path("/r/b/m") / name, (), Badges(lines), open_division, "m")


def test_the_order_starves_nobody() -> None:
    old, young = subject("z-old"), subject("a-young")
    tried, again = subject("b", tried="2026-11-24"), subject("c", tried="2026-11-23")
    open_one = subject("0-first-by-name", open_division=True)
    ages = {old.folder: 1.0, young.folder: 2.0, tried.folder: 0.0, again.folder: 0.0}
    ordered = in_order([open_one, tried, young, again, old], ages)
    assert [one.folder.name for one in ordered] == [
        "z-old", "a-young", "c", "b", "0-first-by-name"
    ]


def test_a_seed_of_every_group_is_replayed() -> None:
    """The placebo arm has fewer seeds, so that a seed of the real arm may leave it open."""

    def run(arm: str, index: int) -> SimpleNamespace:
        record = SimpleNamespace(
            task=SimpleNamespace(name="t"), arm=arm, seed=SimpleNamespace(index=index),
            record_id=f"{arm}-{index}",
        )
        return SimpleNamespace(record=record, name=record.record_id)

    runs = tuple(run("real", i) for i in range(5)) + tuple(run("placebo", i) for i in range(2))
    one = Subject(Path("/nowhere/b/m/r"), runs, Badges([]), False, "tiny-llama")
    prover = Prover(["true"], time.monotonic() + 60, 60)
    for _ in range(20):
        commands = list(prover._steps(one, replay=True))
        seeds = [int(c[c.index("--seed-index") + 1]) for c in commands if "--seed-index" in c]
        assert any(seed < 2 for seed in seeds) and 1 <= len(seeds) <= 2


@pytest.mark.parametrize(
    "path",
    ["tasks/evil/task.py", "models/evil.toml", "crlbench/x.py", "leaderboard/retractions.jsonl"],
)
def test_a_replay_refuses_all_but_results_before_it_opens_anything(
    checkout: Path, entry: Path, tmp_path: Path, path: str, capsys: pytest.CaptureFixture
) -> None:
    commit(checkout)
    git(checkout, "tag", "base")
    shutil.copytree(entry, place(checkout, entry))
    (checkout / path).parent.mkdir(parents=True, exist_ok=True)
    (checkout / path).write_text("x")
    commit(checkout)
    mark = tmp_path / "called"
    command = fake(tmp_path, f"touch {mark}")
    assert replaying.main([str(checkout), "base", "--crlbench", command]) == 3
    said = capsys.readouterr().err
    assert f"only results may change here (--only), and this also touches {path}" in said
    assert not mark.exists()


def test_a_replay_refuses_links(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    commit(checkout)
    git(checkout, "tag", "base")
    (checkout / RESULTS).mkdir(parents=True)
    (checkout / RESULTS / "README.md").symlink_to("/etc/passwd")
    commit(checkout)
    assert replaying.main([str(checkout), "base", "--crlbench", "false"]) == 3
    assert "README.md" in capsys.readouterr().err


@pytest.mark.full
def test_a_replay_goes_past_what_fails(
    checkout: Path, entry: Path, other: Path, script: str, capsys: pytest.CaptureFixture
) -> None:
    commit(checkout)
    git(checkout, "tag", "base")
    shutil.copytree(entry, place(checkout, entry))
    broken = Path(shutil.copytree(other, place(checkout, other)))
    (broken / "submission.json").write_text("{}")
    commit(checkout)
    code = replaying.main([str(checkout), "base", "--crlbench", script])
    said = capsys.readouterr().out
    assert code == 3, said
    assert f"{'/'.join(other.parts[-3:])}: refused, and not replayed" in said
    assert f"{'/'.join(entry.parts[-3:])}: proven" in said
