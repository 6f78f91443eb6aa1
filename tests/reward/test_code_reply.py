"""Programs in replies: the verdicts of a person, written down before a verifier ran on them."""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
import textwrap
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.code import load_code
from crlbench.reward.code_reply import ASKED, defines, program_in, with_before
from crlbench.reward.code_reply_audit import behind_header, read_program, top_level_names

TASKS = Path(__file__).parents[2] / "tasks"
TABLE = tomllib.loads(Path(__file__).with_name("replies.toml").read_text("utf-8"))["reply"]
PROGRAMS = {
    "RIGHT": "def add(a, b):\n    return a + b",
    "WRONG": "def add(a, b):\n    return a - b",
}
HUMANEVAL = {
    "entry": "add",
    "prompt": 'from typing import List\n\n\ndef add(a: int, b: int):\n    """The sum of both."""\n',
    "tests": "def check(candidate):\n    assert candidate(1, 2) == 3\n"
    "    assert candidate(0, 0) == 0\n",
    "gold": "    return a + b\n",
}
MBPP = {
    "setup": "import math",
    "entry": "add",
    "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "challenge": ["assert add(-1, 1) == 0"],
    "gold": PROGRAMS["RIGHT"],
}


def filled(text: str) -> str:
    """A reply of the table with its programs."""

    def program(sign: re.Match[str]) -> str:
        before = sign[2] or ""
        before = " " * int(before) if before.isdigit() else before
        return textwrap.indent(PROGRAMS[sign[1]], before, lambda line: True)

    return re.sub(r"\{(RIGHT|WRONG)(?::([^}]*))?\}", program, text)


@pytest.fixture(
    scope="module", params=["mbpp", pytest.param("humaneval", marks=pytest.mark.slow)]
)
def task(request: pytest.FixtureRequest) -> tuple[types.ModuleType, dict[str, Any]]:
    name = request.param
    return load_code(TASKS / name / "task.py"), HUMANEVAL if name == "humaneval" else MBPP


KINDS = [(kind, list(rows)) for kind, rows in itertools.groupby(TABLE, lambda row: row["kind"])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_a_reply_is_paid_as_a_person_would(
    task: tuple[types.ModuleType, dict[str, Any]], kind: str
) -> None:
    code, facts = task
    others = []
    for row in dict(KINDS)[kind]:
        text, answer = filled(row["text"]), json.dumps({**facts, "form": row["form"]})
        if (code.verify(text, answer), code.audit(text, answer)) != (row["paid"], row["paid"]):
            others.append((row["paid"], code.verify(text, answer), code.audit(text, answer), text))
    assert not others


def test_the_table_is_large_and_has_both_verdicts() -> None:
    wrong = sum(not row["paid"] for row in TABLE)
    assert len(TABLE) >= 150 and 50 <= wrong <= len(TABLE) - 50


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("x = 1", "import math\n\nx = 1"),
        ("from __future__ import annotations\nx = 1", "from __future__ import annotations\n"),
        ("'Text.'\nfrom __future__ import annotations; x = 1", "'Text.'\nfrom __future__"),
        ("from __future__ import (\n annotations,\n)  # why\nx = 1", "from __future__"),
        ("# a\n\nfrom __future__ import division, annotations\n\nx = 1", "# a\n\nfrom"),
    ],
)
def test_helpers_stand_behind_what_must_stand_first(source: str, first: str) -> None:
    joined = with_before("import math\n", source)
    assert joined.startswith(first)
    for program in (joined, behind_header(ast.parse("import math").body, source)):
        names: dict[str, Any] = {}
        exec(compile(program, "program", "exec"), names)
        assert names["x"] == 1 and "math" in names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("block", "<think>a + b</think>\ufeff{RIGHT}"),
        ("bare", "</think>\ufeff{RIGHT}"),
        ("tags", "<answer>\ufeff{RIGHT}</answer>"),
        ("tags", "<answer>\ufefffrom __future__ import annotations\n{RIGHT}</answer>"),
    ],
)
@pytest.mark.parametrize("name", ["mbpp", "humaneval"])
def test_a_byte_order_mark_before_a_program_is_no_part_of_it(
    name: str, form: str, text: str
) -> None:
    code, facts = load_code(TASKS / name / "task.py"), MBPP if name == "mbpp" else HUMANEVAL
    answer = json.dumps({**facts, "form": form})
    assert code.verify(filled(text), answer) == code.audit(filled(text), answer) == 1.0


PIECES = (
    "```python\n", "```\n", "```", "~~~\n", "````\n", "    ```\n", "   ```py\n", "> ", "\n", "\n\n",
    "Text ", "<think>", "</think>", "<think>\n", "\n</think>\n", "<answer>", "</answer>", "\ufeff",
    "\r\n", "\r", "from __future__ import annotations\n", '"""Doc."""\n', "`a` ", "```js\n",
    "[THINK]", "\x0c", "\u2028", "# <think>\n", "assistantfinal",
    *PROGRAMS.values(), *PROGRAMS.values(),
    "print(add(1, 2))\n", "add[0] = 1\n", "for add in [1]: pass\n", "from solution import add\n",
)  # fmt: skip


@pytest.mark.parametrize("form", ASKED)
def test_two_readers_find_the_same_program_in_any_reply(form: str) -> None:
    draw, paid = random.Random(0), 0
    for _ in range(3000):
        text = "".join(draw.choices(PIECES, k=draw.randint(1, 9)))
        if form == "tags" and draw.random() < 0.8:
            text = f"<answer>{text}</answer>"
        first, second = program_in(text, form, "add"), read_program(text, form, "add")
        assert defines(first, "add") == ("add" in top_level_names(second)), text
        if defines(first, "add"):
            paid += 1
            assert first.strip() == second.strip(), text
            with_before("import math", first)
            behind_header(ast.parse("import math").body, second)
    assert paid > 50
