"""Every command and every program of the documents runs, as it stands or in a form that ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.errors import UsageError
from crlbench.run.board import Request, load_track, make_board
from tests.support.bundled import plain_copy
from tests.support.commands import examples_of_help
from tests.support.documents import (
    FORMS,
    OUTPUTS,
    PAGES,
    ROOT,
    Block,
    Form,
    blocks,
    form_of,
    inline_commands,
    is_output,
)
from tests.support.external_data import DATA, fetched, needs_data

BLOCKS = blocks()
EXAMPLES = examples_of_help()
COMMANDS = [(block, command) for block in BLOCKS for command in block.commands
            if not is_output(block)]  # fmt: skip
PROGRAMS = [block for block in BLOCKS if block.kind == "python"]
DATASETS = {
    "gsm8k": "gsm8k", "svamp": "addition,svamp", "gsm-hard": "addition,gsm-hard",
    "deepmath": "deepmath", "olympiadbench": "addition,olympiadbench", "mbpp": "mbpp",
    "humaneval": "addition,humaneval", "ifeval": "addition,ifeval",
    "harmless": "addition,harmless",
}  # fmt: skip
"""The datasets with the --tasks that docs/datasets.md gives for each."""


LONG = (
    "docs/adding.md:0", "docs/datasets.md:0", "docs/datasets.md:1", "docs/distillation.md:0",
    "docs/doctor.md:0", "docs/findings-1.md:0", "docs/findings-1.md:4", "docs/findings-1.md:6",
    "docs/mini-1.md:0", "docs/pilot.md:2", "docs/preference.md:0",
    "docs/process-reward.md:0", "docs/reasoning-gym.md:0", "docs/site.md:0", "docs/site.md:2",
    "docs/small.md:1", "docs/soft-actor-critic.md:0", "docs/soft-actor-critic.md:1",
    "docs/studies/ppo-dpo.md:0", "docs/studies/reward-factors.md:0",
    "docs/studies/step-token.md:0", "docs/studies/step-token.md:1",
    "docs/studies/tricks-or-traps.md:0", "docs/zoo.md:0", "docs/zoo.md:1", "docs/zoo.md:2",
)  # fmt: skip
"""Blocks that take longest, of commands that have tests of their own: .ci/full runs them."""


def options_of(command: str) -> list[str] | None:
    """The arguments of a crlbench command line; None for another program."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return words[1:] if words and Path(words[0]).name == "crlbench" else None


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.id)
def test_every_block_is_of_a_known_kind(block: Block) -> None:
    if block.kind == "python":
        compile(block.text, block.id, "exec")
    elif block.kind == "toml":
        tomllib.loads(block.text)
    elif block.kind == "json":
        json.loads(block.text)
    else:
        assert block.kind in ("", "sh"), f"{block.id}: of which language is it?"
        assert is_output(block) or block.commands, (
            f"{block.id} is no command that a test knows: name its program in "
            "tests/support/documents.py, or list it there as an output"
        )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.pattern)
def test_every_form_is_used(form: Form) -> None:
    assert form.reason
    assert any(form_of(command) is form for _, command in COMMANDS), "no page has such a command"


def test_every_output_is_there() -> None:
    listed = sum(map(len, OUTPUTS.values()))
    assert sum(map(is_output, BLOCKS)) == listed


@pytest.mark.parametrize(
    ("block", "command"), COMMANDS, ids=[f"{block.id}: {text}" for block, text in COMMANDS]
)
def test_every_command_can_be_read(block: Block, command: str) -> None:
    arguments = options_of(command)
    if arguments is not None:
        cli.parse(arguments)
    folders = "benchmarks|models|docs|tests|crlbench"
    for path in re.findall(rf"(?:{folders})/[\w./-]+\.(?:py|toml)", command):
        of_the_reader = re.search("my[-_]", path)
        assert (ROOT / path).exists() or of_the_reader, f"{block.id}: {path} is not there"


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_help_can_be_read(name: str) -> None:
    lines = [line.strip() for line in EXAMPLES[name].splitlines()]
    commands = [line for line in lines if line.startswith("crlbench ")]
    assert commands
    for command in commands:
        options = cli.parse(shlex.split(command)[1:])
        assert command.startswith(f"crlbench {name}")
        for path in vars(options).values():
            if isinstance(path, str) and path.startswith(("docs/", "tasks/my", "models/my")):
                assert (ROOT / path).exists() or "/my" in path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_name_commands_and_flags_that_there_are(page: Path) -> None:
    for command in inline_commands(page):
        words = re.findall(r"[^\s\[\]|\\]+", command)[1:]
        assert words[0] in cli.COMMANDS or words[0].startswith("-"), command
        names = [word.split("=")[0] for word in words if word.startswith("--")]
        parser = cli.build_parser()
        for name in words[:2]:
            parser = parser.below.get(name, parser).filled()
        unknown = [name for name in names if name not in parser._option_string_actions]
        assert not unknown, f"{page}: `{command}`"


