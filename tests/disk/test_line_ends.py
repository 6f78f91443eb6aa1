"""Files under digests keep their bytes on every checkout, and one that was rewritten says so."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task, checked_code
from crlbench.catalog.retain_panel import load_panel
from crlbench.contract.records import FileDigest
from crlbench.contract.retractions import read_retractions
from crlbench.contract.stored import check_file
from crlbench.contract.task_card import read_task_card
from crlbench.disk import line_ends
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.run.ledger import Ledger, read
from crlbench.suite import retain_panel
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet.examine import _digest_problems, _file_problems
from crlbench.suite.pairs import load_pairs
from tests.support.bundled import plain_copy
from tests.support.entries import TASKS, plain

ROOT = Path(__file__).parents[2]
CHECKOUTS = (
    "core.autocrlf=true",
    pytest.param("core.autocrlf=input", marks=pytest.mark.slow),
    pytest.param("core.eol=crlf", marks=pytest.mark.slow),
)
DIGESTED = ("tasks/addition/hard.jsonl", "tasks/addition/task.py",
            "tasks/judged/frozen.toml",
            "models/tiny-llama.toml", "models/tiny/tiny-llama/config.json",
            "leaderboard/tracks/mini.toml", "leaderboard/retain/text.txt",
            "leaderboard/retractions.jsonl", "crlbench/reward/verify.py",
            "crlbench/algo/recipes/grpo.py", "crlbench/seeding.py")  # fmt: skip


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def marked(data: bytes) -> bytes:
    return line_ends.BOM + data


def both(data: bytes) -> bytes:
    return marked(crlf(data))


REWRITTEN = pytest.mark.parametrize("rewrite", [crlf, marked, both])


def rewrite_file(path: Path, rewrite: Callable[[bytes], bytes]) -> None:
    path.write_bytes(rewrite(path.read_bytes()))


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    return done.stdout


def refused(check: Callable[[], object]) -> str:
    """The message of a refusal that says that the text is the right one."""
    with pytest.raises(CrlbenchError) as refusal:
        check()
    message = str(refusal.value)
    assert line_ends.CAUSE in message, message
    assert "--bump" not in message and "git checkout" not in message
    return message


def do_as_told(message: str) -> None:
    """Run the command that a message gives for its one file."""
    command = re.search(r"Restore it with: (.*?)(?: - or all files|\.(?: |$|\n))", message + " ")
    assert command, message
    subprocess.run(["sh", "-euc", command.group(1)], check=True)


@pytest.fixture(scope="module")
def checkout() -> Path:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no git checkout")
    return ROOT


@pytest.mark.slow
@pytest.mark.parametrize("setting", CHECKOUTS)
def test_a_checkout_has_the_committed_bytes(setting: str, checkout: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(checkout, "-c", setting, "clone", "-q", "--shared", str(checkout), str(clone))
    git(clone, "config", *setting.split("="))
    ends = {line.split()[1] for line in git(clone, "ls-files", "--eol").splitlines()}
    assert ends <= {"w/lf", "w/-text", "w/none"}
    assert Task(clone / "tasks" / "addition").code
    # What an editor makes of a file without a digest is no change.
    rewrite_file(clone / "README.md", crlf)
    git(clone, "add", "README.md")
    assert not git(clone, "status", "--short")


def test_files_under_digests_are_never_rewritten(checkout: Path) -> None:
    results = [path.relative_to(ROOT) for path in (ROOT / "leaderboard/results").rglob("*.*")]
    files = [*DIGESTED, *map(str, results)]
    shown = git(checkout, "check-attr", "text", "--", *files).splitlines()
    assert len(shown) == len(files) and all(line.endswith(": text: unset") for line in shown)


def test_packed_files_are_binary(checkout: Path) -> None:
    files = git(checkout, "ls-files", "*.zst", "*.safetensors", "*.gz", "*.png").splitlines()
    shown = git(checkout, "check-attr", "diff", "--", *files).splitlines()
    assert files and all(line.endswith(": diff: unset") for line in shown)


@REWRITTEN
@pytest.mark.parametrize("name", ["id.jsonl", "hard.jsonl"])
def test_rows(name: str, rewrite: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = shutil.copytree(TASKS / "addition", tmp_path / "two words" / "addition")
    digest = Task(folder).digest
    rewrite_file(plain(folder / name), rewrite)
    message = refused(lambda: Task(folder))
    assert str(folder / name) in message
    assert ("CRLF" in message, "byte order mark" in message) == (
        rewrite is not marked, rewrite is not crlf,
    )  # fmt: skip
    found = "".join(_file_problems(read_task_card(folder / "frozen.toml"), folder))
    assert (line_ends.CAUSE if rewrite is crlf else "byte order mark") in found
    assert rewrite is not crlf or line_ends.CAUSE in refused(lambda: freeze(folder, check=True))
    do_as_told(message)
    assert Task(folder).digest == digest


def test_other_changes_are_told_as_before(tmp_path: Path) -> None:
    folder = shutil.copytree(TASKS / "addition", tmp_path / "addition")
    text = plain(folder / "id.jsonl").read_bytes()
    for changed in (text[:-1], crlf(text).replace(b"3", b"4", 1), text + b"\r\n", text + b"\r"):
        (folder / "id.jsonl").write_bytes(changed)
        with pytest.raises(ValidationError, match="git checkout -- .*--bump") as refusal:
            Task(folder)
        assert line_ends.CAUSE not in str(refusal.value)


def test_code(tmp_path: Path) -> None:
    folder = shutil.copytree(TASKS / "addition", tmp_path / "addition")
    task = Task(folder)
    rewrite_file(folder / "task.py", crlf)
    assert checked_code(task)  # line ends never counted in code
    rewrite_file(folder / "task.py", marked)
    message = refused(lambda: checked_code(task))
    assert line_ends.CAUSE in "".join(_digest_problems(task.card, folder))
    do_as_told(message)
    assert checked_code(task)
    rewrite_file(folder / "task.py", lambda code: marked(code + b"\nX = 1\n"))
    with pytest.raises(ValidationError, match="--bump"):
        checked_code(task)


@REWRITTEN
def test_pairs(rewrite: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = shutil.copytree(TASKS / "judged", tmp_path / "tasks" / "judged")
    task = Catalog([tmp_path]).load_task("judged")
    rewrite_file(plain(folder / "pairs_id.jsonl"), rewrite)
    do_as_told(refused(lambda: load_pairs(task, "id")))
    assert load_pairs(task, "id")


@REWRITTEN
@pytest.mark.parametrize("name", ["text.txt", "qa.jsonl", "copy.jsonl"])
def test_the_retain_panel(name: str, rewrite: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "leaderboard" / "retain", tmp_path / "retain")
    rewrite_file(folder / name, rewrite)
    message = refused(lambda: load_panel(folder))
    if name == "copy.jsonl":
        refused(lambda: retain_panel.freeze(folder, check=True))
    do_as_told(message)
    assert load_panel(folder)
    retain_panel.freeze(folder, check=True)


@REWRITTEN
def test_a_dataset_that_was_saved_again(
    rewrite: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.suite.test_external import TRAIN, make_catalog, publish, source

    catalog, folder = make_catalog(tmp_path, source()), publish(tmp_path / "published")
    (folder / "train.jsonl.gz").unlink()
    (folder / "train.jsonl").write_bytes(rewrite(TRAIN))
    fetch = ("fetch", "--task", "doubles", "--catalog", str(catalog), "--from", str(folder),
             "--home", str(tmp_path / "home"))  # fmt: skip
    assert cli.main(fetch) == 3
    message = capsys.readouterr().err
    assert line_ends.CAUSE in message
    do_as_told(message)
    assert cli.main(fetch) == 0


@REWRITTEN
def test_a_file_of_a_run(rewrite: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path, text = tmp_path / "curve.csv", b"x,score\n0,0.5\n"
    stated = FileDigest(sha256=sha256_bytes(text), bytes=len(text))
    path.write_bytes(rewrite(text))
    do_as_told(refused(lambda: check_file(path, stated)))
    check_file(path, stated)


def test_a_ledger_and_the_retractions_behind_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append("start", "a/real/seed-00", seconds=0)
    rewrite_file(path, crlf)
    assert len(read(path)) == 1  # its lines are chained by what they say
    rewrite_file(path, marked)
    with pytest.raises(ValidationError, match="tail -c") as refusal:
        read(path)
    do_as_told(str(refusal.value))
    assert len(read(path)) == 1

    from crlbench.disk.hashing import canonical_json
    from crlbench.disk.linked_lines import linked

    line = linked([], {"entry": "a/b/c", "records": "all", "date": "2026-11-22", "reason": "r",
                       "by": "@a"})  # fmt: skip
    log = tmp_path / "retractions.jsonl"
    log.write_bytes(marked(canonical_json(line).encode() + b"\n"))
    with pytest.raises(ValidationError, match="tail -c") as refusal:
        read_retractions(tmp_path)
    do_as_told(str(refusal.value))
    assert len(read_retractions(tmp_path)) == 1


@pytest.mark.parametrize("name", ["models/tiny-llama.toml", "leaderboard/tracks/mini.toml"])
def test_toml_and_json_behind_a_mark(name: str, tmp_path: Path) -> None:
    from crlbench.disk.reading import Malformed, json_value, toml_table

    text = (ROOT / name).read_bytes()
    assert toml_table(crlf(text)) == toml_table(text)
    with pytest.raises(Malformed, match="byte order mark"):
        toml_table(marked(text))
    with pytest.raises(Malformed, match="byte order mark"):
        json_value(marked(b"{}"))


def test_an_old_checkout_is_restored_whole(tmp_path: Path) -> None:
    """A clone from before .gitattributes, whose git wrote CRLF everywhere."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    shutil.copytree(TASKS / "addition", origin / "tasks" / "addition")
    subprocess.run(["git", "init", "-q", str(origin)], check=True)
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    git(tmp_path, "-c", "core.autocrlf=true", "clone", "-q", str(origin), str(clone))
    git(clone, "config", "core.autocrlf", "true")
    folder = clone / "tasks" / "addition"
    message = refused(lambda: Task(folder))
    whole = re.search(r"are committed, with: (.*)\.$", message)
    assert whole and shlex.quote(str(clone)) in whole.group(1)
    subprocess.run(["sh", "-euc", whole.group(1)], check=True)
    assert Task(folder) and not git(clone, "status", "--short")


