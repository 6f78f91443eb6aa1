"""Sequences: continued again by their differences."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_goes_on_by_the_step_of_its_numbers(split: str) -> None:
    for row in TASK.rows(split):
        prompt = row["messages"][-1]["content"]
        first, second, *rest = numbers(prompt)
        assert row["answer"] == continued(prompt, row["template"]), row["id"]
        assert len(rest) == 4 and second - first in STEPS[row["level"]]
        assert row["key"] == f"{first}+{second - first}"


@pytest.mark.parametrize("split", SPLITS)
def test_a_model_is_shown_the_problem_alone(split: str) -> None:
    for row in TASK.rows(split):
        assert [message["role"] for message in row["messages"]] == ["system", "user"]


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
