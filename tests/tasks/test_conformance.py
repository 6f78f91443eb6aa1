"""Every task folder keeps every rule; a new folder is covered without touching this file."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.score import score
from crlbench.reward.starts import Sizes
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet.asking import Level
from crlbench.suite.gauntlet.duplicates import search
from crlbench.suite.gauntlet.examine import CHECKS, run
from crlbench.suite.gauntlet.report import Finding, Report
from tests.support.marks import every

TASKS = Catalog().list("task")
SIZES = {"train": 2048, "train_fixed": 256, "id": 512, "hard": 256, "format": 320}
FULL = bool(os.environ.get("CRLBENCH_FULL"))
EXAMPLES = 2000 if FULL else 10


def load(name: str) -> Task:
    """A task, or a skipped test where its rows are not on this machine."""
    try:
        return opened(name)
    except EnvironmentUnfit as error:
        pytest.skip(str(error))


@functools.cache
def opened(name: str) -> Task:
    return Catalog().load_task(name)


@functools.cache
def duplicates(effort: Level) -> dict[str, Finding]:
    """The near-duplicates among all tasks that are here, found in one pass."""
    here = []
    for name in TASKS:
        try:
            here.append(opened(name))
        except EnvironmentUnfit:
            continue
    return search(here, here, effort)


def report(name: str, effort: Level) -> Report:
    task = load(name)
    return run(task, effort, known={"near-duplicates": duplicates(effort)[name]})


def assert_kept(found: Report) -> None:
    assert not found.broken, "\n".join(found.lines())
    if found.unfit:
        reasons = {one.reason for one in found.outcomes if one.unfit}
        pytest.skip(f"this machine cannot try {', '.join(found.unfit)}: {'; '.join(reasons)}")


def test_the_tasks_of_the_tracks_are_there() -> None:
    assert {"addition", "list-ops", "counting", "key-value", "modular", "letters"} <= {*TASKS}


@pytest.mark.slow
@pytest.mark.parametrize("name", every(TASKS, 4))
def test_every_rule_on_a_part_drawn_by_hashing(name: str) -> None:
    assert_kept(report(name, "quick"))


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TASKS)
def test_every_rule_on_everything(name: str) -> None:
    assert_kept(report(name, "full"))


@pytest.mark.parametrize("name", TASKS)
def test_sizes_and_levels_of_a_generated_task(name: str) -> None:
    card = Catalog().task_card(name)
    if card.source is not None or card.splits.keys() != SIZES.keys():
        pytest.skip("its sizes are those of a published dataset")
    sizes = getattr(load(name).code, "SIZES", None)
    assert {split: one.count for split, one in card.splits.items()} == (
        asdict(sizes) if isinstance(sizes, Sizes) else SIZES
    )
    assert card.splits["hard"].levels == (3,)
    assert card.splits["train"].levels == card.splits["id"].levels == (1, 2)


def test_freeze_check_agrees() -> None:
    assert freeze("counting", check=True) == load("counting").card


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=EXAMPLES)
@given(text=st.text(st.characters(), max_size=80), index=st.integers(0, 2**16))
def test_verify_is_total_and_repeatable_on_any_text(name: str, text: str, index: int) -> None:
    task = load(name)
    if task.card.heavy:
        pytest.skip("a verdict takes long; the gauntlet tries some texts")
    rows = task.rows("format" if "format" in task.card.splits else "id")
    answer = rows[index % len(rows)]["answer"]
    for judge in (task.verify, task.audit):
        first = score(judge, [text], [answer], name)
        assert first == score(judge, [text], [answer], name)


@pytest.mark.slow
def test_a_wrong_floor_in_the_card_is_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "letters"
    shutil.copytree(load("letters").folder, folder)
    card = (folder / "frozen.toml").read_text()
    (folder / "frozen.toml").write_text(card.replace("floor = 0.002441", "floor = 0.000001"))
    assert CHECKS["floor"](Task(folder), "full").problems
    with pytest.raises(ValidationError, match="frozen.toml:"):
        freeze(folder, check=True)
