"""The truth values, worked out again from what a model is shown."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("logic")
WRONG = [
    ("", "T F F T"),
    ("T", "T F F T"),
    ("T F F", "T F F T"),
    ("T F F T F", "T F F T"),
    ("T F F F", "T F F T"),
    ("TFFT", "T F F T"),
    ("T,F,F,T", "T F F T"),
    ("t f f t", "T F F T"),
    ("1 0 0 1", "T F F T"),
    ("1001", "T F F T"),
    ("<T F F T>", "T F F T"),
    ("T F F T.", "T F F T"),
    ("T F F T or F T T F", "T F F T"),
    ("T F F T T F F T", "T F F T"),
    ("T F F T\nF T T F", "T F F T"),
    ("true false false true", "T F F T"),
    ("T/F T/F T/F T/F", "T F F T"),
    ("\u03a4 F F \u03a4", "T F F T"),
    ("T F F \uff34", "T F F T"),
    ("T\u200b F F T", "T F F T"),
    ("A=T B=F: T F F T", "T F F T"),
    ("The values are T F F T", "T F F T"),
    ("T F F T", "<T F F T>"),
    ("<T F F T", "<T F F T>"),
    ("<T><F><F><T>", "<T F F T>"),
    ("<F T T F><T F F T>", "<T F F T>"),
    ("<TFFT>", "<T F F T>"),
    ("T F F T", "1001"),
    ("1 0 0 1", "1001"),
    ("01001", "1001"),
    ("1001.0", "1001"),
    ("0b1001", "1001"),
    ("\u0661\u0660\u0660\u0661", "1001"),
]


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(("text", "answer"), WRONG)
def test_wrong(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 0.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize(
    ("text", "answer"),
    [("T F", "T F"), (" T  F\n", "T F"), ("\n<T F>", "<T F>"), ("10\n", "10")],
)
def test_right(judge: str, text: str, answer: str) -> None:
    assert getattr(TASK, judge)(text, answer) == 1.0


def test_words_before_the_last_line_count_for_the_verifier_only() -> None:
    text = "A follows, B does not:\nT F F T"
    assert (TASK.verify(text, "T F F T"), TASK.audit(text, "T F F T")) == (1.0, 0.0)


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_no_answer_is_more_frequent_than_one_in_eight(split: str) -> None:
    rows = TASK.rows(split)
    for kind in ("evaluate", "derive"):
        answers = Counter(row["answer"] for row in rows if row["meta"]["kind"] == kind)
        assert max(answers.values()) <= answers.total() / 8
        assert 0.4 < answers.total() / len(rows) < 0.6


def evaluated(given: str, formula: str) -> bool:
    """By Python's own connectives; of truth values, a implies b is a <= b."""
    truth = {letter: value == "T" for letter, value in re.findall("([A-Z])=([TF])", given)}
    formula = re.sub("not ([A-Z])", r"(not \1)", formula).replace("implies", "<=")
    return bool(eval(formula, {}, truth))


def derived(given: str) -> set[str]:
    """All letters that follow, by applying the rules until nothing is new."""
    facts, rules = given.removeprefix("facts ").split("; rules ")
    known, size = {*facts.split(", ")}, -1
    pairs = [rule.split(" -> ") for rule in rules.split(", ")]
    while size != len(known):
        size = len(known)
        known |= {head for body, head in pairs if {*body.split(" and ")} <= known}
    return known


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_the_answer_follows_from_the_prompt(split: str) -> None:
    for row in TASK.rows(split):
        given, listing = row["messages"][-1]["content"].split(": ")
        asked = listing.split(", ")
        if row["meta"]["kind"] == "evaluate":
            values = [evaluated(given, formula) for formula in asked]
        else:
            follow = derived(given)
            values = [letter in follow for letter in asked]
        assert row["answer"] == " ".join("FT"[value] for value in values)
        assert len({*asked}) == len(asked) == (5 if row["level"] == 3 else 4)


def test_the_paraphrases_tell_the_same_and_ask_for_the_same_values() -> None:
    told: dict[str, list[str]] = {}
    for row in TASK.rows("format"):
        told.setdefault(row["meta"]["source"], []).append(row["answer"])
    for first, *others, bracketed, digits in told.values():
        assert {first, *others} == {first}
        assert bracketed == f"<{first}>"
        assert digits == first.replace(" ", "").translate(str.maketrans("TF", "10"))
