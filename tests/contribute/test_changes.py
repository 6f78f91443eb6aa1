"""``crlbench validate --since``: what a pull request may change, in real git repositories."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.contribute.boxes import HUMAN
from crlbench.contribute.changes import changes_since, mixed, scope_of
from crlbench.errors import UsageError
from crlbench.packed import PACKED, pack, unpack
from tests.contribute.honest import crlbench, run_in, submitted

RESULTS = Path("leaderboard/results")


def git(repository: Path, *arguments: str) -> None:
    own = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *arguments], cwd=repository, check=True, capture_output=True)


def commit(repository: Path) -> None:
    git(repository, "add", "-A")
    git(repository, "commit", "--allow-empty", "-m", "change")


@pytest.fixture
def repository(tmp_path: Path, entry: Path) -> Path:
    """A clone in which one entry stands at the commit ``base``."""
    root = tmp_path / "clone"
    shutil.copytree(entry.parents[2], root / RESULTS)
    git(tmp_path, "init", "-q", str(root))
    commit(root)
    git(root, "tag", "base")
    return root


def place(repository: Path, entry: Path) -> Path:
    return repository / RESULTS / Path(*entry.parts[-3:])


def validated(repository: Path, home: Path, *more: object) -> tuple[int, str]:
    done = crlbench(
        "--quiet", "validate", "--since", "base", *more, catalog=home, cwd=repository
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("leaderboard/results/nano-1/m@1/ppo/plan.json", "results"),
        ("models/my-model.toml", "models"),
        ("models/tiny/recipe.py", "code"),
        ("tasks/addition/id.jsonl", "tasks"),
        ("leaderboard/tracks/mini.toml", "code"),
        ("README.md", "code"),
    ],
)
def test_scopes(path: str, scope: str) -> None:
    assert scope_of(path) == scope


def test_one_kind_at_a_time() -> None:
    assert mixed(["results"]) == mixed(["tasks", "code"]) == mixed(["code"]) == mixed([]) == []
    assert "results stand alone" in mixed(["results", "code"])[0]
    assert "models and tasks" in mixed(["models", "tasks"])[0]


def test_a_new_entry_is_welcome(repository: Path, home: Path, other: Path, tmp_path: Path) -> None:
    shutil.copytree(other, place(repository, other))
    comment = tmp_path / "comment.md"
    code, printed = validated(repository, home, "--comment", comment)
    assert code == 0, printed
    assert "4 results" in printed
    text = comment.read_text()
    assert text.startswith("## Every rule is kept")
    assert "**tiny-llama@" in text and "| sample efficiency (Λ) |" in text
    assert "against tiny-llama-0.3m" in text.lower() or "minus" in text
    assert "No other entry changes its tier." in text


@pytest.mark.slow
def test_more_seeds_are_welcome(one_seed_then_two: Path, home: Path, tmp_path: Path) -> None:
    root = tmp_path / "clone"
    (root / RESULTS).mkdir(parents=True)
    submitted(run_in(one_seed_then_two / "one"), root / RESULTS, home)
    git(tmp_path, "init", "-q", str(root))
    commit(root)
    git(root, "tag", "base")
    submitted(run_in(one_seed_then_two / "two"), root / RESULTS, home)
    commit(root)
    code, printed = validated(root, home)
    assert code == 0, printed


def archive(change: Callable[[dict[str, bytes]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        files = unpack((folder / PACKED).read_bytes())
        change(files)
        (folder / PACKED).write_bytes(pack(files))

    return edit


def without_a_run(files: dict[str, bytes]) -> None:
    for name in [name for name in files if name.startswith("addition/real/seed-01/")]:
        del files[name]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "removed"),
        (archive(without_a_run), "removed"),
        (
            archive(lambda f: f.update({"addition/real/seed-00/record.json": b"{}"})),
            "record.json: changed",
        ),
        (lambda folder: (folder / "ledger.jsonl").write_text(""), "a ledger only grows"),
        (lambda folder: (folder / "submission.json").write_text("{}"), "submission.json: changed"),
        (lambda folder: (folder / "verification.jsonl").write_text("{}"), "badges are written by"),
        (lambda folder: (folder / "notes.txt").write_text("x"), "not a place for a file"),
        (lambda folder: (folder.parent / "x.json").write_text("x"), "not a place for a file"),
        (lambda folder: (folder / "runs.tar.zst").write_bytes(b"x"), "runs.tar.zst"),
    ],
)
def test_what_stands_is_not_rewritten(
    repository: Path, home: Path, entry: Path, edit: Callable[[Path], object], words: str
) -> None:
    edit(place(repository, entry))
    code, printed = validated(repository, home)
    assert code == 3 and words in printed, printed


def test_results_come_alone(repository: Path, home: Path, other: Path) -> None:
    shutil.copytree(other, place(repository, other))
    (repository / "crlbench.py").write_text("print('runs nowhere')\n")
    commit(repository)
    code, printed = validated(repository, home)
    assert code == 3 and "results stand alone" in printed


def test_the_boxes_of_a_person(repository: Path, home: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.md"
    body.write_text("".join(f"- [x] {text}\n" for text in HUMAN.values()))
    assert validated(repository, home, "--body", body)[0] == 0
    body.write_text(body.read_text().replace("[x]", "[ ]", 1))
    code, printed = validated(repository, home, "--body", body)
    assert code == 3 and "the box is not ticked" in printed


def test_a_strangers_words_stay_in_the_comments_block(
    repository: Path, home: Path, entry: Path, tmp_path: Path
) -> None:
    (place(repository, entry) / "```\n@everyone <script>").write_text("x")
    comment = tmp_path / "comment.md"
    code, _ = validated(repository, home, "--comment", comment)
    assert code == 3
    text = comment.read_text()
    assert text.count("```") == 2 and "\n@everyone" not in text


def test_a_commit_that_is_not_there(repository: Path) -> None:
    with pytest.raises(UsageError, match="merge-base"):
        changes_since("nowhere", repository)
    with pytest.raises(UsageError, match="no name of a commit"):
        changes_since("--output=x", repository)
