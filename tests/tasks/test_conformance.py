"""Every task folder keeps every rule; a new folder is covered without touching this file."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.catalog import Catalog
from crlbench.conformance import CHECKS
from crlbench.errors import ValidationError
from crlbench.freeze import freeze
from crlbench.frozen import Task
from crlbench.reward.score import score

TASKS = Catalog().list("task")
SIZES = {"train": 2048, "train_fixed": 256, "id": 512, "hard": 256, "format": 320}


@functools.cache
def load(name: str) -> Task:
    return Catalog().load_task(name)


def test_the_tasks_of_the_tracks_are_there() -> None:
    assert {"addition", "list-ops", "counting", "key-value", "modular", "letters"} <= {*TASKS}


@pytest.mark.parametrize("rule", CHECKS)
@pytest.mark.parametrize("name", TASKS)
def test_rule(name: str, rule: str) -> None:
    assert CHECKS[rule](load(name)) == []


@pytest.mark.parametrize("name", TASKS)
def test_sizes_and_levels(name: str) -> None:
    splits = load(name).card.splits
    assert {split: card.count for split, card in splits.items()} == SIZES
    assert splits["hard"].levels == (3,)
    assert splits["train"].levels == splits["id"].levels == (1, 2)


def test_freeze_check_agrees() -> None:
    assert freeze("counting", check=True) == load("counting").card


@pytest.mark.parametrize("name", TASKS)
@given(text=st.text(st.characters(), max_size=80), index=st.integers(0, 319))
def test_verify_is_total_and_repeatable_on_any_text(name: str, text: str, index: int) -> None:
    task = load(name)
    answer = task.rows("format")[index]["answer"]
    for judge in (task.verify, task.audit):
        first = score(judge, [text], [answer], name)
        assert first == score(judge, [text], [answer], name)


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_in_another_order_gets_the_same_scores(name: str) -> None:
    task = load(name)
    answers = [row["answer"] for row in task.rows("id")[:100]]
    texts = answers[1:] + answers[:1]
    forwards = score(task.verify, texts, answers, name)
    backwards = score(task.verify, texts[::-1], answers[::-1], name)
    assert forwards == backwards[::-1]


def test_a_wrong_floor_in_the_card_is_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "letters"
    shutil.copytree(load("letters").folder, folder)
    card = (folder / "frozen.toml").read_text()
    (folder / "frozen.toml").write_text(card.replace("floor = 0.002441", "floor = 0.000001"))
    assert CHECKS["floor"](Task(folder))
    with pytest.raises(ValidationError, match="frozen.toml:"):
        freeze(folder, check=True)
