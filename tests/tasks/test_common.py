"""Shared letters: found again with sets, and what is paid for."""

from __future__ import annotations

import re

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import Row

TASK = Catalog().load_task("common")
SPLITS = ["train", "train_fixed", "id", "hard", "format"]
LENGTHS = {1: {3, 4}, 2: {5, 6}, 3: {7, 8}}
FORMS = {4: "<{}>", 5: '"{}"'}
PROMPTS = (
    "([a-p]+) ([a-p]+):",
    "letters of ([a-p]+) in ([a-p]+):",
    "([a-p]+) and ([a-p]+) share",
    "keep of ([a-p]+) what ([a-p]+) has:",
    "([a-p]+) ([a-p]+) as <>:",
    "([a-p]+) ([a-p]+) in quotes:",
)


def shown(row: Row) -> tuple[str, str]:
    """The two strings of a prompt."""
    found = re.fullmatch(PROMPTS[row["template"]], row["messages"][-1]["content"])
    assert found, row["id"]
    return found[1], found[2]


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_the_intersection_in_the_order_of_the_first(split: str) -> None:
    for row in TASK.rows(split):
        first, second = shown(row)
        shared = sorted({*first} & {*second}, key=first.index)
        expected = FORMS.get(row["template"], "{}").format("".join(shared))
        assert row["answer"] == expected, row["id"]
        assert 0 < len(shared) < min(len(first), len(second))
        assert {len(first), len(second)} <= LENGTHS[row["level"]]
        assert len({*first}) == len(first) and len({*second}) == len(second)


def test_the_order_of_the_second_string_makes_no_new_key() -> None:
    for row in TASK.rows("id"):
        first, second = shown(row)
        assert row["key"] == f"{first} {''.join(sorted(second))}"


def test_the_order_of_the_first_string_is_asked_for() -> None:
    """Where several letters are shared, the second string mostly has them in another order."""
    several = [row for row in TASK.rows("id") if len(row["answer"]) > 1]
    strings = [(row["answer"], shown(row)[1]) for row in several]
    by_second = ["".join(c for c in second if c in answer) for answer, second in strings]
    alphabetical = ["".join(sorted(answer)) for answer, _ in strings]
    right = [answer for answer, _ in strings]
    for guesses in (by_second, alphabetical):
        same = sum(guess == answer for guess, answer in zip(guesses, right, strict=True))
        assert 0 < same < 0.5 * len(right)


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("bd", "bd"),
        (" bd\n", "bd"),
        ("\n\nbd", "bd"),
        ("<bd>", "<bd>"),
        ('"bd"', '"bd"'),
        ("b", "b"),
    ],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "bd"),
        ("b", "bd"),
        ("db", "bd"),
        ("bdd", "bd"),
        ("bde", "bd"),
        ("abcd", "bd"),
        ("bdxe", "bd"),
        ("abcd bdxe:", "bd"),
        ("abcd bdxe:bd", "bd"),
        ("abcd bdxe: bd", "bd"),
        ("BD", "bd"),
        ("Bd", "bd"),
        ("b d", "bd"),
        ("b,d", "bd"),
        ("bd.", "bd"),
        ("bd bd", "bd"),
        ("bd or db", "bd"),
        ("bd\ndb", "bd"),
        ("b\nd", "bd"),
        ("abcdefghijklmnop", "bd"),
        ("a b c d", "b"),
        ("b\u0501", "bd"),
        ("\uff42\uff44", "bd"),
        ("b\u200bd", "bd"),
        ("bd\x00", "bd"),
        ("bd", "<bd>"),
        ("<bd", "<bd>"),
        ("<<bd>>", "<bd>"),
        ("<db><bd>", "<bd>"),
        ("bd", '"bd"'),
        ("'bd'", '"bd"'),
        ("\u201cbd\u201d", '"bd"'),
        (".*", "bd"),
    ],
)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


def test_lines_before_the_last_count_for_the_verifier_only() -> None:
    text = "both have b and d\nbd"
    assert (TASK.verify(text, "bd"), TASK.audit(text, "bd")) == (1.0, 0.0)


def test_a_list_of_answers_is_too_long_for_the_verifier() -> None:
    wrong = "db\n"
    for count in range(1, 64):
        text = wrong * count + "bd"
        assert TASK.verify(text, "bd") == float(len(text) <= 64)
        assert TASK.audit(text, "bd") == 0.0
