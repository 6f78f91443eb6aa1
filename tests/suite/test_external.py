"""External tasks: rows that are made on the user's machine, at the level of the command line."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.server
import json
import os
import shutil
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.suite.external import fetch_task, stored_sources
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet.examine import examine
from crlbench.suite.pairs import load_pairs
from tests.support.external_data import DATA, needs_data

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TRAIN = "".join(f'{{"q": "{n} + {n}?", "a": {2 * n}}}\n' for n in range(40)).encode()
TEST = "".join(f'{{"q": "{n} + {n}?", "a": {2 * n}}}\n' for n in range(300, 330)).encode()
CODE = '''"""Doubles, from two files that somebody published."""

import json

from crlbench.reward.published import Problem, build_published
from crlbench.reward.verify import numeric

CARD = {{
    "name": "doubles",
    "version": "0.1.0",
    "tags": ["arithmetic"],
    "summary": "Add a number to itself.",
    "max_completion_bytes": 16,
    "licence": "CC0-1.0",
    "canary": "none",
    "contact": "nobody",
}}
SOURCE = {source!r}
TEMPLATES = ("{{}}", "Sum: {{}}", "Say {{}}", "Now {{}}", "{{}} Please", "{{}} Answer as <>.")


def build(split, rng, files):
    def read(name):
        rows = map(json.loads, files[name].decode().splitlines())
        return [Problem(r["q"], str(r["a"]), 1 + i % 2) for i, r in enumerate(rows)]

    test = read("test.jsonl")
    problems = {{"train": read("train.jsonl"), "id": test[:20], "hard": test[20:]}}
    return build_published(split, rng, problems, tell)


def tell(problem, template):
    content = TEMPLATES[template].format(problem.text)
    answer = f"<{{problem.answer}}>" if template == 5 else problem.answer
    return [{{"role": "user", "content": content}}], answer


verify = numeric


def audit(text, answer):
    return float(text.strip() == answer)
'''


def source(origin: str = "https://example.invalid/doubles") -> dict:
    def facts(name: str, data: bytes) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        return {"sha256": digest, "bytes": len(data), "path": f"data/{name}.gz"}

    files = {"train.jsonl": facts("train.jsonl", TRAIN), "test.jsonl": facts("test.jsonl", TEST)}
    return {"origin": origin, "commit": COMMIT, "licence": "CC0-1.0", "files": files}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own CRLBENCH_HOME, which the command line also exports."""
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CRLBENCH_OFFLINE", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    return tmp_path / "home"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder that holds the dataset, one file compressed and one not."""
    return publish(tmp_path / "published")


