"""Sequences: continued again by their differences, after examples that give no item away."""

from __future__ import annotations

import re
from typing import Any

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("sequences")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
STEPS = {1: range(1, 3), 2: range(11, 20), 3: range(21, 50)}
FORMS = {4: "<{next}>", 5: "{last}+{step}={next}"}


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall("[0-9]+", text)]


def continued(prompt: str, template: int) -> str:
    """The answer by the differences of the numbers of a prompt, which must all be one."""
    found = numbers(prompt)
    (step,) = {after - before for before, after in zip(found, found[1:], strict=False)}
    form = FORMS.get(template, "{next}")
    return form.format(last=found[-1], step=step, next=found[-1] + step)


def turns(row: Any) -> list[tuple[str, str]]:
    """The solved examples of a row: what was asked and what was answered."""
    told = row["messages"][1:-1]
    assert [message["role"] for message in told] == ["user", "assistant"] * (len(told) // 2)
    texts = [message["content"] for message in told]
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_goes_on_by_the_step_of_its_numbers(split: str) -> None:
    for row in TASK.rows(split):
        prompt = row["messages"][-1]["content"]
        first, second, *rest = numbers(prompt)
        assert row["answer"] == continued(prompt, row["template"]), row["id"]
        assert len(rest) == 4 and second - first in STEPS[row["level"]]
        assert row["key"] == f"{first}+{second - first}"


@pytest.mark.parametrize("split", SPLITS)
def test_the_examples_are_solved_in_the_format_that_is_asked_for(split: str) -> None:
    for row in TASK.rows(split):
        examples = turns(row)
        assert len(examples) == 2
        for prompt, answer in examples:
            assert answer == continued(prompt, row["template"]), row["id"]
            assert TASK.verify(answer, answer) == TASK.audit(answer, answer) == 1.0


def test_no_item_is_one_of_the_examples() -> None:
    shown = {numbers(prompt)[0] for row in TASK.rows("format") for prompt, _ in turns(row)}
    firsts = {numbers(row["key"])[0] for split in SPLITS for row in TASK.rows(split)}
    assert len(shown) == 2 and not shown & firsts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("60", "60"),
        ("The next number is 60.", "60"),
        ("so <60>", "<60>"),
        ("58 + 2 = 60", "58+2=60"),
    ],
)
def test_right_answers_are_paid(text: str, answer: str) -> None:
    assert TASK.verify(text, answer) == 1.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "60"),
        ("58", "60"),
        ("60, 62", "60"),
        ("060", "60"),
        ("60", "<60>"),
        ("60", "58+2=60"),
        ("52, 54, 56, 58, 60", "60"),  # a sequence is no answer: five numbers
    ],
)
def test_wrong_answers_are_not(text: str, answer: str) -> None:
    assert TASK.verify(text, answer) == 0.0
