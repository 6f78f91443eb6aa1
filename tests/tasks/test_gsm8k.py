"""GSM8K from the real files: counts, levels, every gold, and what train and test share."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from tests.support.external_data import DATA, fetched, needs_data

pytestmark = needs_data


def gsm8k() -> Task:
    return fetched("gsm8k")


def question(row: Row) -> str:
    return row["messages"][-1]["content"]


@pytest.mark.slow
def test_every_gold_of_every_row_is_paid_by_both_judges() -> None:
    task = gsm8k()
    rows = [row for split in task.card.splits for row in task.rows(split)]
    assert len(rows) == 8619
    for row in rows:
        assert task.verify(row["answer"], row["answer"]) == 1.0, row["id"]
        assert task.audit(row["answer"], row["answer"]) == 1.0, row["id"]


@pytest.mark.slow
def test_id_and_hard_are_the_whole_test_file_and_train_the_easier_training_file() -> None:
    task = gsm8k()
    lines = [row["meta"]["line"] for split in ("id", "hard") for row in task.rows(split)]
    assert sorted(lines) == [*range(1, 1320)]
    assert Counter(row["level"] for row in task.rows("id")) == {1: 697, 2: 472}
    assert Counter(row["level"] for row in task.rows("train")) == {1: 4110, 2: 2614}
    assert {row["meta"]["steps"] for row in task.rows("hard")} == {6, 7, 8, 9, 11}


@pytest.mark.slow
def test_a_known_problem_stands_where_it_should() -> None:
    row = next(row for row in gsm8k().rows("id") if "Janet\u2019s ducks" in question(row))
    assert row["answer"] == "18" and row["meta"]["line"] == 1 and row["level"] == 1


def test_golds_are_whole_numbers_without_commas() -> None:
    task = gsm8k()
    answers = [row["answer"] for split in ("train", "id", "hard") for row in task.rows(split)]
    assert all(re.fullmatch(r"-?(0|[1-9][0-9]*)", answer) for answer in answers)
    assert sum(answer.startswith("-") for answer in answers) >= 3


def test_a_reply_is_judged_by_its_end_and_by_the_format_that_was_asked_for() -> None:
    task = gsm8k()
    by_template = {row["template"]: row for row in task.rows("format")}
    for template, row in by_template.items():
        number = re.sub(r"[^0-9-]", "", row["answer"])
        thought = f"First I add 3 and 4 to get 7. So it is {number}."
        free = template < 3
        assert task.verify(thought, row["answer"]) == float(free), template
        asked = {3: "#### ", 4: r"\boxed{}", 5: "<answer>"}.get(template, "")
        assert asked in row["messages"][0]["content"]
    assert sorted(by_template) == [1, 2, 3, 4, 5]


@needs_data
def test_published_solutions_are_read_without_their_last_line_too() -> None:
    """37 of them end on another number than their answer."""
    packed = (Path(DATA or "") / "gsm8k" / "test.jsonl.gz").read_bytes()
    told = [json.loads(line)["answer"] for line in gzip.decompress(packed).splitlines()]
    parts = [solution.rpartition("\n#### ") for solution in told]
    verify = gsm8k().verify
    assert sum(verify(body, answer.replace(",", "")) for body, _, answer in parts) == 1282


def shingles(text: str) -> set[tuple[str, ...]]:
    """Runs of five words, with every number written as one sign."""
    words = ["#" if word.isdigit() else word for word in re.findall(r"\w+", text.casefold())]
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


@pytest.mark.slow
def test_few_test_problems_are_near_duplicates_of_training_problems() -> None:
    task = gsm8k()
    train = [shingles(question(row)) for row in task.rows("train")]
    places = defaultdict(set)
    for i, own in enumerate(train):
        for shingle in own:
            places[shingle].add(i)
    nearest = []
    for row in task.rows("id") + task.rows("hard"):
        own = shingles(question(row))
        shared = Counter(i for shingle in own for i in places.get(shingle, ()))
        nearest.append(max((n / len(own | train[i]) for i, n in shared.items()), default=0.0))
    assert sum(share >= 0.5 for share in nearest) == 2
    assert sum(share >= 0.3 for share in nearest) == 4
