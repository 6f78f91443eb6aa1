"""HumanEval: whole functions, continuations and helper functions, and all 164 problems."""

from __future__ import annotations

import gzip
import json
import os
import types
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.code import load_code
from crlbench.suite.external import split_rows

FOLDER = Path(__file__).parents[2] / "tasks" / "humaneval"
DATA = os.environ.get("CRLBENCH_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="CRLBENCH_DATA names no folder with datasets")
PROMPT = (
    "from typing import List\n\n\ndef twice(x):\n    return 2 * x\n\n\n"
    'def total(xs: List[int]) -> int:\n    """Twice the sum of xs."""\n'
)
BODY = "    return twice(sum(xs))\n"
FACTS = {
    "entry": "total",
    "prompt": PROMPT,
    "tests": "def check(candidate):\n    assert candidate([1, 2]) == twice(3)\n"
    "    assert candidate([]) == 0\n",
    "gold": BODY,
}


@pytest.fixture(scope="module")
def code() -> types.ModuleType:
    return load_code(FOLDER / "task.py")


@pytest.fixture(scope="module")
def rows(code: types.ModuleType) -> dict[str, list[dict[str, Any]]]:
    path = Path(DATA or "") / "humaneval" / "HumanEval.jsonl.gz"
    return split_rows(code, {"HumanEval.jsonl": gzip.decompress(path.read_bytes())})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "text", "paid"),
    [
        ("block", BODY, True),
        ("block", BODY + "\n\nprint(total([1]))\nassert False", True),
        ("block", f"```python\n{PROMPT}{BODY}```", True),
        ("block", f"```python\ndef total(xs: List[int]):\n{BODY}```", True),
        ("block", "def total(xs): return 2 * sum(xs)", True),
        ("bare", f"{PROMPT}{BODY}", True),
        ("tags", f"<answer>{PROMPT}{BODY}</answer>", True),
        ("bare", BODY, False),
        ("block", f"```python\n{BODY}```", False),
        ("block", "", False),
        ("block", "    return sum(xs)", False),
        ("block", "    pass", False),
        ("block", PROMPT, False),
        ("block", "    import os; os._exit(0)", False),
        ("block", "```python\ndef twice(x): return 0\ndef total(xs): return 0\n```", False),
    ],
)  # fmt: skip
def test_completions_are_paid_by_both_or_by_neither(
    code: types.ModuleType, form: str, text: str, paid: bool
) -> None:
    answer = json.dumps({**FACTS, "form": form})
    assert (code.verify(text, answer), code.audit(text, answer)) == (paid, paid)


def test_a_program_that_counts_its_calls_is_not_paid_by_the_audit(
    code: types.ModuleType,
) -> None:
    answer = json.dumps({**FACTS, "form": "block"})
    text = "```\nanswers = [6, 0]\ndef total(xs):\n    return answers.pop(0)\n```"
    assert (code.verify(text, answer), code.audit(text, answer)) == (1.0, 0.0)


@needs_data
def test_all_problems_are_measured(rows: dict[str, list[dict[str, Any]]]) -> None:
    assert len(rows["id"]) == len({row["key"] for row in rows["id"]}) == 164
    assert {row["level"] for row in rows["id"]} == {1, 2, 3}
    assert {*rows} == {"id", "format"}


@pytest.mark.slow
@needs_data
def test_published_solutions_are_right(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """Among them those whose tests use a helper function of the prompt."""
    helped = [r for r in rows["id"] if r["meta"]["number"] in ("HumanEval/32", "HumanEval/38")]
    assert len(helped) == 2
    for row in helped + rows["format"][:10]:
        text = code.gold(row["answer"])
        assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 1.0, row


def replied(row: dict[str, Any], first: str, body: str | None = None) -> str:
    """A reply in one block: the prompt with a body, behind other text."""
    facts = json.loads(row["answer"])
    return f"```python\n{first}{facts['prompt']}{body or facts['gold']}\n```"


@pytest.mark.slow
@needs_data
def test_what_must_stand_first_may_stand_there(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """In the problems whose prompt brings imports or helper functions."""
    brought = [r for r in rows["id"] if code._helpers(*facts_of(r, "prompt", "entry"))]
    assert len(brought) >= 23
    for row in brought:
        text = replied(row, "from __future__ import annotations\n")
        assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 1.0, row


@needs_data
@pytest.mark.slow
def test_a_future_import_fails_no_solution(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for row in rows["id"]:
        text = replied(row, '"""A module."""\nfrom __future__ import annotations\n')
        assert code.verify(text, row["answer"]) == 1.0, row


@pytest.mark.slow
@needs_data
def test_no_number_at_all_passes_what_is_judged_by_inequalities(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for row in rows["id"]:
        if row["meta"]["number"] in ("HumanEval/4", "HumanEval/32", "HumanEval/72"):
            text = replied(row, "", "    return float('nan')\n")
            assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 0.0
            assert code.verify(replied(row, ""), row["answer"]) == 1.0


def facts_of(row: dict[str, Any], *names: str) -> list[Any]:
    facts = json.loads(row["answer"])
    return [facts[name] for name in names]


@needs_data
@pytest.mark.slow
@pytest.mark.full
def test_every_published_solution_is_right(
    code: types.ModuleType, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for row in rows["id"]:
        text = code.gold(row["answer"])
        assert code.verify(text, row["answer"]) == code.audit(text, row["answer"]) == 1.0, row
