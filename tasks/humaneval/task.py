r"""HumanEval (Chen et al. 2021, arXiv:2107.03374): complete a Python function from its docstring.

All 164 problems are measured and none is trained on. The level is the number of statements in
the published body: 1 for up to three, 2 for four to seven, 3 for more. The tests are the
published ones; helper functions that a prompt brings along are known to program and tests. The
key is a hash of the prompt.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from crlbench.reward.code_reply import (
    ASKED,
    FORMS,
    blocks,
    defines,
    parsed,
    passes,
    program_in,
    with_before,
    wrapped,
)
from crlbench.reward.code_reply_audit import (
    behind_header,
    passes_each,
    read_program,
    top_level_names,
)
from crlbench.reward.published import Problem, build_published

CARD = {
    "name": "humaneval",
    "version": "2.0.0",
    "tags": ["code", "external"],
    "summary": "Complete a Python function from its heading and docstring.",
    "max_completion_bytes": 2048,
    "licence": "MIT",
    "canary": "crlbench-canary-1b7e6c42-humaneval-d95a30f8e764",
    "contact": "crlbench maintainers",
    "golds": False,
    "heavy": True,
}

SOURCE = {
    "origin": "https://github.com/openai/human-eval",
    "commit": "6d43fb980f9fee3c892a914eda09951f772ad10d",
    "licence": "MIT",
    "files": {
        "HumanEval.jsonl": {
            "sha256": "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2",
            "bytes": 214438,
            "path": "data/HumanEval.jsonl.gz",
        },
    },
}

SPLITS = ("id", "format")
NULL_TEXTS = (
    "pass",
    "I do not know.",
    "    return True",
    "    return []",
    "```python\ndef f(x):\n    return x\n```",
    "<answer>\ndef f(x):\n    return x\n</answer>",
)
"""What policies that know nothing say."""
TEMPLATES = (
    "Complete this function:\n\n{text}",
    "Write the body of the last function below.\n\n{text}",
    "{text}\n\nImplement what the docstring says.",
    "The following Python is unfinished. Finish it.\n\n{text}",
    "Complete this function:\n\n{text}",
    "Complete this function:\n\n{text}",
)
SYSTEM = "Write Python. Reply with the whole function, its heading included, {}."
LEVELS = ((3, 1), (7, 2))
"""Most statements of a level, and the level; more statements are level 3."""


@dataclass(frozen=True)
class Prompt(Problem):
    """A problem whose every character counts: two prompts differ in their brackets alone."""

    @property
    def key(self) -> str:
        """16 hexadecimal digits of the hash of the prompt."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    problems = list(_problems(files["HumanEval.jsonl"]))
    return build_published(split, rng, {"id": problems}, _tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the program in the completion passes the published tests.

    A text without a fence that does not define the function continues the prompt: its lines up
    to the first that leaves the body are the body.
    """
    facts = parsed(answer)
    entry = facts["entry"]
    code = program_in(text, facts["form"], entry)
    helpers = _helpers(facts["prompt"], entry)
    if defines(code, entry):
        program = with_before(helpers, code)
    elif facts["form"] == "block" and code.strip() and not blocks(code):
        program = facts["prompt"] + _body(code)
    else:
        return 0.0
    tests = f"{helpers}\n{facts['tests']}\ncheck({entry})"
    return float(passes(program, tests, (entry,)))


def audit(text: str, answer: str) -> float:
    """The second opinion: the tests twice over in one process, and once backwards.

    Backwards where the published check is a list of assertions and nothing else.
    """
    facts = json.loads(answer)
    entry, prompt = facts["entry"], facts["prompt"]
    source = read_program(text, facts["form"], entry)
    tree = ast.parse(prompt)
    known = [node for node in tree.body if getattr(node, "name", "") != entry]
    before = "\n".join(map(ast.unparse, known))
    if entry in top_level_names(source):
        source = behind_header(known, source)
    elif facts["form"] == "block" and source.strip() and "```" not in source:
        lines = source.split("\n")
        inside = takewhile(lambda line: not line.strip() or line[0].isspace(), lines)
        source = prompt + "\n".join(inside)
    else:
        return 0.0
    tests = [f"{before}\n{facts['tests']}\ncheck({entry})\ncheck({entry})"]
    check = ast.parse(facts["tests"])
    body = next(node.body for node in check.body if getattr(node, "name", "") == "check")
    if all(isinstance(node, ast.Assert) for node in body):
        body.reverse()
        tests.append(f"{before}\n{ast.unparse(check)}\ncheck({entry})")
    return float(passes_each(source, tests, [entry]))


def gold(answer: str) -> str:
    """A right completion: the published solution in the form asked for."""
    facts = json.loads(answer)
    return wrapped(facts["prompt"] + facts["gold"], facts["form"])


def _problems(data: bytes) -> Iterator[Prompt]:
    for line in data.decode().removesuffix("\n").split("\n"):
        row = json.loads(line)
        entry = row["entry_point"]
        tree = ast.parse(row["prompt"] + row["canonical_solution"])
        function = next(n for n in tree.body if getattr(n, "name", "") == entry)
        # Neither the function itself nor its docstring counts.
        statements = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 2
        facts = {
            "entry": entry,
            "prompt": row["prompt"],
            "tests": row["test"],
            "gold": row["canonical_solution"],
        }
        meta = {"number": row["task_id"], "statements": statements}
        yield Prompt(row["prompt"], json.dumps(facts), _level(statements), meta)


def _level(statements: int) -> int:
    return next((level for most, level in LEVELS if statements <= most), 3)


@functools.cache
def _helpers(prompt: str, entry: str) -> str:
    """What a prompt holds besides the unfinished function: imports and helper functions."""
    nodes = ast.parse(prompt).body
    return "\n".join(ast.unparse(n) for n in nodes if getattr(n, "name", "") != entry)


def _body(text: str) -> str:
    kept = []
    for line in text.split("\n"):
        if line.strip() and not line[:1].isspace():
            break
        kept.append(line)
    return "\n".join(kept)


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    form, facts = FORMS[template], json.loads(problem.answer)
    messages = [
        {"role": "system", "content": SYSTEM.format(ASKED[form])},
        {"role": "user", "content": TEMPLATES[template].format(text=problem.text.rstrip())},
    ]
    return messages, json.dumps({**facts, "form": form})