@REWRITTEN
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_file_beside_the_weights_of_an_entry(
    name: str, rewrite: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    from crlbench.contract.model_card import check_pinned

    card = Catalog().load_model("tiny-llama")
    folder = plain_copy("tiny-llama", tmp_path / "tiny-llama")
    rewrite_file(folder / name, rewrite)
    message = refused(lambda: check_pinned(card, folder))
    assert f"{folder / name} was changed" in message and "another model" not in message
    do_as_told(message)
    check_pinned(card, folder)
    rewrite_file(folder / name, lambda data: crlf(data) + b" ")
    with pytest.raises(ValidationError, match="this is another model"):
        check_pinned(card, folder)


@pytest.mark.parametrize("name", ["plan.json", "ledger.jsonl", "submission.json"])
def test_a_published_result(name: str, tmp_path: Path) -> None:
    from crlbench.contribute.results.packing import check_canonical

    stored = next((ROOT / "leaderboard/results").glob("mini-*/*/*"))
    folder = shutil.copytree(stored, tmp_path / "entry")
    rewrite_file(folder / name, crlf)
    (fault,) = check_canonical(folder)
    assert fault.startswith(f"{name}: not in the bytes") and line_ends.CAUSE in fault
    do_as_told(fault)
    assert not list(check_canonical(folder))
    rewrite_file(folder / name, lambda data: data + b"\r\n")
    (fault,) = check_canonical(folder)
    assert line_ends.CAUSE not in fault
