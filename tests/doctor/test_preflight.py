"""``evaluate`` refuses to start where some cell could not run, and says why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.catalog.find import CHECKOUT, Catalog
from crlbench.contract.record_files import read_record
from crlbench.doctor.preflight import (
    HEAVY_GOLDS,
    check_board,
    check_golds,
    check_models,
    check_readers,
)
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.run.board import Request, load_track, make_board
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import SHORT, terse
from tests.support.entries import copied, edit_row, without


def refused(capsys: pytest.CaptureFixture[str], root: Path, *more: str, tasks: str) -> tuple:
    """Exit code and message of an evaluation that must not start; nothing may be written."""
    out = root / "runs"
    command = ["evaluate", "--model", "tiny-llama", "--catalog", str(root), "--tasks", tasks]
    code = cli.main([*command, "--seeds", "1", "--out", str(out), *more])
    assert not out.exists()
    return code, capsys.readouterr().err


def second_id(folder: Path, frozen: dict[str, Any]) -> None:
    edit_row(folder, "id", 4, id="id-00000")


def broken_line(folder: Path, frozen: dict[str, Any]) -> None:
    edit_row(folder, "format", 3, level="two")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (second_id, ["id.jsonl:5", "field id", "already used on line 1"]),
        (broken_line, ["format.jsonl:4", "field level", "a whole number"]),
    ],
)
def test_a_malformed_row_is_named(change, words, tmp_path, capsys):
    code, message = refused(capsys, copied(tmp_path, "counting", change), tasks="counting")
    assert code == 3 and all(word in message for word in words), message


def test_a_row_whose_own_answer_is_refused_is_named(tmp_path, capsys):
    def change(folder: Path, frozen: dict[str, Any]) -> None:
        from crlbench.catalog.code import verifier_digest

        code = (folder / "task.py").read_text()
        (folder / "task.py").write_text(
            f"{code}\n\ndef verify(text, answer):\n    return float(answer != '3')\n"
        )
        frozen["verifier"]["sha256"] = verifier_digest(folder / "task.py")

    code, message = refused(capsys, copied(tmp_path, "counting", change), tasks="counting")
    assert code == 3
    assert ".jsonl.zst:" in message and "rejects its own answer '3'" in message, message


def test_a_level_that_a_task_does_not_have(tmp_path, capsys):
    code, message = refused(capsys, tmp_path, "--set", "data.levels=[1,7]", tasks="counting")
    assert code == 3
    assert "no training prompts of level 7; its levels: 1, 2" in message


def test_too_few_prompts_for_an_iteration(tmp_path, capsys):
    settings = ["--set", "budget.prompts=4096"]
    code, message = refused(capsys, tmp_path, *settings, tasks="counting")
    assert code == 3 and "one iteration needs 4096" in message


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_panel_that_a_bundled_model_has_no_room_for(more, tmp_path, capsys):
    """The context is 256. No start model is scored first, and a dry run says it, too."""
    track = ["--track", "small", "--smoke", *more]
    code, message = refused(capsys, tmp_path, *track, tasks="addition")
    assert code == 3 and "scoring" not in message
    assert "model 'tiny-llama': retain panel, follow-00: the prompt has" in message
    assert "choose another track, as --track mini" in message


def test_a_panel_that_fits_is_not_read(monkeypatch):
    catalog = Catalog()
    board, _, _ = make_board(catalog, load_track(catalog, "mini"), Request())
    monkeypatch.setattr("crlbench.policy.weights.load.load_reader", None)
    check_readers([catalog.load_model("tiny-llama")], board, catalog)


def test_an_unknown_member_of_the_panel(tmp_path, capsys):
    settings = ["--set", 'evaluation.retain=["copi"]']
    code, message = refused(capsys, tmp_path, *settings, tasks="counting")
    assert code == 2 and "Did you mean copy?" in message


def test_tasks_that_can_only_be_measured_do_not_make_a_board(tmp_path, capsys):
    root = copied(tmp_path, "letters", without("train"))
    code, message = refused(capsys, root, tasks="letters")
    assert code == 2
    assert "no task to train on: letters has no training split" in message
    assert "--tasks addition,letters" in message


class Slow:
    """A task whose verifier is slow, or finds the machine unfit; counts what it is asked."""

    name = "slow"
    folder = rows_folder = Path("slow")

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, 0
        split = type("Split", (), {"file": "id.jsonl"})
        self.card = type("Card", (), {"heavy": True, "kind": "single-turn"})
        self.card.splits = {"id": split, "hard": split}

    def rows(self, split):
        return [{"id": f"{split}-{i}", "answer": "1"} for i in range(100)]

    def gold(self, row):
        return row["answer"]

    def verify(self, text, answer):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return 1.0


def test_a_slow_verifier_is_asked_a_few_times_only():
    task = Slow()
    check_golds(task)
    assert task.asked == HEAVY_GOLDS


def test_what_the_machine_lacks_keeps_its_exit_code():
    with pytest.raises(EnvironmentUnfit, match="no user namespaces"):
        check_golds(Slow(EnvironmentUnfit("no user namespaces")))
    with pytest.raises(ValidationError, match="raised KeyError"):
        check_golds(Slow(KeyError("x")))


def board_of(root: Path, *tasks: str, **more: Any):
    catalog = Catalog([root])
    return make_board(catalog, load_track(catalog, "mini"), Request(tasks=tasks, **more)), catalog


def test_a_measured_task_is_on_the_board_and_not_among_the_trained(tmp_path):
    root = copied(tmp_path, "letters", without("train", "train_fixed", "hard", "format"))
    (board, trained, reasons), catalog = board_of(root, "letters", "counting")
    assert trained == ["counting"] and board.tasks == ("letters", "counting")
    assert board.division == "open" and "task 'letters' is not in track 'mini'" in reasons
    check_board(board, trained, catalog)
    assert "tasks.letters.splits.train" not in board.control
    assert board.control["tasks.letters.bounds.id.floor"] < 1.0
    assert "tasks.counting.bounds.hard.floor" in board.control


def test_smoke_keeps_a_task_to_train_on(tmp_path):
    root = copied(tmp_path, "letters", without("train"))
    (board, trained, _), _ = board_of(root, "letters", "counting", "addition", smoke=True)
    assert trained == ["counting", "addition"] and board.tasks == ("counting", "addition")


@pytest.mark.parametrize(("draws", "taken"), [("32", 4), ("3", 3), ("0", 0)])
def test_smoke_takes_few_draws_where_the_track_takes_any(tmp_path, draws, taken):
    settings = {"evaluation.pass_draws": draws}
    (board, *_), _ = board_of(tmp_path, "counting", settings=settings, smoke=True)
    assert board.conditions.evaluation.pass_draws == taken


def test_the_panel_is_part_of_the_fingerprint(tmp_path):
    (board, *_), _ = board_of(tmp_path, "counting")
    (without_it, *_), _ = board_of(
        tmp_path, "counting", settings={"evaluation.retain": "[]"}
    )
    assert {name for name in board.control if name.startswith("retain.")} == {
        "retain.verifier",
        *(
            f"retain.{member}.{leaf}"
            for member in ("copy", "arithmetic", "text")
            for leaf in ("sha256", "floor", "ceiling", "max_completion_bytes")
        ),
    }
    assert not [name for name in without_it.control if name.startswith("retain.")]


def test_an_unknown_task_is_still_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="unknown task"):
        board_of(tmp_path, "countin")


@pytest.mark.slow
def test_a_measured_task_is_scored_as_a_transfer_task(tmp_path, capsys):
    """A board of one trained task and one that has ID items alone, as a person runs it."""
    root = copied(tmp_path / "c", "letters", without("train", "train_fixed", "hard", "format"))
    model = terse(write_checkpoint(tmp_path / "very-tiny"))
    settings = SHORT | {"evaluation.retain_items": 2}
    pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = ["evaluate", "--model", str(model), "--catalog", str(root), "--seeds", "1"]
    out = ["--out", str(tmp_path / "runs"), "-q"]
    assert cli.main([*command, "--tasks", "counting,letters", *pairs, *out]) == 0
    (path,) = (tmp_path / "runs").rglob("record.json")  # no cell trains on letters
    record = read_record(path)
    assert record.task.name == "counting"
    assert record.splits["transfer/letters"].end is not None
    assert record.splits["retain/copy"].n == 2
    page = next((tmp_path / "runs").rglob("report.html")).read_text()
    assert "--tasks counting,letters" in page
    assert "Tasks of the track without a run" not in page
    assert 'scope="col" class="n">letters</th>' in page


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "chat_template.jinja"]
)
def test_a_bundled_model_whose_file_was_changed_is_refused_before_anything_is_looked_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished runs would stand for it, without a cell that could notice."""
    shutil.copytree(CHECKOUT / "models/tiny/tiny-llama", tmp_path / "models/tiny/tiny-llama")
    shutil.copy(CHECKOUT / "models/tiny-llama.toml", tmp_path / "models")
    monkeypatch.setattr("crlbench.catalog.find._own_root", lambda: tmp_path)
    catalog = Catalog()
    card = catalog.load_model("tiny-llama")
    check_models([card], None, catalog)
    changed = tmp_path / "models/tiny/tiny-llama" / name
    changed.write_bytes((changed.read_bytes() if changed.exists() else b"") + b" ")
    with pytest.raises(ValidationError, match=f"{name} (was changed|is new)"):
        check_models([card], None, catalog)
