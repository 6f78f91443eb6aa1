"""Brackets: the answer closes the text, tried by taking pairs away, and what is paid for."""

from __future__ import annotations

import re

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import Row

TASK = Catalog().load_task("brackets")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
OPEN = {1: {3, 4, 5}, 2: {6, 7, 8}, 3: {9, 10}}
CLOSED = {1: {2, 3}, 2: {5, 6, 7}, 3: {8, 9, 10}}
SIGNS = r"[()\[\]{}]+"
PROMPTS = (
    rf"({SIGNS})",
    rf"close ({SIGNS})",
    rf"what is missing after ({SIGNS})",
    rf"({SIGNS}) ends with",
    rf"({SIGNS}) in quotes:",
    rf"({SIGNS}) with commas:",
)


def left_over(text: str) -> str:
    """What remains after every pair of neighbours that match has been taken away, repeatedly."""
    while re.search(r"\(\)|\[\]|\{\}", text):
        text = re.sub(r"\(\)|\[\]|\{\}", "", text)
    return text


def shown(row: Row) -> str:
    """The brackets of a prompt."""
    found = re.fullmatch(PROMPTS[row["template"]], row["messages"][-1]["content"])
    assert found, row["id"]
    return found[1]


@pytest.mark.parametrize("split", SPLITS)
def test_an_answer_closes_its_text_and_no_more(split: str) -> None:
    for row in TASK.rows(split):
        text, answer = shown(row), row["answer"]
        if row["template"] == 4:
            assert answer[0] == answer[-1] == '"'
            answer = answer[1:-1]
        elif row["template"] == 5:
            assert {*answer[1::2]} == {","}
            answer = answer[::2]
        assert re.fullmatch(r"[)\]}]+", answer)
        assert left_over(text + answer) == ""
        assert text == row["key"]


@pytest.mark.parametrize("split", SPLITS)
def test_a_level_has_its_numbers_and_a_pair_inside_an_open_bracket(split: str) -> None:
    for row in TASK.rows(split):
        text = shown(row)
        still_open = left_over(text)
        assert re.fullmatch(r"[(\[{]+", still_open)
        assert len(still_open) in OPEN[row["level"]]
        assert (len(text) - len(still_open)) // 2 in CLOSED[row["level"]]
        before = re.fullmatch(r"(.*[)\]}])?[(\[{]*", text)[1]
        assert left_over(before) != ""  # the last closed pair stands inside an open bracket
        if row["level"] > 1:
            assert re.search(r"[)\]}]{3}", text)


def test_turning_the_text_around_is_no_answer() -> None:
    mirror = str.maketrans("([{)]}", ")]}([{")
    for split in ("id", "hard"):
        rows, right = TASK.rows(split), 0
        for row in rows:
            turned = row["key"][::-1].translate(mirror)
            opened = re.sub(r"[)\]}]", "", row["key"])[::-1].translate(mirror)
            for text in (turned, opened):
                assert TASK.verify(text, row["answer"]) == TASK.audit(text, row["answer"]) == 0.0
            right += opened[: len(row["answer"])] == row["answer"]
        assert right < 0.2 * len(rows)


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (")])", ")])"),
        (" )])\n", ")])"),
        ("\n\n)])", ")])"),
        ('")])"', '")])"'),
        ("),],)", "),],)"),
    ],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", ")])"),
        ("([{}(", ")])"),
        ("([{}()])", ")])"),
        ("([(", ")])"),
        ("(](", ")])"),
        (")]", ")])"),
        (")])]", ")])"),
        ("))]", ")])"),
        (")}])", ")])"),
        (") ] )", ")])"),
        (")])()", ")])"),
        ("()])", ")])"),
        (")]) )])", ")])"),
        (")]) or ]))", ")])"),
        (")])\n]))", ")])"),
        (")])]})]}", ")])"),
        (")]}" * 9, ")])"),
        ("\uff09\uff3d\uff09", ")])"),
        (")\u200b])", ")])"),
        (")])\x00", ")])"),
        (")])", '")])"'),
        ("')])'", '")])"'),
        ('")])', '")])"'),
        ("\u201c)])\u201d", '")])"'),
        (")])", "),],)"),
        ("), ], )", "),],)"),
        ("),],),", "),],)"),
        (".*", ")])"),
    ],
)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_lines_before_the_last_count_for_the_verifier_only() -> None:
    text = "open are ( [ (\n)])"
    assert (TASK.verify(text, ")])"), TASK.audit(text, ")])")) == (1.0, 0.0)


def test_a_list_of_answers_is_too_long_for_the_verifier() -> None:
    wrong = ")]]\n"
    for count in range(1, 64):
        text = wrong * count + ")])"
        assert TASK.verify(text, ")])") == float(len(text) <= 64)
        assert TASK.audit(text, ")])") == 0.0
