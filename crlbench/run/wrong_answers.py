"""The fixed wrong answers of a task: what the wrong arm pays for instead of the right ones.

Each training prompt is given the answer of another one of its level, by a keyed draw. The draw
depends on the task and the prompt alone, so every run, seed, visit and model has the same answers.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.errors import ValidationError
from crlbench.run.subject import scorer_of, uid_of
from crlbench.seeding import derive
from crlbench.train.reward import WrongAnswers

DRAWS = 100
"""Prompts that are tried for one."""


def find_wrong_answers(task: Task) -> WrongAnswers:
    """The wrong answers of all training prompts of a task.

    The answer of another prompt fits where the verifier pays nothing for its right completion here,
    and nothing for the right completion here when it is asked for that answer.

    Raises:
        ValidationError: the task states no right completion, or no answer fits a prompt.
    """
    rows, score = task.rows("train"), scorer_of(task)
    golds = [_gold(task, row) for row in rows]
    levels: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        levels[row["level"]].append(number)
    answers: dict[str, str] = {}
    open_rows = list(range(len(rows)))
    for draw in range(DRAWS):
        others = [_draw(task, rows[i], levels[rows[i]["level"]], draw) for i in open_rows]
        foreign = score([golds[j] for j in others], [rows[i]["answer"] for i in open_rows])
        kept = score([golds[i] for i in open_rows], [rows[j]["answer"] for j in others])
        paid = np.array([a.outcome + b.outcome for a, b in zip(foreign, kept, strict=True)])
        for place in np.flatnonzero(paid == 0.0):
            uid = uid_of(task, "train", rows[open_rows[place]])
            answers[uid] = rows[others[place]]["answer"]
        open_rows = [i for i, value in zip(open_rows, paid, strict=True) if value > 0.0]
        if not open_rows:
            return WrongAnswers(answers, score)
    raise ValidationError(
        f"task '{task.name}', {uid_of(task, 'train', rows[open_rows[0]])}: of {DRAWS} answers to "
        "other prompts of its level none is wrong here, so there is nothing that a wrong arm could "
        "pay for. Leave wrong out of --arm, or this task out of --tasks."
    )


def _draw(task: Task, row: Row, level: list[int], draw: int) -> int:
    """The number of a training row of the same level."""
    return level[derive(0, "wrong", task.name, uid_of(task, "train", row), draw) % len(level)]


def _gold(task: Task, row: Row) -> str:
    gold = task.gold(row)
    if gold is None:
        raise ValidationError(
            f"task '{task.name}', {uid_of(task, 'train', row)}: the task states no right "
            "completion, so no other answer can be known to be wrong. Leave wrong out of --arm, or "
            "this task out of --tasks."
        )
    return gold
