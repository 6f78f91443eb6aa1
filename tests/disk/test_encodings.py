"""Every read and write of text names its encoding: in an ASCII locale the default is ASCII."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bundled import plain_copy
from tests.support.marks import first

ROOT = Path(__file__).parents[2]
DIGESTED = {
    "crlbench/reward/sandbox_kernel.py": "write_text of user ids",
    "crlbench/reward/sandbox_server.py": "open of a file of numbers in /proc",
}
"""Sources under the digests of frozen tasks, which stay as they are: what they read is ASCII."""
PLAIN = {"open", "fdopen", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile"}
RUNS = {"run", "Popen", "check_output", "check_call", "call"}
BINARY_OWNERS = {"os", "tarfile", "zipfile", "Image", "webbrowser", "wheel", "tar", "archive"}
BINARY_OWNERS |= {"opener"}
"""Whose ``open`` opens no text."""


def sources() -> list[Path]:
    folders = ("crlbench", "tasks", "models", "benchmarks", ".ci", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in files if path.suffix == ".py" or _is_script(path))


def _is_script(path: Path) -> bool:
    return path.parent.name == ".ci" and b"python" in path.read_bytes().split(b"\n")[0]


def offences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls that read or write text in the encoding of the locale."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, owner = _called(node.func)
        words = {word.arg: word.value for word in node.keywords}
        if "encoding" in words or None in words:
            continue
        given = [*node.args[:2], words.get("mode")]
        texts = [one.value for one in given if isinstance(one, ast.Constant)]
        texts = [text for text in texts if isinstance(text, str)]
        if name == "read_text" and not node.args or name == "write_text" and len(node.args) < 2:
            yield node.lineno, name
        elif name == "open" and owner == "gzip" or name == "fdopen":
            if any("t" in text for text in texts[-1:]) or name == "fdopen" and _text(texts):
                yield node.lineno, name
        elif name == "open" and owner not in BINARY_OWNERS:
            modes = [text for text in texts if re.fullmatch(r"[rwaxbt+]{1,3}", text)]
            if not any("b" in mode for mode in modes):
                yield node.lineno, name
        elif name in PLAIN - {"open", "fdopen"} and any("b" not in text for text in texts[:1]):
            yield node.lineno, name
        elif name == "TextIOWrapper":
            yield node.lineno, name
        elif name in RUNS and (_true(words, "text") or _true(words, "universal_newlines")):
            yield node.lineno, name


def _called(function: ast.expr) -> tuple[str, str]:
    if isinstance(function, ast.Attribute):
        owner = function.value
        return function.attr, owner.id if isinstance(owner, ast.Name) else ""
    return (function.id, "") if isinstance(function, ast.Name) else ("", "")


def _text(modes: list[str]) -> bool:
    return not any("b" in mode for mode in modes)


def _true(words: dict[str | None, ast.expr], name: str) -> bool:
    value = words.get(name)
    return value is not None and not (isinstance(value, ast.Constant) and not value.value)


def test_text_names_its_encoding() -> None:
    found: list[str] = []
    digested = dict.fromkeys(DIGESTED, 0)
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        for line, what in offences(ast.parse(path.read_bytes())):
            if name in DIGESTED:
                digested[name] += 1
            else:
                found.append(f"{name}:{line}: {what}")
    assert found == []
    assert digested == dict.fromkeys(DIGESTED, 1)


def test_snippets_name_their_encoding() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.S):
            assert not list(offences(ast.parse(code))), page
    for page in (ROOT / "crlbench").rglob("*.in"):
        if page.name.endswith(".py.in"):
            text = page.read_text("utf-8")
            assert not re.search(r"(read_text\(\)|(?<!\.)open\((?!.*encoding))", text), page


@pytest.mark.parametrize(
    "code",
    [
        "path.read_text()",
        "path.write_text(text)",
        "open(path)",
        "open(path, 'w')",
        "path.open()",
        "path.open('a')",
        "subprocess.run(x, text=True)",
        "Popen(x, universal_newlines=True)",
        "tempfile.NamedTemporaryFile('w')",
        "gzip.open(path, 'rt')",
        "os.fdopen(1, 'w')",
        "io.TextIOWrapper(raw)",
    ],
)
def test_the_rule_finds(code: str) -> None:
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "path.read_text('utf-8')",
        "path.read_text(encoding='utf-8')",
        "path.write_text(text, 'utf-8')",
        "open(path, 'rb')",
        "open(path, mode='xb')",
        "path.open('rb')",
        "path.open(encoding='ascii')",
        "os.open(path, flags)",
        "gzip.open(path)",
        "subprocess.run(x)",
        "subprocess.run(x, text=True, encoding='utf-8')",
        "tempfile.NamedTemporaryFile()",
        "tarfile.open(path, 'r:gz')",
    ],
)
def test_the_rule_leaves_alone(code: str) -> None:
    assert not list(offences(ast.parse(code)))


def test_the_linter_has_the_rule() -> None:
    config = ["--config", ROOT / "pyproject.toml", "--output-format", "json"]
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", *config]
    code = "from pathlib import Path\n\nPath('a').read_text()\n"
    found = subprocess.run([*ruff, "-"], input=code, capture_output=True, encoding="utf-8")
    assert found.returncode == 1 and "PLW1514" in found.stdout
    clean = subprocess.run([*ruff, ROOT], capture_output=True, encoding="utf-8")
    assert clean.returncode == 0, clean.stdout


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def crlbench(*arguments: str | bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in an ASCII locale."""
    command = [sys.executable, "-m", "crlbench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | ASCII | env, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A catalogue in a folder with an umlaut, of a task with one in its summary."""
    catalog = tmp_path / "Übung"
    task = shutil.copytree(ROOT / "tasks" / "counting", catalog / "tasks" / "umlaut")
    code = (task / "task.py").read_text("utf-8")
    code = code.replace('"name": "counting"', '"name": "umlaut"')
    summary = re.search(r'"summary": "(.*?)"', code)
    assert summary
    code = code.replace(summary.group(1), "Größere Zahlen − 東京")
    (task / "task.py").write_text(code, "utf-8")
    (task / "frozen.toml").unlink()
    return catalog


@pytest.mark.slow
def test_freeze_in_an_ascii_locale(folder: Path) -> None:
    code = folder / "tasks" / "umlaut" / "task.py"
    for more in ((), ("--bump",), ("--check",)):
        if more == ("--bump",):
            code.write_text(code.read_text("utf-8").replace("Größere", "Größte"), "utf-8")
        done = crlbench("freeze", "umlaut", "--catalog", str(folder), *more)
        assert done.returncode == 0, done.stderr.decode()
    for shown in (("list", "tasks"), ("list", "tasks", "--json"), ("show", "task", "umlaut")):
        done = crlbench(*shown, "--catalog", str(folder))
        assert done.returncode == 0 and b"internal" not in done.stderr, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "recipe", "dapo"),
        ("show", "task", "ifeval"),
        ("compare", "tiny-llama", "tiny-gemma", "--runs", "leaderboard/results/small-a3ba6fe26c41"),
        ("list", "nönsense"),
        ("validate", "mödels/x.toml"),
        ("--help",),
        ("evaluate", "--help"),
    ],
    ids=" ".join,
)
def test_whatever_is_printed_can_be_printed(arguments: tuple[str, ...]) -> None:
    done = crlbench(*arguments)
    assert done.returncode in (0, 2, 3), done.stderr.decode("utf-8", "replace")
    assert b"internal" not in done.stderr and b"UnicodeEncodeError" not in done.stderr


