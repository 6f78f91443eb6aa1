"""Runs: written out again to the string of the prompt, and what is paid for."""

from __future__ import annotations

import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("runs")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
COUNTS = {1: {2, 3}, 2: {4, 5}, 3: {6, 7}}
FORMS = {4: r"<((?:[a-h][1-4])+)>", 5: r"((?:[a-h][1-4])(?:,[a-h][1-4])*)"}
PROMPTS = (
    r"([a-h]+):",
    r"runs of ([a-h]+):",
    r"([a-h]+) has the runs",
    r"how long are the runs of ([a-h]+)\?",
    r"([a-h]+): as <>",
    r"([a-h]+): with commas",
)


@pytest.mark.parametrize("split", SPLITS)
def test_the_runs_of_an_answer_make_the_string_of_its_prompt(split: str) -> None:
    for row in TASK.rows(split):
        shown = re.fullmatch(PROMPTS[row["template"]], row["messages"][-1]["content"])
        answer = re.fullmatch(FORMS.get(row["template"], r"((?:[a-h][1-4])+)"), row["answer"])
        assert shown and answer, row["id"]
        runs = re.findall("([a-h])([1-4])", answer[1])
        assert "".join(letter * int(length) for letter, length in runs) == shown[1] == row["key"]
        assert all(a != b for (a, _), (b, _) in zip(runs, runs[1:], strict=False))
        assert len(runs) in COUNTS[row["level"]]


def test_letters_come_back_and_runs_of_one_letter_occur() -> None:
    """So neither the number of a letter nor its first place is the length of a run."""
    answers = [row["answer"] for row in TASK.rows("id")]
    letters = [re.findall("[a-h]", answer) for answer in answers]
    assert sum(len({*found}) < len(found) for found in letters) > len(answers) / 5
    lengths = re.findall("[1-4]", "".join(answers))
    assert all(lengths.count(length) > len(lengths) / 5 for length in "1234")


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a3b1c2", "a3b1c2"),
        (" a3b1c2\n", "a3b1c2"),
        ("\n\na3b1c2", "a3b1c2"),
        ("<a3b1c2>", "<a3b1c2>"),
        ("a3,b1,c2", "a3,b1,c2"),
    ],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "a3b1c2"),
        ("aaabcc", "a3b1c2"),
        ("aaabcc:", "a3b1c2"),
        ("aaabcc:a3b1c2", "a3b1c2"),
        ("a3bc2", "a3b1c2"),
        ("a3c2", "a3b1c2"),
        ("a3b1c3", "a3b1c2"),
        ("c2b1a3", "a3b1c2"),
        ("3a1b2c", "a3b1c2"),
        ("a2a1b1c2", "a3b1c2"),
        ("a3b1c2a", "a3b1c2"),
        ("a3b1c2c2", "a3b1c2"),
        ("a03b1c2", "a3b1c2"),
        ("a3b1c2d0", "a3b1c2"),
        ("A3B1C2", "a3b1c2"),
        ("a3 b1 c2", "a3b1c2"),
        ("a3b1c2.", "a3b1c2"),
        ("a3b1c2 a3b1c2", "a3b1c2"),
        ("a3b1c2 or a3b1c1", "a3b1c2"),
        ("a3b1c2\na3b1c1", "a3b1c2"),
        ("a1a2a3a4b1b2b3b4c1c2c3c4", "a3b1c2"),
        ("a\uff13b1c2", "a3b1c2"),
        ("a\u00b3b1c2", "a3b1c2"),
        ("\u04303b1c2", "a3b1c2"),
        ("a3\u200bb1c2", "a3b1c2"),
        ("a3b1c2\x00", "a3b1c2"),
        ("a3b1c2", "<a3b1c2>"),
        ("<a3b1c2", "<a3b1c2>"),
        ("<a3><b1c2>", "<a3b1c2>"),
        ("<<a3b1c2>>", "<a3b1c2>"),
        ("a3b1c2", "a3,b1,c2"),
        ("a3, b1, c2", "a3,b1,c2"),
        ("a3,b1,c2,", "a3,b1,c2"),
        ("a,3b,1c,2", "a3,b1,c2"),
        (".*", "a3b1c2"),
    ],
)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_lines_before_the_last_count_for_the_verifier_only() -> None:
    text = "aaa, b, cc\na3b1c2"
    assert (TASK.verify(text, "a3b1c2"), TASK.audit(text, "a3b1c2")) == (1.0, 0.0)


def test_a_list_of_answers_is_too_long_for_the_verifier() -> None:
    wrong = "a3b1c1\n"
    for count in range(1, 64):
        text = wrong * count + "a3b1c2"
        assert TASK.verify(text, "a3b1c2") == float(len(text) <= 64)
        assert TASK.audit(text, "a3b1c2") == 0.0


def test_a_beginning_of_the_answer_earns_nothing() -> None:
    for row in TASK.rows("hard"):
        for size in range(len(row["answer"])):
            text = row["answer"][:size]
            assert TASK.verify(text, row["answer"]) == TASK.audit(text, row["answer"]) == 0.0
