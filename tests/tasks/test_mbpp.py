"""MBPP: which part of a completion is its program, what is paid, and who is in which split."""

from __future__ import annotations

import gzip
import json
import os
import types
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.code import load_code
from crlbench.reward.code_reply import ASKED, program_in
from crlbench.reward.code_reply_audit import read_program
from crlbench.suite.external import split_rows

FOLDER = Path(__file__).parents[2] / "tasks" / "mbpp"
DATA = os.environ.get("CRLBENCH_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="CRLBENCH_DATA names no folder with datasets")
RIGHT = "def twice(x):\n    return 2 * x\n"
WRONG = "def twice(x):\n    return x * x\n"
FACTS = {
    "setup": "import math",
    "entry": "twice",
    "tests": ["assert twice(2) == 4", "assert twice(3) == math.prod([2, 3])"],
    "challenge": ["assert twice('ab') == 'abab'"],
    "gold": RIGHT,
}


@pytest.fixture(scope="module")
def code() -> types.ModuleType:
    return load_code(FOLDER / "task.py")


@pytest.fixture(scope="module")
def rows(code: types.ModuleType) -> dict[str, list[dict[str, Any]]]:
    path = Path(DATA or "") / "mbpp" / "mbpp.jsonl.gz"
    return split_rows(code, {"mbpp.jsonl": gzip.decompress(path.read_bytes())})


def answer(form: str, **facts: Any) -> str:
    return json.dumps({**FACTS, **facts, "form": form})


PROGRAMS = [
    ("block", f"```python\n{RIGHT}```", RIGHT),
    ("block", f"A try:\n```\n{WRONG}```\nIt squares.\n```\n{RIGHT}```", RIGHT),
    ("block", f"Sure:\n```\n{RIGHT}```\nIt doubles:\n```\nprint(twice(2))\n```", RIGHT),
    ("block", f"```py\n{RIGHT}", RIGHT),
    ("block", RIGHT, RIGHT),
    ("bare", RIGHT, RIGHT),
    ("tags", f"<answer>{WRONG}</answer> <answer>{RIGHT}</answer>", RIGHT),
    ("tags", f"<answer>\n```python\n{RIGHT}```\n</answer>", RIGHT),
    ("tags", RIGHT, ""),
    ("tags", f"<answer>{RIGHT}", ""),
    ("bare", RIGHT + "#" * 10_000, ""),
]


@pytest.mark.parametrize(("form", "text", "program"), PROGRAMS)
def test_one_rule_finds_the_program(form: str, text: str, program: str) -> None:
    for read in (program_in, read_program):
        assert read(text, form, "twice").strip("\n") == program.strip("\n")


@pytest.mark.parametrize(
    ("form", "text", "paid"),
    [
        *((form, text, bool(program)) for form, text, program in PROGRAMS),
        ("block", f"```\n{RIGHT}```\n```\n{WRONG}```", False),
        ("bare", f"```\n{RIGHT}```", False),
        ("block", "", False),
        ("block", "def twice(x: return 2 * x", False),
        ("block", "def other(x): return 2 * x", False),
        ("block", f"import sys\nsys.exit(0)\n{RIGHT}", False),
        ("block", "def twice(x):\n    import os\n    os._exit(0)", False),
        (
            "block",
            "class twice:\n    __init__ = lambda s, x: None\n    __eq__ = lambda *a: 1",
            False,
        ),
        ("block", "def twice(x): return 4", False),
        ("block", "twice = lambda x: x + x", True),
        ("block", "\0\ud800", False),
    ],
)
def test_completions_are_paid_by_both_or_by_neither(
    code: types.ModuleType, form: str, text: str, paid: bool
) -> None:
    assert code.verify(text, answer(form)) == paid
    assert code.audit(text, answer(form)) == paid


def test_a_program_that_counts_its_calls_passes_the_verifier_and_not_the_audit(
    code: types.ModuleType,
) -> None:
    """What the audit is for: the first test is in the prompt, the order of tests is known."""
    counting = "answers = [4, 6]\ndef twice(x):\n    return answers.pop(0)\n"
    text = f"```python\n{counting}```"
    assert (code.verify(text, answer("block")), code.audit(text, answer("block"))) == (1.0, 0.0)


@pytest.mark.parametrize("form", ASKED)
def test_the_gold_is_a_completion_of_the_form_asked_for(code: types.ModuleType, form: str) -> None:
    given = answer(form)
    assert code.verify(code.gold(given), given) == code.audit(code.gold(given), given) == 1.0


@pytest.mark.slow
@needs_data
def test_the_published_numbers_decide_the_splits(
    rows: dict[str, list[dict[str, Any]]],
) -> None:
    numbers = {split: {row["meta"]["number"] for row in rows[split]} for split in rows}
    assert all(11 <= n <= 510 for n in numbers["id"] | numbers["hard"])
    assert not any(11 <= n <= 510 for n in numbers["train"])
    assert len(numbers["id"] | numbers["hard"]) == 497
    keys = {split: {row["key"] for row in rows[split]} for split in rows}
    assert not keys["train"] & (keys["id"] | keys["hard"])
    assert {row["level"] for row in rows["hard"]} == {3}
    for row in rows["id"]:
        shown, *hidden = json.loads(row["answer"])["tests"]
        text = row["messages"][-1]["content"]
        assert shown in text and not any(one in text for one in hidden if one not in shown)


@pytest.mark.slow
@needs_data
def test_published_solutions_are_right(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for row in rows["format"][:10]:
        text = code.gold(row["answer"])
        assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 1.0, row


@needs_data
@pytest.mark.slow
@pytest.mark.full
def test_every_published_solution_is_right(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for split in ("train", "id", "hard"):
        for row in rows[split]:
            text = code.gold(row["answer"])
            assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 1.0, row