def test_a_model_whose_prompts_are_shown_has_a_name_that_can_be_read(tmp_path: Path) -> None:
    folder = plain_copy("tiny-llama", tmp_path / "Mödel")
    done = crlbench("show", "task", "addition", "--render", str(folder))
    assert done.returncode == 6 and b"Set PYTHONUTF8=1" in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", first([b"n\xff", "ü".encode(), "東".encode()]))
def test_arguments_of_any_bytes(name: bytes, tmp_path: Path) -> None:
    out = bytes(tmp_path) + b"/" + name
    for arguments in (
        (b"evaluate", b"--model", name),
        (b"validate", out),
        (b"report", out),
        (b"list", b"runs", b"--out", out),
        (b"fetch", b"--task", b"gsm8k", b"--from", out),
        (b"leaderboard", b"export", b"--results", out, b"--out", out + b".csv"),
    ):
        done = crlbench(*arguments, CRLBENCH_HOME=str(tmp_path / "home"))
        assert done.returncode in (0, 2, 3, 6), (arguments, done.stderr)
        assert b"internal" not in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_in_an_ascii_locale(tmp_path: Path) -> None:
    refused = crlbench("evaluate", "--model", "tiny-llama", "--out", str(tmp_path / "Läufe"))
    assert refused.returncode == 6 and b"Set PYTHONUTF8=1" in refused.stderr
    assert not list(tmp_path.iterdir())
    out = str(tmp_path / "runs")
    done = crlbench("evaluate", "--model", "tiny-llama", "--smoke", "--tasks", "addition",
                    "--jobs", "1", "--out", out)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    for more in (("list", "runs", "--out", out), ("report", out), ("doctor", "--offline")):
        done = crlbench(*more)
        assert done.returncode in (0, 6), done.stderr.decode("utf-8", "replace")
        assert b"internal" not in done.stderr
