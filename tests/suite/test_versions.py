"""The version of a task: what changed decides its level, and the command writes it."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog import frozen
from crlbench.catalog.find import Catalog
from crlbench.contract.task_card import read_task_card
from crlbench.disk import files
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward import splits
from crlbench.suite import versions
from crlbench.suite.freeze import freeze
from crlbench.suite.versions import Level, decide, raise_version, verifier_part, with_facts

SOURCE = (Catalog().find("task", "addition").path / "task.py").read_text()
SUMMARY = '"Add two whole numbers of up to three digits."'


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    for split, count in (("train", 64), ("id", 32), ("hard", 16)):
        plan = splits.PLANS[split]
        monkeypatch.setitem(splits.PLANS, split, splits.Plan(count, plan.levels, plan.held_out))
    monkeypatch.setattr(splits, "TRAIN_FIXED_COUNT", 16)
    monkeypatch.setattr(splits, "FORMAT_ITEMS", 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task frozen at 1.0.0, and a copy of it as an older checkout beside it."""
    folder = tmp_path / "new" / "tasks" / "addition"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(SOURCE)
    freeze(folder)
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    return folder


def edit(folder: Path, *changes: tuple[str, str]) -> None:
    text = (folder / "task.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "task.py").write_text(text)


def rows_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


WORDS = (SUMMARY, '"Add two numbers."')
TAGS = ('["mini", "arithmetic"]', '["arithmetic"]')
PROMPT = ('"sum of {a} and {b}:"', '"{a} and {b}, summed:"')
ANSWER = ('"<{c}>", "{a}+{b}={c}"', '"[{c}]", "{a}+{b}={c}"')
LENGTH = ('"max_completion_bytes": 64', '"max_completion_bytes": 48')
RULE = ("return numeric(text, answer)", "return numeric(text.strip(), answer)")
LEVELS = {
    "summary": (WORDS, "1.0.1", "summary (PATCH)"),
    "tag": (TAGS, "1.1.0", "tags (MINOR)"),
    "prompt": (PROMPT, "2.0.0", "splits.format.sha256 (MAJOR)"),
    "answer": (ANSWER, "2.0.0", "splits.format.sha256 (MAJOR)"),
    "length": (LENGTH, "2.0.0", "max_completion_bytes (MAJOR)"),
    "verifier": (RULE, "2.0.0", "verifier.sha256 (MAJOR)"),
}


@pytest.mark.parametrize("case", LEVELS)
def test_a_change_is_refused_with_its_level_and_the_command_writes_it(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, version, why = LEVELS[case]
    edit(folder, change)
    before, frozen_before = rows_of(folder), (folder / "frozen.toml").read_bytes()
    with pytest.raises(ValidationError) as error:
        freeze(folder)
    assert why in str(error.value) and f"so version {version}" in str(error.value)
    assert "crlbench freeze addition --bump" in str(error.value)
    assert (folder / "frozen.toml").read_bytes() == frozen_before

    assert cli.main(["freeze", str(folder), "--bump"]) == 0
    said = capsys.readouterr().out
    assert f"addition {version} frozen" in said and why in said
    assert f'"version": "{version}"' in (folder / "task.py").read_text()
    assert read_task_card(folder / "frozen.toml").version == version
    assert freeze(folder, check=True, against=folder.parents[2] / "old").version == version
    assert (rows_of(folder) == before) == (not version.startswith("2"))
    assert frozen.Task(folder).verify("41", "41") == 1.0


def test_the_largest_level_counts_and_every_change_is_said(folder: Path) -> None:
    edit(folder, WORDS, TAGS, LENGTH)
    with pytest.raises(ValidationError) as error:
        freeze(folder)
    for part in ("version 2.0.0", "max_completion_bytes", "tags (MINOR)", "summary (PATCH)"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "version", "needs"),
    [
        (PROMPT, "1.0.1", "2.0.0"),
        (PROMPT, "1.1.0", "2.0.0"),
        (WORDS, "1.1.0", "1.0.1"),
        (WORDS, "1.0.2", "1.0.1"),
        (WORDS, "0.9.0", ""),
        (WORDS, "3.0.0", ""),
        (TAGS, "1.0.1", "1.1.0"),
    ],
)
def test_a_wrong_bump_by_hand_is_named(
    folder: Path,
    change: tuple[str, str],
    version: str,
    needs: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit(folder, change, ('"version": "1.0.0"', f'"version": "{version}"'))
    assert cli.main(["freeze", str(folder)]) == 3
    message = capsys.readouterr().err
    assert f"the version 1.0.0 becomes {version}" in message and f"version {needs}" in message
    assert cli.main(["freeze", str(folder), "--bump"]) == 0


def test_check_against_an_older_checkout_names_a_wrong_bump(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a pull request's task is looked at: its own files agree with one another."""
    edit(folder, PROMPT)
    (folder / "frozen.toml").unlink()
    freeze(folder)
    old = folder.parents[2] / "old"
    assert cli.main(["freeze", str(folder), "--check"]) == 0
    for against in (old, old / "tasks/addition", old / "tasks/addition/frozen.toml"):
        assert cli.main(["freeze", str(folder), "--check", "--against", str(against)]) == 3
        assert "1.0.0 stays, but what changed needs MAJOR" in capsys.readouterr().err
    assert cli.main(["freeze", str(folder), "--check", "--against", "/nowhere"]) == 2
    assert "holds no frozen.toml of task 'addition'" in capsys.readouterr().err


def test_words_of_the_code_are_a_patch_where_the_old_code_is_at_hand(folder: Path) -> None:
    edit(
        folder,
        ("The key is the sorted operands", "The key is what is added"),
        ("def verify(text", "# Looks at the last number.\ndef verify(text"),
    )
    with pytest.raises(ValidationError, match="needs MAJOR, so version 2.0.0"):
        freeze(folder)
    with pytest.raises(ValidationError, match="needs PATCH, so version 1.0.1"):
        freeze(folder, against=folder.parents[2] / "old")
    old = folder.parents[2] / "old"
    assert cli.main(["freeze", str(folder), "--bump", "--against", str(old)]) == 0
    assert read_task_card(folder / "frozen.toml").version == "1.0.1"


def test_a_draft_changes_freely_and_becomes_a_version_by_hand(folder: Path) -> None:
    edit(folder, ('"version": "1.0.0"', '"version": "0.1.0"'))
    (folder / "frozen.toml").unlink()
    freeze(folder)
    edit(folder, PROMPT)
    assert freeze(folder).version == "0.1.0"
    assert cli.main(["freeze", str(folder), "--bump"]) == 0
    assert read_task_card(folder / "frozen.toml").version == "0.1.0"
    edit(folder, ('"version": "0.1.0"', '"version": "1.0.0"'))
    assert freeze(folder).version == "1.0.0"


def test_the_salt_is_the_major_version(folder: Path) -> None:
    same = [splits.freeze_rng("t", v, "id").random() for v in ("1.0.0", "1.7.3", "1.0.9")]
    assert len(set(same)) == 1
    assert splits.freeze_rng("t", "2.0.0", "id").random() != same[0]


def test_a_new_split_is_minor_and_a_lost_one_major(folder: Path) -> None:
    card = read_task_card(folder / "frozen.toml")
    fewer = card.model_copy(
        update={"splits": {name: s for name, s in card.splits.items() if name != "hard"}}
    )
    assert decide(fewer, card).level is Level.MINOR
    assert decide(card, fewer).level is Level.MAJOR


def test_shared_code_that_makes_the_same_rows_needs_no_version(folder: Path) -> None:
    path = folder / "frozen.toml"
    card = read_task_card(path)
    path.write_text(path.read_text().replace(card.generator.sha256, "0" * 64))
    changed = decide(read_task_card(path), card)
    assert changed.level is Level.NONE and changed.changes == (("generator.sha256", Level.NONE),)
    assert freeze(folder) == card and read_task_card(path) == card
    assert read_task_card(path).digest == card.digest


@pytest.mark.parametrize("where", ["checking", "writing"])
def test_a_failed_bump_leaves_the_code_as_it_was(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise EnvironmentUnfit("no space left")

    if where == "writing":
        monkeypatch.setattr("crlbench.suite.freeze._put", full)
    edit(folder, PROMPT if where == "writing" else (RULE[0], f"{RULE[0]} * 0.5"))
    before = (folder / "task.py").read_bytes()
    assert cli.main(["freeze", str(folder), "--bump"]) == (6 if where == "writing" else 3)
    assert (folder / "task.py").read_bytes() == before


def test_a_bump_that_cannot_be_written_leaves_every_file_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(folder, PROMPT)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real = files._write_flushed

    def write(path: Path, data: bytes) -> None:
        if path.name.startswith(".frozen.toml."):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "_write_flushed", write)
    assert cli.main(["freeze", str(folder), "--bump"]) == 6
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "flag", [["--report"], ["--levels", "{}"], ["--name", "gym-x"], ["--to", "tasks"]]
)
def test_flags_of_generators_write_no_task(
    folder: Path, flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["freeze", str(folder), *flag]) == 2
    said = capsys.readouterr().err
    assert f"{flag[0]} is for a generator" in said and "--from reasoning_gym:" in said


def test_a_card_that_is_computed_is_explained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder, ('"version": "1.0.0"', '"version": ".".join("100")'), PROMPT)
    assert cli.main(["freeze", str(folder), "--bump"]) == 3
    said = capsys.readouterr().err
    assert "CARD must be written out as one dict of literals with version" in said


def test_bump_and_check_exclude_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["freeze", "addition", "--bump", "--check"]) == 2
    assert "give one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "after"), [*zip(Level, ("1.2.3", "1.2.4", "1.3.0", "2.0.0"), strict=True)]
)
def test_raising(level: Level, after: str) -> None:
    assert raise_version("1.2.3", level) == after


