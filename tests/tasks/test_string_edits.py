"""The edited words, worked out again from what a model is shown."""

from __future__ import annotations

import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("string-edits")
NASTY = [
    "",
    "emat",
    "tamE",
    "TAme",
    "tame",
    "t a m E s",
    "tamEs tamEs",
    "<tamEs>",
    '"tamEs"',
    "tamEs.",
    "The new word is tamEs",
    "tamEs\nsEmat",
    "tames",
    "TAMES",
    "tamEss",
    "tam\u0415s",
    "t\u0430mEs",
    "tamE\u200bs",
    "\u202etamEs",
    "tamEs\x00",
    "tame\u0301s",
    "t-a-m-E-s",
    "tamE|s",
    ".*",
]
TEMPLATES = (
    r"(\w+): (.+)",
    None,
    r"word (\w+); (.+):",
    r"start with (\w+), then (.+):",
    r"(\w+): (.+) as <>:",
    r"(\w+): (.+) with hyphens:",
)


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize("text", NASTY)
def test_wrong(judge: str, text: str) -> None:
    assert getattr(TASK, judge)(text, "tamEs") == 0.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize("text", ["tamEs", " tamEs\n", "\n\ntamEs"])
def test_right(judge: str, text: str) -> None:
    assert getattr(TASK, judge)(text, "tamEs") == 1.0


@pytest.mark.parametrize("judge", ["verify", "audit"])
@pytest.mark.parametrize("text", ["abc", "<abc", "<a-b-c>", "<<abc>>", "<ab><abc>", "a-b-c"])
def test_other_formats_than_the_asked_one_are_wrong(judge: str, text: str) -> None:
    assert getattr(TASK, judge)(text, "<abc>") == 0.0


def test_words_before_the_last_line_count_for_the_verifier_only() -> None:
    text = "reversed:\ntamEs"
    assert (TASK.verify(text, "tamEs"), TASK.audit(text, "tamEs")) == (1.0, 0.0)


def edited(letters: list[str], edit: str) -> list[str]:
    """One edit, in either wording of the templates."""
    at = [int(number) for number in re.findall("[0-9]+", edit)]
    if edit in ("reverse", "turn it around"):
        return [*reversed(letters)]
    if edit in ("sort", "put its letters in alphabetical order"):
        return sorted(letters)
    (first, *rest), size = at, len(letters)
    assert all(1 <= place <= size for place in at)
    if edit.startswith(("rotate", "move its first")):
        return [letters[(i + first) % size] for i in range(size)]
    if edit.startswith(("drop", "remove letter")):
        return [letter for i, letter in enumerate(letters, start=1) if i != first]
    if edit.startswith(("upper", "make letter")):
        return [c.upper() if i == first else c for i, c in enumerate(letters, start=1)]
    assert edit.startswith(("swap", "let letters"))
    places = {first: rest[0], rest[0]: first}
    return [letters[places.get(i, i) - 1] for i in range(1, size + 1)]


@pytest.mark.parametrize("split", ["train", "id", "hard", "format"])
def test_the_answer_follows_from_the_prompt(split: str) -> None:
    for row in TASK.rows(split):
        pattern, text = TEMPLATES[row["template"]], row["messages"][-1]["content"]
        if pattern is None:
            edits, word = text.removesuffix(":").rsplit(" ", 1)
        else:
            shown = re.fullmatch(pattern, text)
            assert shown, text
            word, edits = shown.groups()
        steps = re.split(", then |, ", edits)
        assert len(steps) == row["level"]
        letters = [*word]
        for step in steps:
            assert not (step.startswith(("sort", "put")) and re.search("[A-Z]", "".join(letters)))
            letters = edited(letters, step)
        plain = re.sub("[-<>]", "", row["answer"])
        assert plain == "".join(letters)
        assert plain != word
        shape = {4: f"<{plain}>", 5: "-".join(plain)}
        assert row["answer"] == shape.get(row["template"], plain)