def publish(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(TRAIN))
    (folder / "test.jsonl").write_bytes(TEST)
    return folder


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with the frozen task, made once."""
    return make_catalog(tmp_path_factory.mktemp("doubles"), source())


@pytest.fixture
def catalog(tmp_path: Path, frozen: Path) -> Path:
    """A catalogue with the frozen task; its rows are not on this machine."""
    return shutil.copytree(frozen, tmp_path / "catalog")


def make_catalog(place: Path, declared: dict, more: str = "") -> Path:
    folder = place / "catalog" / "tasks" / "doubles"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(CODE.format(source=declared) + more)
    (folder / "README.md").write_text("# Doubles\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRLBENCH_HOME", str(place / "home of the freezer"))
        freeze(folder, source_dir=publish(place / "published to freeze"))
    return place / "catalog"


def run(*arguments: str) -> int:
    return cli.main([*arguments, "--quiet"])


def fetch(catalog: Path, *more: str) -> int:
    return run("fetch", "--task", "doubles", "--catalog", str(catalog), *more)


def test_a_fresh_task_can_be_listed_and_shown_without_its_rows(
    catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", "tasks", "--catalog", str(catalog), "--json") == 0
    rows = {row["name"]: row.get("rows") for row in json.loads(capsys.readouterr().out)}
    assert rows["doubles"] == "to fetch" and rows["addition"] == "bundled"
    assert run("show", "task", "doubles", "--catalog", str(catalog)) == 0
    shown = capsys.readouterr().out
    assert f'commit = "{COMMIT}"' in shown and "[splits.train]" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "task", "doubles", "--prompts", "1"),
        ("evaluate", "--model", "tiny-llama", "--tasks", "doubles", "--smoke", "--out", "{tmp}"),
    ],
    ids=["show prompts", "evaluate"],
)
def test_what_needs_rows_names_the_command_that_brings_them(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    wanted = [one.format(tmp=tmp_path / "runs") for one in arguments]
    assert run(*wanted, "--catalog", str(catalog)) == EnvironmentUnfit.exit_code == 6
    message = capsys.readouterr().err
    assert "crlbench fetch --task doubles [--from DIR]" in message
    assert not (tmp_path / "runs").exists()


def test_fetching_brings_the_frozen_rows(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    assert capsys.readouterr().out.strip() == str(home / "tasks" / "doubles")
    task = Catalog([catalog]).load_task("doubles")
    assert {s: len(task.rows(s)) for s in task.card.splits} == {
        "train": 40,
        "train_fixed": 40,
        "id": 20,
        "hard": 10,
        "format": 100,
    }
    assert task.verify("680", "680") == 1.0
    assert run("list", "tasks", "--catalog", str(catalog), "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert next(row["rows"] for row in listed if row["name"] == "doubles") == "fetched"
    assert sorted(p.name for p in (home / "tasks").iterdir() if p.name != ".doubles.lock") == [
        "doubles"
    ]


def test_files_have_the_names_of_their_repository_too_and_may_be_in_a_folder(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two files of one name: the questions, and in a folder beside them the answers."""
    declared = source()
    facts = declared["files"]
    declared["files"] = {
        "test.jsonl": {**facts["train.jsonl"], "path": "data/test.json"},
        "answers/test.jsonl": {**facts["test.jsonl"], "path": "data/answers/test.json"},
    }
    place = tmp_path / "catalog" / "tasks" / "doubles"
    place.mkdir(parents=True)
    code = CODE.format(source=declared)
    code = code.replace('read("test.jsonl")', 'read("answers/test.jsonl")')
    place.joinpath("task.py").write_text(code.replace('read("train.jsonl")', 'read("test.jsonl")'))
    clone = tmp_path / "clone" / "data"
    (clone / "answers").mkdir(parents=True)
    (clone / "test.json").write_bytes(TRAIN)
    (clone / "answers" / "test.json").write_bytes(TEST)
    freeze(place, source_dir=clone)
    shutil.rmtree(home / "tasks")
    assert fetch(tmp_path / "catalog", "--from", str(clone.parent)) == 0
    kept = stored_sources(Task(place, home).card.source, "doubles")
    assert kept == {"test.jsonl": TRAIN, "answers/test.jsonl": TEST}
    assert fetch(tmp_path / "catalog", "--from", str(tmp_path)) == 0  # whole, so nothing is read
    assert "already in" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../x.jsonl", "a/b/x.jsonl", "/x.jsonl", "a/.x", "x.jsonl.gz"])
def test_a_source_is_a_file_in_one_folder_at_most(tmp_path: Path, name: str) -> None:
    declared = source()
    declared["files"][name] = declared["files"]["test.jsonl"]
    with pytest.raises(CrlbenchError, match="is not a plain file name without .gz"):
        make_catalog(tmp_path, declared)


