"""What golds earn is measured in one place: in freezing, in the gauntlet, and before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from crlbench import cli
from crlbench.catalog.code import verifier_digest
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.fields import TaskKind
from crlbench.doctor.preflight import check_golds
from crlbench.errors import ValidationError
from crlbench.reward.score import Score
from crlbench.suite import golds
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet import verdicts
from crlbench.suite.golds import gold_score, gold_scores, rejected
from tests.support.entries import copied


def test_a_single_turn_earns_what_its_verifier_pays() -> None:
    paid = {"right": 1.0, "half": Score(0.5), "wrong": 0}

    def verify(text: str, answer: str) -> Any:
        return paid[text]

    texts = ["right", "half", "wrong", None]
    found = gold_scores("single-turn", verify, texts, ["a"] * 4, "made-up")
    assert found == [1.0, 0.5, 0.0, 1.0]
    assert [rejected("single-turn", earned) for earned in found] == [False, True, True, False]
    with pytest.raises(ValidationError, match="task 'made-up': the verifier returned 3;"):
        gold_scores("single-turn", lambda *_: 3, ["x"], ["a"], "made-up")


def test_every_kind_is_measured_and_no_other() -> None:
    assert golds.MEASURES.keys() == golds.LEAST.keys() == {*get_args(TaskKind)}
    with pytest.raises(ValidationError, match="'maze' is no kind of task.*known: single-turn"):
        gold_score("maze", lambda *_: 1.0, "x", "a")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The golds that were measured, while each of them counts for too little."""
    seen: list[str | None] = []

    def measure(judge: Any, gold: str | None, answer: str) -> float:
        seen.append(gold)
        return 0.25

    monkeypatch.setitem(golds.MEASURES, "single-turn", measure)
    return seen


def test_the_look_before_a_run_asks_there(measured: list[str | None]) -> None:
    task = Catalog().load_task("counting")
    with pytest.raises(ValidationError, match=r"train\.jsonl.*:1: .*rejects its own answer"):
        check_golds(task)
    assert measured == [task.rows("train")[0]["answer"]]


def test_the_rule_of_the_gauntlet_asks_there(measured: list[str | None]) -> None:
    found = verdicts.check_gold(Catalog().load_task("counting"), "quick")
    assert len(measured) == 2 * found.figures["golds"] == len(found.problems) > 0
    assert "verify gives its own answer" in found.problems[0]
    assert "audit gives its own answer" in found.problems[-1]


def test_freezing_asks_there(measured: list[str | None], tmp_path: Path) -> None:
    root = copied(tmp_path, "counting", lambda folder, frozen: None)
    with pytest.raises(ValidationError, match="train-00000: the verifier rejects the item's own"):
        freeze(root / "tasks" / "counting", check=True)
    assert len(measured) == 2048


def test_a_ceiling_is_the_mean_of_what_golds_earn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a kind whose golds may earn less than 1."""
    monkeypatch.setitem(golds.MEASURES, "single-turn", lambda judge, gold, answer: 0.75)
    monkeypatch.setitem(golds.LEAST, "single-turn", 0.75)
    root = copied(tmp_path, "counting", lambda folder, frozen: None)
    (root / "tasks" / "counting" / "frozen.toml").unlink()  # as if never frozen
    card = freeze(root / "tasks" / "counting")
    assert {split.ceiling for split in card.splits.values()} == {0.75}
    task = Task(root / "tasks" / "counting")
    check_golds(task)
    assert verdicts.check_gold(task, "quick").problems == []


@pytest.mark.slow
def test_a_broken_folder_is_told_of_its_golds_there(
    measured: list[str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(folder: Path, frozen: dict[str, Any]) -> None:
        (folder / "extra.jsonl").write_text("")
        frozen["verifier"]["sha256"] = verifier_digest(folder / "task.py")

    folder = copied(tmp_path, "counting", change) / "tasks" / "counting"
    assert cli.main(["validate", str(folder)]) == 3
    assert "its own verifier rejects" in "".join(capsys.readouterr())
    assert len(measured) == sum(split.count for split in Task(folder).card.splits.values())
