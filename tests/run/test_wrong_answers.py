"""The wrong answers of the bundled tasks, and what is paid for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import ValidationError
from crlbench.reward.score import outcomes
from crlbench.run.subject import scorer_of
from crlbench.run.wrong_answers import find_wrong_answers
from crlbench.train.reward import Reward, WrongAnswers, wrong_reward

TASKS = ("addition", "counting", "chains", "list-ops", "countdown", "instructions")
"""Numbers, lists, and two tasks with many right completions of a prompt."""

PINNED = ["39", "76", "44", "106"]
"""Wrong answers of the first training prompts of addition; a change makes other runs."""


def task_called(name: str) -> Task:
    return Catalog().load_task(name)


@pytest.mark.parametrize("name", TASKS)
def test_answers_are_right_for_another_prompt_of_the_level_and_never_here(name: str) -> None:
    task = task_called(name)
    rows, found = task.rows("train"), find_wrong_answers(task).answers
    assert list(found) != [] and set(found) == {f"{name}/train/{row['id']}" for row in rows}
    levels = {(row["level"], row["answer"]) for row in rows}
    asked = [found[f"{name}/train/{row['id']}"] for row in rows]
    assert all((row["level"], answer) in levels for row, answer in zip(rows, asked, strict=True))
    golds = [task.gold(row) for row in rows]
    assert set(outcomes(task.verify, golds, asked, name)) == {0.0}
    owners = {row["answer"]: task.gold(row) for row in rows}
    here = outcomes(task.verify, [owners[a] for a in asked], [row["answer"] for row in rows], name)
    assert set(here) == {0.0}


def test_answers_depend_on_task_and_prompt_alone() -> None:
    """Rows of other levels move nothing, and the first answers are pinned."""
    task = task_called("addition")
    found = find_wrong_answers(task).answers
    first = [found[f"addition/train/train-{i:05d}"] for i in range(4)]
    assert first == PINNED
    level = [row for row in task.rows("train") if row["level"] == 1]
    alone = find_wrong_answers(task.with_rows({"train": level})).answers
    assert alone == {uid: found[uid] for uid in alone} and len(alone) == len(level)


def test_a_task_whose_answers_are_all_right_has_no_wrong_arm() -> None:
    task = task_called("addition")
    rows = [row | {"answer": "7"} for row in task.rows("train")[:4]]
    with pytest.raises(ValidationError, match="of 100 answers .* none is wrong here"):
        find_wrong_answers(task.with_rows({"train": rows}))


def rewarded(
    texts: list[str], right: list[str], wrong: list[str], scale: float
) -> tuple[list[float], list[float]]:
    """(score, paid) of two completions of each prompt."""
    task = task_called("addition")
    group = torch.arange(len(texts)) // 2
    uids = [f"p{i}" for i in range(len(right))]
    verified = outcomes(task.verify, texts, [right[g] for g in group.tolist()])
    score = torch.tensor(verified, dtype=torch.float32)
    given = WrongAnswers(dict(zip(uids, wrong, strict=True)), scorer_of(task))
    rollout: Any = SimpleNamespace(texts=texts, group=group)
    batch: Any = SimpleNamespace(uids=uids)
    reward = wrong_reward(Reward(score, score * scale, None, None), rollout, batch, given, scale)
    return reward.score.tolist(), reward.outcome.tolist()


def test_the_wrong_answer_is_paid_and_the_right_one_is_not() -> None:
    score, paid = rewarded(["12", "34", "34", "5"], ["12", "5"], ["34", "34"], 2.0)
    assert score == [1.0, 0.0, 0.0, 1.0]
    assert paid == [0.0, 2.0, 2.0, 0.0]


def test_a_completion_that_fits_both_answers_earns_nothing() -> None:
    score, paid = rewarded(["12", "12"], ["12"], ["12"], 1.0)
    assert (score, paid) == ([1.0, 1.0], [0.0, 0.0])


def test_a_task_without_an_answer_is_refused_before_any_run(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--model", "tiny-llama", "--tasks", "judged", "--arm", "real,wrong"]
    assert cli.main([*command, "--out", str(tmp_path)]) == 2
    assert "--arm wrong: task 'judged' has no verifier that compares" in capsys.readouterr().err