def test_rows_of_an_archived_version_stand_beside_those_of_the_current_one(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--catalog", str(catalog))
    code = catalog / "tasks" / "doubles" / "task.py"
    assert run("archive", "task", "doubles", *given) == 2  # a draft
    code.write_text(code.read_text().replace('"version": "0.1.0"', '"version": "1.0.0"'))
    assert run("freeze", "doubles", "--from", str(published), *given) == 0
    assert run("archive", "task", "doubles", *given) == 0
    code.write_text(code.read_text().replace("Sum: {}", "Total: {}"))
    assert run("freeze", "doubles", "--bump", "--from", str(published), *given) == 0
    capsys.readouterr()

    assert run("show", "task", "doubles@1.0.0", "--prompts", "1", *given) == 6
    assert "crlbench fetch --task doubles@1.0.0 [--from DIR]" in capsys.readouterr().err
    assert run("fetch", "--task", "doubles@1.0.0", "--offline", *given) == 0  # the same dataset
    assert capsys.readouterr().out.strip() == str(home / "tasks" / "doubles@1.0.0")
    known = Catalog([catalog])
    words = {
        spec: {row["messages"][0]["content"].partition(":")[0]
               for split in ("train", "id", "format") for row in known.load_task(spec).rows(split)}
        for spec in ("doubles", "doubles@1.0.0", "doubles@2.0.0")
    }  # fmt: skip
    assert "Sum" in words["doubles@1.0.0"] and "Total" not in words["doubles@1.0.0"]
    assert "Total" in words["doubles"] == words["doubles@2.0.0"] and "Sum" not in words["doubles"]
    assert run("archive", "--check", *given) == 0
    assert run("freeze", "--check", "doubles", "doubles@1.0.0", *given) == 0
    capsys.readouterr()
    assert run("list", "tasks", "--json", *given) == 0
    rows = {row["name"]: row.get("rows") for row in json.loads(capsys.readouterr().out)}
    assert rows["doubles"] == rows["doubles@1.0.0"] == "fetched"


def test_no_row_stands_in_the_catalogue(catalog: Path, published: Path) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    names = sorted(path.name for path in (catalog / "tasks" / "doubles").iterdir())
    assert names == ["README.md", "frozen.toml", "task.py"]


def test_freezing_again_and_checking_needs_only_what_was_fetched(
    catalog: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = (catalog / "tasks" / "doubles" / "frozen.toml").read_bytes()
    check = ("freeze", "doubles", "--check", "--catalog", str(catalog))
    assert run(*check) == 6
    assert "crlbench fetch --task doubles" in capsys.readouterr().err
    assert fetch(catalog, "--from", str(published)) == 0
    shutil.rmtree(published)
    assert run(*check) == 0
    assert run("freeze", "doubles", "--catalog", str(catalog)) == 0
    assert (catalog / "tasks" / "doubles" / "frozen.toml").read_bytes() == frozen


def test_a_second_fetch_changes_nothing_and_needs_no_source(
    catalog: Path, published: Path, home: Path
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    before = {p: p.stat().st_mtime_ns for p in home.rglob("*.jsonl")}
    assert fetch(catalog, "--offline") == 0
    assert {p: p.stat().st_mtime_ns for p in home.rglob("*.jsonl")} == before


@pytest.mark.parametrize("name", ["doubles", "other_set"])
def test_a_dataset_is_found_in_a_sub_folder(
    catalog: Path, published: Path, tmp_path: Path, name: str
) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "another").mkdir(parents=True)
    (shelf / "another" / "test.jsonl").write_bytes(b'{"q": "something else"}\n')
    shutil.copytree(published, shelf / name)
    assert fetch(catalog, "--from", str(shelf)) == 0


def test_a_damaged_file_at_home_is_named_and_restored(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    damaged = home / "tasks" / "doubles" / "id.jsonl"
    right = damaged.read_bytes()
    damaged.write_bytes(right.replace(b"600", b"601"))
    show = ("show", "task", "doubles", "--prompts", "1", "--catalog", str(catalog))
    assert run(*show) == 3
    message = capsys.readouterr().err
    assert str(damaged) in message and "Restore it with: crlbench fetch --task doubles" in message
    assert "git" not in message
    assert fetch(catalog, "--offline") == 0, "the sources of the first fetch are still there"
    assert damaged.read_bytes() == right

    damaged.unlink()
    assert run(*show) == 3
    assert f"{damaged}: the file is missing" in capsys.readouterr().err
    assert fetch(catalog, "--offline") == 0


def test_damaged_sources_at_home_are_named(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    stored = home / "tasks" / "doubles" / "sources" / "train.jsonl.gz"
    stored.write_bytes(gzip.compress(TRAIN + b"\n"))
    assert run("freeze", "doubles", "--check", "--catalog", str(catalog)) == 3
    message = capsys.readouterr().err
    assert f"{stored}: was changed" in message and "crlbench fetch --task doubles" in message
    assert fetch(catalog, "--from", str(published)) == 0
    assert run("freeze", "doubles", "--check", "--catalog", str(catalog)) == 0


def test_other_data_are_refused(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "test.jsonl").write_bytes(TEST.replace(b"600", b"601"))
    assert fetch(catalog, "--from", str(published)) == 3
    message = capsys.readouterr().err
    found = hashlib.sha256((published / "test.jsonl").read_bytes()).hexdigest()
    assert str(published / "test.jsonl") in message
    assert found in message and source()["files"]["test.jsonl"]["sha256"] in message
    assert not (home / "tasks" / "doubles").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"no gzip at all", "is not a whole gzip file"), (b"", "is not a whole gzip file")],
    ids=["text", "empty"],
)
def test_a_broken_archive_is_named(
    catalog: Path, published: Path, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    (published / "train.jsonl.gz").write_bytes(data)
    code = fetch(catalog, "--from", str(published))
    message = capsys.readouterr().err
    assert code == 3 and "train.jsonl.gz" in message
    assert said in message or "has the sha256" in message


def test_a_cut_off_archive_is_named(
    catalog: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (published / "train.jsonl.gz").read_bytes()
    (published / "train.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert fetch(catalog, "--from", str(published)) == 3
    assert "is not a whole gzip file" in capsys.readouterr().err


def test_an_archive_that_unpacks_without_end_is_stopped(
    catalog: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "train.jsonl.gz").write_bytes(gzip.compress(b"0" * 50_000_000))
    assert fetch(catalog, "--from", str(published)) == 3
    assert f"({len(TRAIN) + 1} bytes)" in capsys.readouterr().err


def test_a_missing_file_is_named_with_what_is_there(
    catalog: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "test.jsonl").rename(published / "tests.jsonl")
    assert fetch(catalog, "--from", str(published)) == 2
    message = capsys.readouterr().err
    assert "holds no test.jsonl or test.jsonl.gz" in message and "tests.jsonl" in message


def test_wrong_usage_is_named(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(catalog, "--from", str(tmp_path / "nowhere")) == 2
    assert "this folder does not exist" in capsys.readouterr().err
    assert run("fetch") == 2
    assert "nothing to fetch" in capsys.readouterr().err
    assert run("fetch", "--task", "addition") == 2
    assert "there is nothing to fetch" in capsys.readouterr().err
    assert run("fetch", "--task", "double", "--catalog", str(catalog)) == 2
    assert "doubles" in capsys.readouterr().err


def test_offline_refuses_and_says_what_to_do(
    catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(catalog, "--offline") == 6
    message = capsys.readouterr().err
    assert f"https://example.invalid/doubles/raw/{COMMIT}/data/train.jsonl.gz" in message
    assert "crlbench fetch --task doubles --from DIR" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_is_named(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    home.chmod(0o500)
    assert fetch(catalog, "--from", str(published)) == 6
    assert str(home) in capsys.readouterr().err


def test_a_home_that_is_a_file_is_named(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.write_text("in the way")
    assert fetch(catalog, "--from", str(published)) == 6
    message = capsys.readouterr().err
    assert str(home) in message and "CRLBENCH_HOME" in message


def test_changed_code_makes_other_rows_and_is_refused(
    catalog: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = catalog / "tasks" / "doubles" / "task.py"
    code.write_text(code.read_text().replace("Sum: {}", "The sum: {}"))
    assert fetch(catalog, "--from", str(published)) == 3
    message = capsys.readouterr().err
    assert "format" in message and str(code) in message
    assert not (home / "tasks" / "doubles").exists()


def test_rows_of_another_version_are_replaced(catalog: Path, published: Path) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    code = catalog / "tasks" / "doubles" / "task.py"
    code.write_text(code.read_text().replace("Sum: {}", "The sum: {}"))
    other_home = published.parent / "other-home"
    again = ("freeze", "doubles", "--catalog", str(catalog), "--from", str(published))
    assert run(*again, "--home", str(other_home)) == 0
    assert fetch(catalog, "--home", str(published.parent / "home"), "--offline") == 0
    task = Task(catalog / "tasks" / "doubles", published.parent / "home")
    assert any("The sum" in row["messages"][0]["content"] for row in task.rows("format"))


PAIRS = """

def pairs(split, rng, files):
    def pair(n):
        prompt = [{"role": "user", "content": f"{split} {n}"}]
        answers = {"chosen": "1", "rejected": "2"}
        return {"messages": prompt, **answers, "level": 1, "key": f"{split} {n}", "meta": {}}

    return [pair(n) for n in range(3)]
"""


def test_damaged_and_missing_pairs_are_named_and_fetched_again(
    tmp_path: Path, published: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = make_catalog(tmp_path, source(), PAIRS)
    assert fetch(catalog, "--from", str(published)) == 0
    path = home / "tasks" / "doubles" / "pairs_train.jsonl"
    right = path.read_bytes()
    for spoil in (path.unlink, lambda: path.write_bytes(right + right)):
        spoil()
        with pytest.raises(CrlbenchError, match="crlbench fetch --task doubles"):
            load_pairs(Catalog([catalog]).open_task("doubles"), "train")
        report = examine(catalog / "tasks" / "doubles", "quick")
        assert report.broken and any("pairs" in line for line in report.lines())
        assert fetch(catalog, "--offline") == 0
        assert path.read_bytes() == right


def test_a_rename_that_fails_leaves_what_was_there(
    catalog: Path,
    published: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    folder = home / "tasks" / "doubles"
    (folder / "id.jsonl").write_bytes(b"")
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.name == ".doubles.partial":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        assert fetch(catalog, "--offline") == 6
    assert "Permission denied" in capsys.readouterr().err
    assert (folder / "id.jsonl").read_bytes() == b"", "the old folder is back"
    assert fetch(catalog, "--offline") == 0, "with its sources"
    assert sorted(p.name for p in folder.parent.iterdir()) == ["doubles"]


def test_what_a_kill_between_two_renames_left_is_put_back(
    catalog: Path, published: Path, home: Path
) -> None:
    assert fetch(catalog, "--from", str(published)) == 0
    folder = home / "tasks" / "doubles"
    folder.rename(folder.with_name(".doubles.old"))
    assert fetch(catalog, "--offline") == 0
    assert sorted(p.name for p in folder.parent.iterdir()) == ["doubles"]


@pytest.mark.slow
def test_freezing_waits_for_a_fetch(catalog: Path, published: Path, home: Path) -> None:
    (home / "tasks").mkdir(parents=True)
    done = threading.Event()

    def work() -> None:
        freeze(catalog / "tasks" / "doubles", source_dir=published)
        done.set()

    with FileLock(home / "tasks" / ".doubles.lock"):
        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(2)
        assert not (home / "tasks" / "doubles").exists()
    thread.join(60)
    assert done.is_set() and (home / "tasks" / "doubles" / "id.jsonl").is_file()


def test_a_damaged_copy_does_not_hide_a_right_one(catalog: Path, published: Path) -> None:
    (published / "doubles").mkdir()
    shutil.move(published / "train.jsonl.gz", published / "doubles")
    (published / "train.jsonl.gz").write_bytes(b"no gzip at all")
    assert fetch(catalog, "--from", str(published)) == 0


def test_an_interrupted_fetch_leaves_nothing(
    catalog: Path, published: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("crlbench.suite.external.gzip.compress", stop)
        assert fetch(catalog, "--from", str(published)) == 130
    assert [p.name for p in (home / "tasks").iterdir() if not p.name.endswith(".lock")] == []
    assert fetch(catalog, "--from", str(published)) == 0


def test_two_fetches_at_once_wait_for_one_another(
    catalog: Path, published: Path, home: Path
) -> None:
    (home / "tasks").mkdir(parents=True)
    said: list[str] = []
    waiting = threading.Event()

    def echo(line: str) -> None:
        said.append(line)
        waiting.set()

    def work() -> None:
        fetch_task("doubles", home, Catalog([catalog]), echo, source_dir=published)

    with FileLock(home / "tasks" / ".doubles.lock"):
        thread = threading.Thread(target=work)
        thread.start()
        assert waiting.wait(30)
        assert "another process is fetching it" in said[0]
    thread.join(60)
    assert (home / "tasks" / "doubles" / "id.jsonl").is_file()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A repository's raw view, without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address on this machine, and the folder of the pinned commit's files behind it."""
    folder = tmp_path / "web" / "raw" / COMMIT / "data"
    folder.mkdir(parents=True)

    def handler(*given: object) -> Quiet:
        return Quiet(*given, directory=str(tmp_path / "web"))  # type: ignore[arg-type]

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}", folder
        running.shutdown()
        thread.join()


def test_the_files_of_the_pinned_commit_are_downloaded(
    tmp_path: Path,
    home: Path,
    server: tuple[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    origin, folder = server
    catalog = make_catalog(tmp_path, source(origin))
    assert fetch(catalog) == 6
    message = capsys.readouterr().err
    assert (
        f"{origin}/raw/{COMMIT}/data/train.jsonl.gz cannot be downloaded: HTTP Error 404" in message
    )

    (folder / "train.jsonl.gz").write_bytes(gzip.compress(TRAIN))
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(TEST + b" "))
    assert fetch(catalog) == 3
    assert "test.jsonl.gz has the sha256" in capsys.readouterr().err
    assert not (home / "tasks" / "doubles").exists()

    (folder / "test.jsonl.gz").write_bytes(gzip.compress(TEST))
    assert fetch(catalog) == 0
    task = Catalog([catalog]).load_task("doubles")
    assert task.card.source is not None
    assert stored_sources(task.card.source, "doubles")["test.jsonl"] == TEST


def test_an_origin_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = make_catalog(tmp_path, source("http://127.0.0.1:9"))
    assert fetch(catalog) == 6
    message = capsys.readouterr().err
    assert "http://127.0.0.1:9/raw/" in message and "--from DIR" in message


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nabc"],
    ids=["no http", "cut off"],
)
def test_an_origin_that_talks_nonsense_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    class Talk(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Talk) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        catalog = make_catalog(tmp_path, source(f"http://127.0.0.1:{running.server_address[1]}"))
        code = fetch(catalog)
        running.shutdown()
        thread.join()
    message = capsys.readouterr().err
    assert code == 6 and "cannot be downloaded" in message and "--from DIR" in message


def test_a_broken_connection_is_no_full_disk(
    catalog: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ssl.SSLError(1, "record layer failure")

    monkeypatch.setattr("crlbench.suite.sources.urllib.request.urlopen", broken)
    assert fetch(catalog) == 6
    message = capsys.readouterr().err
    assert "record layer failure" in message and "--from DIR" in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"commit": "main"}, "a full commit of 40 hexadecimal digits"),
        ({"origin": "ftp://somewhere"}, "an http or https address"),
        ({"files": {}}, "files"),
        ({"files": {"../x": source()["files"]["test.jsonl"]}}, "is not a plain file name"),
        ({"colour": "red"}, "field colour: is unknown"),
    ],
    ids=["commit", "origin", "no files", "file name", "unknown field"],
)
def test_a_source_that_pins_nothing_is_refused(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str], change: dict, said: str
) -> None:
    folder = tmp_path / "tasks" / "doubles"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(CODE.format(source=source() | change))
    assert run("freeze", str(folder), "--from", str(published)) == 3
    message = capsys.readouterr().err
    assert said in message and "SOURCE" in message


def test_a_task_without_its_id_split_is_refused(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tasks" / "doubles"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(CODE.format(source=source()) + '\nSPLITS = ("train",)\n')
    assert run("freeze", str(folder), "--from", str(published)) == 3
    assert "with 'id' among them" in capsys.readouterr().err


def test_the_page_of_datasets_lists_every_external_task() -> None:
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    catalog = Catalog()
    cards = [
        catalog.task_card(name)
        for name, entry in catalog.entries("task").items()
        if (entry.path / "frozen.toml").is_file()
    ]
    sources = {card.name: card.source for card in cards if card.source is not None}
    assert {"gsm8k", "svamp", "gsm-hard", "ifeval"} <= {*sources}
    for name, given in sources.items():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert f"`{given.commit[:8]}`" in row, name
        assert given.origin.removeprefix("https://github.com/") in row, name


@pytest.mark.slow
@needs_data
def test_the_real_gsm8k_is_fetched_from_a_folder_of_datasets(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fetch", "--task", "gsm8k", "--from", str(DATA)) == 0
    assert capsys.readouterr().out.strip() == str(home / "tasks" / "gsm8k")
    task = Catalog().load_task("gsm8k")
    assert {s: len(task.rows(s)) for s in task.card.splits} == {
        "train": 6724,
        "train_fixed": 256,
        "id": 1169,
        "hard": 150,
        "format": 320,
    }


@pytest.mark.network
@pytest.mark.parametrize("name", ["gsm8k", "svamp", "gsm-hard", "ifeval"])
def test_the_pinned_commits_are_still_to_be_had(name: str, home: Path) -> None:
    assert run("fetch", "--task", name) == 0
    Catalog().load_task(name)
