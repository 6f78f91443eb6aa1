"""``crlbench validate`` as people meet it: what it prints, and how it leaves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import ValidationError
from crlbench.suite.gauntlet.examine import MEANINGS
from crlbench.suite.gauntlet.table import cards, replace_table, table
from tests.support.confined import frozen_again
from tests.support.entries import plain

Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a task, in a folder of tasks."""
    target = tmp_path / "tasks" / "letters"
    shutil.copytree(Catalog().find("task", "letters").path, target)
    return target


def validate(*arguments: str) -> int:
    return cli.main(["validate", *arguments, "--quick", "-q"])


def spoil(path: Path, line: int, old: str, new: str) -> None:
    """Replace a text in one line, counted from 1."""
    lines = plain(path).read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    path.write_text("".join(lines))


@pytest.mark.slow
def test_a_sound_task_keeps_every_rule(folder: Path, capsys: Out) -> None:
    assert validate(str(folder)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("letters 1.0.0: keeps every rule (quick, ")
    for rule in ("gold", "adversarial", "near-duplicates", "regeneration", "readme"):
        assert re.search(rf"^  ok +{rule} ", printed, re.MULTILINE)
    assert "mutants " in printed and "agreement " in printed and "rows " in printed


@pytest.mark.slow
def test_json_holds_every_rule_with_its_figures(folder: Path, capsys: Out) -> None:
    assert validate(str(folder), "--json") == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["ok"] and report["task"] == "letters" and report["effort"] == "quick"
    assert {rule["status"] for rule in report["rules"].values()} == {"ok"}
    assert report["rules"]["floor"]["figures"]["id"]["constant"] <= 0.01
    assert report["rules"]["agreement"]["figures"]["agreement"] >= 0.99


MALFORMED = {
    "not JSON": (3, '{"id"', '{"id', "id.jsonl:3: not valid JSON"),
    "a field too few": (4, '"level"', '"levle"', "id.jsonl:4: field level: is missing"),
    "a wrong type": (5, '"template": 0', '"template": "0"', "id.jsonl:5: field template: must be"),
    "a duplicate id": (6, "id-00005", "id-00004", "id.jsonl:6: field id: 'id-00004' is already"),
    "an unknown split": (7, '"id": "id-00006"', '"id": "test-00006"', "id.jsonl:7: field id: 'tes"),
    "an unknown level": (8, '"level": 2', '"level": 7', "id.jsonl:8: field level: 7 is unknown"),
    "a level of another split": (8, '"level": 2', '"level": 3', "id.jsonl:8: field level: froz"),
    "an unknown role": (9, '"user"', '"usher"', "id.jsonl:9: field messages.1.role: 'usher'"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_is_named_and_the_rest_is_not_run(
    folder: Path, case: str, capsys: Out
) -> None:
    line, old, new, message = MALFORMED[case]
    spoil(folder / "id.jsonl", line, old, new)
    assert validate(str(folder)) == 3
    printed = capsys.readouterr()
    assert message in printed.out
    assert re.search("^  BROKEN +files ", printed.out, re.MULTILINE)
    assert re.search("^  not run +adversarial ", printed.out, re.MULTILINE)
    assert "Traceback" not in printed.out + printed.err


def test_an_answer_that_its_own_verifier_rejects_is_named(folder: Path, capsys: Out) -> None:
    path = folder / "task.py"
    source = path.read_text()
    assert "    return exact(text, answer)\n" in source
    path.write_text(
        source.replace(
            "    return exact(text, answer)\n", "    return exact(text, answer) * (len(text) > 4)\n"
        )
    )
    frozen_again(folder)
    spoil(folder / "id.jsonl", 2, '"meta": {}', '"meta":{}')
    assert validate(str(folder)) == 3
    printed = capsys.readouterr().out
    assert "id.jsonl: was changed: its sha256 is" in printed
    assert re.search("^  BROKEN +gold ", printed, re.MULTILINE)
    assert re.search(r"\.jsonl(\.zst)?:\d+: field answer: \S+: its own verifier rejects", printed)
    assert re.search(r"\* and [\d]+ more", printed)


@pytest.mark.slow
@pytest.mark.parametrize("digest", ["verifier", "generator"])
def test_code_with_another_digest_is_named_and_nothing_of_it_runs(
    folder: Path, digest: str, capsys: Out
) -> None:
    card = folder / "frozen.toml"
    known = getattr(Task(folder).card, digest).sha256
    card.write_text(card.read_text().replace(known, "0" * 64))
    assert validate(str(folder)) == 3
    printed = capsys.readouterr().out
    assert f"frozen.toml says {'0' * 64}" in printed
    assert re.search("^  not run +gold ", printed, re.MULTILINE)


@pytest.mark.slow
def test_all_broken_files_are_named_at_once(folder: Path, capsys: Out) -> None:
    spoil(folder / "id.jsonl", 3, '{"id"', '{"id')
    plain(folder / "hard.jsonl").unlink()
    shutil.copy(folder / "train.jsonl.zst", folder / "dev.jsonl.zst")
    with plain(folder / "train.jsonl").open("a") as file:
        file.write(" ")
    assert validate(str(folder)) == 3
    printed = capsys.readouterr().out
    for message in (
        "id.jsonl:3: not valid JSON",
        "hard.jsonl: the file is missing",
        "dev.jsonl.zst: no split of frozen.toml has this file",
        "train.jsonl:2049: not valid JSON",
    ):
        assert message in printed


@pytest.mark.slow
def test_missing_and_changed_pairs_are_named(tmp_path: Path, capsys: Out) -> None:
    target = shutil.copytree(Catalog().find("task", "judged").path, tmp_path / "tasks" / "judged")
    (target / "pairs_train.jsonl.zst").unlink()
    spoil(target / "pairs_id.jsonl", 1, '"level": 1', '"level": 2')
    assert validate(str(target)) == 3
    printed = capsys.readouterr().out
    assert re.search(r"pairs_train.jsonl: the file is missing.*crlbench freeze judged", printed)
    assert re.search(r"pairs_id.jsonl: the file was changed.*crlbench freeze judged", printed)


def test_a_page_without_the_tables_marks_is_refused() -> None:
    with pytest.raises(ValidationError, match="holds 0 tables"):
        replace_table("# A page\n", "| a |\n")


def test_a_changed_byte_and_a_broken_card_are_named(folder: Path, capsys: Out) -> None:
    spoil(folder / "id.jsonl", 2, '"meta": {}', '"meta":{}')
    assert validate(str(folder)) == 3
    assert "id.jsonl: was changed: its sha256 is" in capsys.readouterr().out
    (folder / "frozen.toml").write_text("schema = 1\nnmae = 'letters'\n")
    assert validate(str(folder)) == 3
    assert re.search("frozen.toml: .*field nmae: is unknown", capsys.readouterr().out)
    (folder / "frozen.toml").unlink()
    assert validate(str(folder)) == 3
    assert "frozen.toml: the file does not exist" in capsys.readouterr().out


def test_a_folder_of_tasks_is_all_of_them(folder: Path, capsys: Out) -> None:
    spoil(folder / "id.jsonl", 3, '{"id"', '{"id')
    other = folder.parent / "counting"
    shutil.copytree(Catalog().find("task", "counting").path, other)
    (other / "frozen.toml").unlink()
    assert validate(str(folder.parent), str(folder), "--json") == 3
    reports = json.loads(capsys.readouterr().out)
    assert [report["task"] for report in reports] == ["counting", "letters"]
    assert reports[1]["rules"]["gold"]["status"] == "ok"
    assert reports[1]["rules"]["pure"]["status"] == "not run"


EXTERNAL = [card.name for card in cards(Catalog()) if card.source is not None]


@pytest.mark.skipif(not EXTERNAL, reason="the catalogue has no external task")
def test_a_task_that_is_not_fetched_says_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    name = EXTERNAL[0]
    assert cli.main(["validate", name, "--quick", "-q", "--home", str(tmp_path)]) == 6
    printed = capsys.readouterr().out
    assert f"not fetched: crlbench fetch --task {name}" in printed
    assert "BROKEN" not in printed


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("leters", "unknown task 'leters'. Did you mean letters"),
        ("docs", "docs: holds nothing to validate. A task is a folder"),
        ("models/my-modle.toml", "models/my-modle.toml: no such file or folder"),
        ("--kind=recipe", "unknown --kind 'recipe'. Known: auto, "),
    ],
)
def test_what_is_neither_task_nor_model_is_refused(
    argument: str, message: str, capsys: Out
) -> None:
    root = Path(cli.__file__).parents[1]
    given = str(root / argument) if argument == "docs" else argument
    assert cli.main(["validate", given, "addition", "-q"]) == 2
    assert message in capsys.readouterr().err


def test_the_page_about_tasks_holds_the_cards_and_every_rule() -> None:
    page = (Path(cli.__file__).parents[1] / "docs" / "tasks.md").read_text()
    assert replace_table(page, table(cards(Catalog()))) == page, (
        "the table is old; run: python -m crlbench.suite.gauntlet.table --write docs/tasks.md"
    )
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) >= {*MEANINGS, "train"}


def test_a_board_refuses_tasks_that_share_items(tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "tasks" / "letters-again"
    shutil.copytree(Catalog().find("task", "letters").path, folder)
    card = (folder / "frozen.toml").read_text()
    card = card.replace('name = "letters"', 'name = "letters-again"\nrelative = "letters"', 1)
    (folder / "frozen.toml").write_text(card)
    call = ["evaluate", "--model", "tiny-llama", "--dry-run", "--catalog", str(tmp_path)]
    assert cli.main([*call, "--tasks", "letters,letters-again"]) == 2
    assert "tasks 'letters' and 'letters-again' share items" in capsys.readouterr().err
    alone = ["fingerprint", "--track", "mini", "--catalog", str(tmp_path)]
    assert cli.main([*alone, "--tasks", "letters-again,modular"]) == 0
