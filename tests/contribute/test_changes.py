"""``crlbench validate --since``: what a pull request may change, in real git repositories."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.contribute.results.changes import (
    Changes,
    changes_since,
    check_kinds,
    check_links,
    check_strays,
    scope_of,
)
from crlbench.contribute.review.growth import check_versions
from crlbench.contribute.review.pull_request import HUMAN
from crlbench.disk.packed import PACKED, pack, unpack
from crlbench.errors import UsageError
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
        ("leaderboard/retractions.jsonl", "retractions"),
        ("tasks/addition", "code"),
        ("README.md", "code"),
    ],
)
def test_scopes(path: str, scope: str) -> None:
    assert scope_of(path) == scope


def test_one_kind_at_a_time() -> None:
    for kinds in (["results"], ["tasks", "code"], ["code"], []):
        assert check_kinds(kinds) == []
    assert "retractions stand alone" in check_kinds(["retractions", "code"])[0]
    assert "results stand alone" in check_kinds(["results", "code"])[0]
    assert "models and tasks" in check_kinds(["models", "tasks"])[0]


@pytest.mark.slow
def test_a_new_entry_is_welcome(repository: Path, home: Path, other: Path, tmp_path: Path) -> None:
    shutil.copytree(other, place(repository, other))
    comment = tmp_path / "comment.md"
    code, printed = validated(repository, home, "--comment", comment)
    assert code == 0, printed
    assert "4 results" in printed
    text = comment.read_text()
    assert text.startswith("## Every rule is kept")
    assert "\ntiny-llama@" in text and "| sample efficiency (Λ) |" in text
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


BEYOND = {
    "tasks/evil/task.py": "raise SystemExit('examined')\n",
    "models/evil.toml": "schema = 1\n",
    "crlbench/proof/audit.py": "",
    "tests/contribute/conftest.py": "raise SystemExit('examined')\n",
    ".gitattributes": "* diff=evil\n",
}


@pytest.mark.parametrize("path", BEYOND)
def test_only_one_kind_is_refused_before_anything_else_is_looked_at(
    repository: Path, home: Path, other: Path, path: str
) -> None:
    broken = place(repository, other)
    shutil.copytree(other, broken)
    (broken / PACKED).write_bytes(b"no archive")
    (repository / path).parent.mkdir(parents=True, exist_ok=True)
    (repository / path).write_text(BEYOND[path])
    code, printed = validated(repository, home, "--only", "results")
    assert code == 3
    assert f"only results may change here (--only), and this also touches {path}" in printed
    assert PACKED not in printed and "examined" not in printed


def test_only_results_are_taken_where_only_they_changed(
    repository: Path, home: Path, other: Path
) -> None:
    shutil.copytree(other, place(repository, other))
    code, printed = validated(repository, home, "--only", "results")
    assert code == 0 and "keeps every rule" in printed, printed


@pytest.mark.parametrize(
    "path",
    [
        "tests/models/conftest.py",
        "tests/tasks/conftest.py",
        "tests/tasks/test_evil.py",
        "docs/models.md.py",
        "docs/schemas/x.py",
        "docs/models.md/conftest.py",
        "models/tiny/recipe.py",
        "pyproject.toml",
        "evil.pth",
    ],
)
def test_what_a_workflow_would_run_is_code_whoever_brings_it(path: str) -> None:
    added = (path, "models/evil.toml") if "task" not in path else (path, "tasks/evil/id.jsonl")
    changes = Changes(Path("/"), "0" * 40, added, (), ())
    assert changes.scopes["code"] == (path,) == changes.unjudged


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
    assert text.startswith("## 2 of 2 refused\n")


def test_a_commit_that_is_not_there(repository: Path) -> None:
    with pytest.raises(UsageError, match="merge-base"):
        changes_since("nowhere", repository)
    with pytest.raises(UsageError, match="no name of a commit"):
        changes_since("--output=x", repository)


TRACK = Path("leaderboard/tracks/nano.toml")
FROZEN = Path("tasks/sums/frozen.toml")


@pytest.fixture
def published(tmp_path: Path, home: Path) -> Path:
    """A clone with a published track, a published task and a draft of each at ``base``."""
    root = tmp_path / "clone"
    for name, version in (("nano", 1), ("draft", 0)):
        path = root / TRACK.with_name(f"{name}.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (home / TRACK).read_text().replace('"nano"', f'"{name}"')
        path.write_text(text.replace("version = 1", f"version = {version}"))
    for name, version in (("sums", "1.2.0"), ("draft", "0.3.0")):
        path = root / "tasks" / name / "frozen.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f'name = "{name}"\nversion = "{version}"\ndigest = "{"a" * 64}"\n')
    git(tmp_path, "init", "-q", str(root))
    commit(root)
    git(root, "tag", "base")
    return root


def faults(root: Path) -> list[str]:
    return check_versions(changes_since("base", root))


def replaced(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("learning_rate = 1e-4", "learning_rate = 1e-3")], "conditions.optimization.learning"),
        ([('tasks = ["addition", "counting"]', 'tasks = ["addition"]')], "tasks"),
        ([("ranked = true", "ranked = false")], "ranked"),
        ([("levels = [1, 2]", "levels = [1, 2]\nreward_bonus = 1")], "reward_bonus"),
        ([("version = 1", "version = 0"), ("1e-4", "1e-3")], "a version only rises"),
        ([("version = 1", 'version = "x"')], "a version only rises"),
        ([("version = 1", "version = 1.0"), ("1e-4", "1e-3")], "a version only rises"),
        ([('id = "nano"', "id =")], "cannot be read"),
    ],
)
def test_a_published_track_says_the_same_under_its_version(
    published: Path, pairs: list, words: str
) -> None:
    replaced(published / TRACK, *pairs)
    (found,) = faults(published)
    assert words in found and found.startswith(f"{TRACK}: ")


@pytest.mark.parametrize(
    "pairs",
    [
        [("version = 1", "version = 2"), ("learning_rate = 1e-4", "learning_rate = 1e-3")],
        [("Three iterations", "3 iterations")],
        [('id = "nano"', 'id = "nano" # a comment')],
        [("learning_rate = 1e-4", "learning_rate = 0.0001")],
        [("[conditions.budget]", '[pilot]\nrule = "x"\n\n[conditions.budget]')],
        [
            ("[conditions.budget]", '[reference]\nmodel = "m"\nrecipe = "ppo"\nseeds = 5\n\n'
             "[reference.times.addition]\n\n[conditions.budget]")
        ],
    ],
)
def test_a_new_version_words_and_a_reference_are_welcome(published: Path, pairs: list) -> None:
    replaced(published / TRACK, *pairs)
    assert faults(published) == []


def test_a_version_in_other_words_is_the_same_version(published: Path) -> None:
    replaced(published / TRACK, ("version = 1", 'version = "1.0.0"'), ("1e-4", "1e-3"))
    assert any("optimization.learning_rate: 0.001" in found for found in faults(published))


@pytest.mark.parametrize("version", [f'"{"1" * 5000}"', "0x" + "f" * 5000, "true", "[1]"])
def test_a_version_that_no_track_has_is_no_later_one(published: Path, version: str) -> None:
    replaced(published / TRACK, ("version = 1", f"version = {version}"))
    assert faults(published)


def test_a_number_that_cannot_be_shown_is_refused_too(published: Path) -> None:
    replaced(published / TRACK, ("1e-4", "0x" + "f" * 5000))
    assert any("a number of very many digits" in found for found in faults(published))


def test_a_track_that_does_not_rank_is_a_draft(published: Path) -> None:
    replaced(published / TRACK, ("1e-4", "1e-3"))
    assert "version" in faults(published)[0]
    replaced(published / TRACK, ("1e-3", "1e-4"), ("ranked = true", "ranked = false"))
    assert "version" in faults(published)[0], "what was published does not become a draft"
    commit(published)
    git(published, "tag", "-f", "base")
    replaced(published / TRACK, ("1e-4", "1e-3"))
    assert faults(published) == []
    replaced(published / TRACK, ("ranked = false", "ranked = true"))
    assert faults(published) == []


def test_drafts_change_and_what_was_published_does_not(published: Path) -> None:
    replaced(published / TRACK.with_name("draft.toml"), ("1e-4", "1e-3"))
    replaced(published / "tasks/draft/frozen.toml", ("aaa", "bbb"))
    assert faults(published) == []
    replaced(published / FROZEN, ("aaa", "bbb"))
    assert "digest" in faults(published)[0] and "1.2.0" in faults(published)[0]
    replaced(published / FROZEN, ("1.2.0", "1.1.0"))
    assert "a version only rises" in faults(published)[0]
    replaced(published / FROZEN, ("1.1.0", "1.10.0"))
    assert faults(published) == []
    (published / FROZEN).unlink()
    (published / TRACK).unlink()
    assert [" removed, and " in found for found in faults(published)] == [True, True]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tasks/x", "submodule"),
        ("tasks/x", "link"),
        ("leaderboard/results/README.md", "link"),
        ("leaderboard/results/nano-1", "link"),
        ("leaderboard/retractions.jsonl", "link"),
        ("models/x.toml", "link"),
        ("models/x", "submodule"),
    ],
)
@pytest.mark.parametrize("added", [True, False], ids=["committed", "untracked"])
def test_links_and_submodules_are_refused(
    published: Path, path: str, kind: str, added: bool
) -> None:
    target = published / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        target.symlink_to("/etc/passwd")
    else:
        git(published.parent, "init", "-q", str(target))
        git(target, "commit", "--allow-empty", "-m", "inside")
    if added:
        git(published, "-c", "advice.addEmbeddedRepo=false", "add", path)
        git(published, "commit", "-m", "change")
    (found,) = check_links(changes_since("base", published))
    assert found.startswith(path) and kind in found


def test_a_link_in_code_is_shown_and_not_refused(published: Path) -> None:
    (published / "docs.md").symlink_to("README.md")
    changes = changes_since("base", published)
    assert check_links(changes) == [] and changes.unjudged == ("docs.md",)


@pytest.mark.parametrize(
    ("paths", "stray"),
    [
        (["models/my.toml", "docs/models.md", "docs/schemas/plan.schema.json"], None),
        (["models/my.toml", "models/my/model.safetensors", "models/my/LICENSE"], None),
        (["models/my.toml", "tests/policy/rendered.json"], None),
        (["models/my.toml", "tests/models/conftest.py"], "tests/models/conftest.py"),
        (["models/my.toml", "models/my/modeling.py"], "models/my/modeling.py"),
        (["models/my.toml", "models/other/model.safetensors"], "models/other/model.safetensors"),
        (["models/my.toml", "docs/models.md.html"], "docs/models.md.html"),
        (["models/my.toml", "docs/models.md/x.py"], "docs/models.md/x.py"),
        (["models/my.toml", "crlbench/proof/audit.py"], "crlbench/proof/audit.py"),
        (["tasks/a-b/task.py", "tests/tasks/test_a_b.py", "docs/tasks.md"], None),
        (["tasks/a-b/task.py", "tests/tasks/conftest.py"], "tests/tasks/conftest.py"),
        (["tasks/a-b/task.py", "tests/tasks/test_other.py"], "tests/tasks/test_other.py"),
        (["tasks/a-b/task.py", "crlbench/reward/numbers.py"], "crlbench/reward/numbers.py"),
        (["crlbench/proof/audit.py", "tests/models/conftest.py"], None),
    ],
)
def test_what_comes_along_is_data_or_refused(paths: list[str], stray: str | None) -> None:
    changes = Changes(Path("/"), "0" * 40, tuple(paths), (), ())
    found = check_strays(changes)
    assert (stray is None and found == []) or (len(found) == 1 and f"touches {stray}:" in found[0])
    code = [path for path in paths if path.endswith(".py")]
    assert set(code) <= set(changes.unjudged)


def test_code_is_not_called_right(repository: Path, home: Path, tmp_path: Path) -> None:
    (repository / "crlbench").mkdir()
    (repository / "crlbench/audit.py").write_text("")
    comment = tmp_path / "comment.md"
    code, printed = validated(repository, home, "--comment", comment)
    assert code == 0 and "keeps every rule" not in printed
    assert "not judged, for a person to read: crlbench/audit.py" in printed
    assert comment.read_text().startswith("## No rule judges this: it is code")


def test_foreign_files_below_the_results(repository: Path, home: Path, entry: Path) -> None:
    root = repository / RESULTS
    (root / "README.md").write_text("x")

    def said() -> tuple[int, str]:
        done = crlbench("-q", "validate", root, catalog=home)
        return done.returncode, done.stdout

    assert said()[0] == 0
    strange = [root / "x.html", root / entry.parts[-3] / "y", place(repository, entry) / "d" / "z"]
    for path in strange:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        code, printed = said()
        assert code == 3 and "not a place for a" in printed, printed
        path.unlink()
    strange[-1].parent.rmdir()
    (root / "README.md").unlink()
    (root / "README.md").symlink_to("/etc/passwd")
    assert said()[0] == 3


def test_an_entry_whose_results_stand_keeps_its_weights(
    repository: Path, home: Path, entry: Path
) -> None:
    slug = entry.parts[-2].partition("@")[0]
    source = Path(__file__).parents[2] / "models" / f"{slug}.toml"
    (repository / "models").mkdir()
    target = repository / "models" / source.name
    shutil.copy(source, target)
    commit(repository)
    git(repository, "tag", "-f", "base")
    text = target.read_text()
    digest = re.search(r'"([0-9a-f]{64})"', text)
    assert digest is not None
    target.write_text(text.replace(digest[1], "0" * 64))
    mine = home.parent / f"{home.name}-with-models"
    shutil.copytree(home, mine, dirs_exist_ok=True)
    (mine / "models").mkdir(exist_ok=True)
    shutil.copy(target, mine / "models")
    code, printed = validated(repository, mine)
    assert code == 3 and "subject." in printed, printed
