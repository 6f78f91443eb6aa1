r"""MBPP (Austin et al. 2021, arXiv:2108.07732): short Python functions from one sentence.

The published task numbers decide the splits: 11 to 510 are the test problems, all others are
training problems. The level is the number of statements of the published solution: 1 for up to
three, 2 for four to six, 3 for more. ``train`` and ``id`` hold levels 1 and 2 and ``hard``
level 3 of the test problems. A prompt shows the first of a problem's tests; the others are
hidden. Problems whose tests build objects of the program's own classes are left out, since only
plain values pass between a program and its tests, and so is one whose published solution needs
seconds. The key is a hash of the problem's words.
"""

from __future__ import annotations

import ast
import functools
import json
import random
import warnings
from typing import Any

from crlbench.reward.code_reply import (
    ASKED,
    FORMS,
    defines,
    parsed,
    passes,
    program_in,
    wrapped,
)
from crlbench.reward.code_reply_audit import passes_each, read_program
from crlbench.reward.published import Problem, build_published

CARD = {
    "name": "mbpp",
    "version": "2.0.0",
    "tags": ["code", "external"],
    "summary": "Write a short Python function from one sentence and one test.",
    "max_completion_bytes": 2048,
    "licence": "CC-BY-4.0",
    "canary": "crlbench-canary-83d0f5a1-mbpp-6e2c94b7d018",
    "contact": "crlbench maintainers",
    "golds": False,
    "heavy": True,
}

SOURCE = {
    "origin": "https://github.com/OckBench/OckBench",
    "commit": "b72752a0ba5989d3c212675ec60d3eedcd838628",
    "licence": "CC-BY-4.0",
    "files": {
        "mbpp.jsonl": {
            "sha256": "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f",
            "bytes": 563743,
            "path": "data/mbpp.jsonl",
        },
    },
}

NULL_TEXTS = (
    "pass",
    "I do not know.",
    "return True",
    "```python\ndef f(x):\n    return x\n```",
    "```python\ndef solution(*arguments):\n    return arguments[0]\n```",
    "<answer>\ndef f(x):\n    return x\n</answer>",
)
"""What policies that know nothing say."""
TEMPLATES = (
    "{text}\n\nIt is tested by this, and by more that you do not see:\n{test}",
    "Task: {text}\nOne of the tests:\n{test}",
    "{test}\nThat is one of several tests. {text}",
    "Needed in Python: {text}\nIt must hold, among other things:\n{test}",
    "{text}\n\nOne of its tests:\n{test}",
    "{text}\n\nOne of its tests:\n{test}",
)
SYSTEM = "Write Python. Reply with the function {}. Take its name from the test."
TEST_NUMBERS = range(11, 511)
LEVELS = ((3, 1), (6, 2))
"""Most statements of a level, and the level; more statements are level 3."""
TRAINED = (1, 2)
TOO_SLOW = (123,)
"""Problems whose published solution needs more than a third of the limit on processor time: the
verdict on a right program would depend on the machine."""


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    train: list[Problem] = []
    test: list[Problem] = []
    for problem in _problems(files["mbpp.jsonl"]):
        (test if problem.meta["number"] in TEST_NUMBERS else train).append(problem)
    problems = {
        "train": [one for one in train if one.level in TRAINED],
        "id": [one for one in test if one.level in TRAINED],
        "hard": [one for one in test if one.level not in TRAINED],
    }
    return build_published(split, rng, problems, _tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the program in the completion passes all published tests, in their order."""
    facts = parsed(answer)
    code = program_in(text, facts["form"], facts["entry"])
    if not defines(code, facts["entry"]):
        return 0.0
    tests = "\n".join([facts["setup"], *facts["tests"]])
    return float(passes(code, tests, (facts["entry"],)))


def audit(text: str, answer: str) -> float:
    """The second opinion: every test by itself, the challenge tests of the dataset among them."""
    facts = json.loads(answer)
    tests = [f"{facts['setup']}\n{one}" for one in [*facts["tests"], *facts["challenge"]]]
    source = read_program(text, facts["form"], facts["entry"])
    return float(passes_each(source, tests, [facts["entry"]]))


def gold(answer: str) -> str:
    """A right completion: the published solution in the form asked for."""
    facts = json.loads(answer)
    return wrapped(facts["gold"], facts["form"])


@functools.lru_cache(1)
def _problems(data: bytes) -> tuple[Problem, ...]:
    with warnings.catch_warnings():
        # Some published solutions hold escapes that Python no longer likes.
        warnings.simplefilter("ignore")
        lines = data.decode().removesuffix("\n").split("\n")
        read = [row for row in map(json.loads, lines) if row["task_id"] not in TOO_SLOW]
        return tuple(filter(None, map(_problem, read)))


def _problem(row: dict[str, Any]) -> Problem | None:
    """One problem; None where its tests build objects of the program's own classes."""
    code = row["code"].replace("\r\n", "\n")
    tree = ast.parse(code)
    called = _names("\n".join([row["test_setup_code"], *row["test_list"]]))
    if any(isinstance(n, ast.ClassDef) and n.name in called for n in tree.body):
        return None
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    # Some tests use a module that the published solution imports.
    imports = [n for n in tree.body if isinstance(n, ast.Import) and _bound(n) & called]
    facts = {
        "setup": "\n".join(map(ast.unparse, imports)),
        "entry": next(name for name in reversed(functions) if name in called),
        "tests": row["test_list"],
        "challenge": row["challenge_test_list"],
        "gold": code,
    }
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    meta = {"number": row["task_id"], "statements": statements}
    return Problem(row["text"].strip(), json.dumps(facts), _level(statements), meta)


def _bound(node: ast.Import) -> set[str]:
    return {alias.asname or alias.name for alias in node.names}


def _names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _level(statements: int) -> int:
    return next((level for most, level in LEVELS if statements <= most), 3)


def _tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    form, facts = FORMS[template], json.loads(problem.answer)
    user = TEMPLATES[template].format(text=problem.text, test=facts["tests"][0])
    messages = [
        {"role": "system", "content": SYSTEM.format(ASKED[form])},
        {"role": "user", "content": user},
    ]
    return messages, json.dumps({**facts, "form": form})