CODE = '''
import re
CARD = {"name": "x", "version": "1.0.0"}
WORDS, LIMIT = ("a",), 3
PROMPTS = ("p",)
def helper(text): return text[:LIMIT]
def build(split, rng): return PROMPTS
def verify(text, answer):
    """Doc."""
    return float(helper(text) == answer)
def audit(text, answer): return float(re.fullmatch(answer, text) is not None)
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Doc."""', '"""Other."""  # and a comment', True),
        ('PROMPTS = ("p",)', 'PROMPTS = ("q",)', True),
        ('"1.0.0"', '"1.0.1"', True),
        ("return PROMPTS", "return PROMPTS[:1]", True),
        ("LIMIT = (", "LIMIT = (", True),
        ('("a",), 3', '("a",), 4', False),
        ("text[:LIMIT]", "text[1:LIMIT]", False),
        ("import re", "import regex as re", False),
        ("fullmatch", "match", False),
        ("def build", "import json\nLIMIT += 1\ndef build", False),
        ("def build", "print('loaded')\ndef build", False),
    ],
)
def test_the_verifier_part_is_what_verify_and_audit_reach(old: str, new: str, same: bool) -> None:
    changed = CODE.replace(old, new)
    assert (verifier_part(changed) == verifier_part(CODE)) is same


def test_facts_are_replaced_in_place() -> None:
    source = 'é = "é"; CARD = {"name": "ä", "version": "1.0.0", "tags": ["a", "b"]}\n'
    new = with_facts(source, {"version": "1.0.1", "tags": ["a", "b"]})
    assert new == source.replace("1.0.0", "1.0.1")
    longer = 'CARD = {\n    "version": (\n        "1.0.0"\n    ),\n    "name": "x",\n}\n'
    scope: dict[str, dict[str, str]] = {}
    exec(with_facts(longer, {"version": "2.0.0"}), scope)
    assert scope["CARD"] == {"version": "2.0.0", "name": "x"}
    with pytest.raises(ValidationError, match="tags"):
        with_facts(longer, {"tags": []})


def test_the_decision_needs_no_heavy_library() -> None:
    code = "import sys, crlbench.suite.versions; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_json_tells_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(folder, TAGS)
    assert cli.main(["freeze", str(folder), "--bump", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["version"] == "1.1.0" and "tags (MINOR)" in found["why"]


def test_an_unknown_field_is_taken_to_decide_scores() -> None:
    assert versions._level_of("something.new", same_verifier=True) is Level.MAJOR