@pytest.mark.slow
@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.id)
def test_every_program_runs(block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::EncodingWarning", "-c", block.text],
        cwd=ROOT, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands in the documents take for granted, and where they may write."""
    base = tmp_path_factory.mktemp("reader")
    names = ("mine", "fresh", "out", "home", "work")
    found = {name: base / name for name in names}
    for folder in found.values():
        folder.mkdir()
    for name in ("leaderboard", "models", "docs", "benchmarks", "crlbench", "tasks"):
        (found["work"] / name).symlink_to(ROOT / name)
    for name, *more in (("my-task",), ("my-game", "--environment")):
        assert cli.main(["add", "task", name, "--to", str(found["mine"]), "-q", *more]) == 0
        assert cli.main(["freeze", str(found["mine"] / "tasks" / name), "-q"]) == 0
    (found["mine"] / "recipes").mkdir()
    recipes = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    toml = re.search(r"```toml\n# my-folder/recipes/(\S+)\n(.*?)```", recipes, flags=re.S)
    assert toml
    (found["mine"] / "recipes" / toml.group(1)).write_text(toml.group(2), encoding="utf-8")
    chains = found["mine"] / "chains"
    chains.mkdir()
    shutil.copy(ROOT / "crlbench/algo/chains/rlvr.toml", chains / "my-chain.toml")
    return {name: str(folder) for name, folder in found.items()} | {
        "data": DATA or "", "model": str(long_model(base / "model")),
    }  # fmt: skip


def long_model(folder: Path) -> Path:
    """A small untrained model that reads the prompts of the datasets."""
    plain_copy("tiny-llama", folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = 1024
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = folder / "tokenizer_config.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["model_max_length"] = 1024
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def reduced(command: str, form: Form, places: dict[str, str]) -> list[str]:
    swaps = {word: text.format(**places) for word, text in form.swap}
    words = shlex.split(form.instead.format(**places) or command, comments=True)
    words = [swaps.get(word, word) for word in words]
    return [word for word in words if word] + shlex.split(form.more.format(**places))


def test_every_long_block_is_there() -> None:
    assert {*LONG} <= {block.id for block in BLOCKS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=pytest.mark.full) if block.id in LONG else block
        for block in BLOCKS
        if block.commands and not is_output(block)
    ],
    ids=lambda block: block.id,
)
def test_every_command_runs(
    block: Block, places: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(places["work"])
    monkeypatch.setenv("CRLBENCH_HOME", places["home"])
    left_out = []
    for command in block.commands:
        form = form_of(command)
        needs = "{data}" in form.more or "needs data" in form.reason
        if not form.run or needs and not DATA:
            left_out.append(f"{command}: {'CRLBENCH_DATA' if needs else form.reason}")
            continue
        code, said = run(command, reduced(command, form, places), capsys)
        assert code in form.codes, f"{block.id}: {command}\n{said}"
        assert code == 0 or form.says in said, f"{block.id}: {command}\n{said}"
    if len(left_out) == len(block.commands):
        pytest.skip("; ".join(left_out))


def run(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and what was said."""
    if words[0] == "crlbench":
        code = cli.main(words[1:])
        captured = capsys.readouterr()
        return code, captured.out + captured.err
    if "|" in command:
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        words = ["sh", "-c", command]
    if words[0] == "python":
        words[0] = sys.executable
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, encoding="utf-8", env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("track", ["mini", "small", "core"])
@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_runs_on_every_track_as_its_page_says(
    name: str, track: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", str(fetched(name).rows_folder.parents[1]))
    page = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \| `--tasks (\S+)` \| (.*) \|$", page, flags=re.M)
    assert row and row.group(1) == DATASETS[name], "docs/datasets.md has no row for it"
    tasks = tuple(DATASETS[name].split(","))
    stated = dict(re.findall(r"--set (evaluation\.\w+)=(\w+)", row.group(2)))

    def make(changes: dict[str, str]) -> list[str]:
        catalog = Catalog()
        conditions = {"sampling.max_completion_bytes": "512", **changes}
        board, trained, _ = make_board(
            catalog, load_track(catalog, track), Request(conditions, tasks)
        )
        assert name in board.tasks
        return trained

    assert make(stated) == [tasks[0]]
    try:
        make({})
    except UsageError as error:  # then it names what works
        make(dict(re.findall(r"--set (evaluation\.\w+)=(\d+)", str(error))))
