"""The function-calling tasks from the published files: rows, golds, and what guessing earns."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from tests.support.external_data import fetched, needs_data

pytestmark = needs_data

ROWS = {
    "bfcl-simple": {1: 108, 2: 231, 3: 61},
    "bfcl-multiple": {1: 79, 2: 85, 3: 36},
    "bfcl-parallel": {1: 109, 2: 52, 3: 39},
    "bfcl-parallel-multiple": {1: 64, 2: 66, 3: 70},
    "bfcl-irrelevance": {1: 240, 2: 240},
}
"""Rows of each level. Of functions and calls the counts are the published ones."""
CALLS = [name for name in ROWS if name != "bfcl-irrelevance"]


def task_of(name: str) -> Task:
    return fetched(name)


def judged(task: Task, text: str, row: Row) -> float:
    found = task.verify(text, row["answer"])
    assert task.audit(text, row["answer"]) == found, (row["meta"], text)
    return found


@pytest.mark.parametrize("name", ROWS)
def test_the_set_is_whole(name: str) -> None:
    rows = task_of(name).rows("id")
    assert Counter(row["level"] for row in rows) == ROWS[name]
    assert len({row["meta"]["published"] for row in rows}) == len(rows)
    for row in rows:
        assert [m["role"] for m in row["messages"]] == ["system", "user"]
        offered = json.loads(row["answer"])["functions"]
        assert all(f'"name": "{name}"' in row["messages"][0]["content"] for name in offered)


@pytest.mark.parametrize("name", ROWS)
def test_golds_are_right_and_those_of_other_rows_are_wrong(name: str) -> None:
    task = task_of(name)
    rows = task.rows("id")
    golds = [str(task.gold(row)) for row in rows]
    assert all(judged(task, gold, row) == 1.0 for gold, row in zip(golds, rows, strict=True))
    others = zip(golds[1:] + golds[:1], rows, strict=True)
    score = sum(judged(task, gold, row) for gold, row in others) / len(rows)
    assert score <= (0.5 if name == "bfcl-irrelevance" else 0.0) + 0.01
    assert max(len(gold.encode()) for gold in golds) <= task.card.max_completion_bytes


def changed(calls: list[Any], how: str) -> list[Any]:
    """Published calls of which the first is spoiled."""
    ((name, accepted),) = calls[0].items()
    one = next(iter(accepted))
    if how == "other name":
        first: dict[str, Any] = {f"{name}_x": accepted}
    elif how == "other value":
        first = {name: {**accepted, one: ["quite another value"]}}
    else:
        first = {name: {**accepted, "not_declared": [1]}}
    return [] if how == "none" else [first, *calls[1:]]


@pytest.mark.parametrize("how", ["none", "other name", "other value", "unknown argument"])
@pytest.mark.parametrize("name", CALLS)
def test_a_spoiled_gold_is_wrong(name: str, how: str) -> None:
    task = task_of(name)
    tried = 0
    for row in task.rows("id"):
        facts = json.loads(row["answer"])
        calls = changed(facts["calls"], how)
        functions = facts["functions"] | {f"{f}_x": one for f, one in facts["functions"].items()}
        spoiled = json.dumps({**facts, "calls": calls, "functions": functions})
        text = task.code.gold(spoiled)
        if text != task.gold(row):
            tried += 1
            assert judged(task, text, row) == 0.0, (row["meta"], text)
    assert tried >= 0.95 * len(task.rows("id"))


def test_silence_and_eagerness_are_worth_half_where_relevance_is_asked() -> None:
    task = task_of("bfcl-irrelevance")
    rows = task.rows("id")
    for text in ("", "No function fits.", "[f()]"):
        assert sum(judged(task, text, row) for row in rows) == 240
    assert task.card.splits["id"].floor == 0.5


@pytest.mark.parametrize("name", CALLS)
def test_guessing_earns_next_to_nothing(name: str) -> None:
    """One request of ``simple`` is the call itself, written as code."""
    assert task_of(name).card.splits["id"].floor == (1 / 400 if name == "bfcl-simple" else 0.0)


def test_the_tasks_are_of_one_family() -> None:
    """Half of the requests of ``multiple`` are those of ``simple``."""
    assert {task_of(name).card.relative or name for name in ROWS} == {"bfcl-simple"}
    simple, multiple = (
        {row["messages"][1]["content"] for row in task_of(name).rows("id")}
        for name in ("bfcl-simple", "bfcl-multiple")
    )
    assert len(simple & multiple) >= 90
