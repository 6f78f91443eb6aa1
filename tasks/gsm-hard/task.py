"""GSM-Hard (Gao et al. 2022, arXiv:2211.10435): GSM8K's test problems with large numbers.

The set has no training file, so the task is only measured. The level is the number of
arithmetic operations in the published program, which is parsed and never run: 1 for up to
three, 2 for four and five, 3 (``hard``) for six and more. Answers are rounded to three decimals,
and two numbers are the same when they round to the same three decimals. The key is a hash of
the problem's words.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from crlbench.reward.final_number import final_number_to
from crlbench.reward.final_number_audit import audited
from crlbench.reward.published import Problem, build_published
from crlbench.reward.word_problems import TEMPLATES, tell

__all__ = ["CARD", "SOURCE", "SPLITS", "TEMPLATES", "audit", "build", "mutants", "verify"]

CARD = {
    "name": "gsm-hard",
    "version": "2.0.0",
    "tags": ["arithmetic", "compositional", "external"],
    "summary": "Solve GSM8K's test problems with large numbers in them (measured only).",
    "max_completion_bytes": 1536,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-gsm-hard-7e2b90d5c318",
    "contact": "crlbench maintainers",
    "relative": "gsm8k",
}

SOURCE = {
    "origin": "https://github.com/reasoning-machines/pal",
    "commit": "f81ca2a9777f002f98a6b4d0f10b61bd5c8feb02",
    "licence": "Apache-2.0",
    "files": {
        "gsmhardv2.jsonl": {
            "sha256": "2032b0188a49ac0ec38cbe1e695e7d62d6dddc44bbb64f920728aca710e9ddef",
            "bytes": 1138151,
            "path": "datasets/gsmhardv2.jsonl",
        },
    },
}

SPLITS = ("id", "hard", "format")
LEVELS = ((3, 1), (5, 2))
"""Most operations of a level, and the level; more operations are level 3."""
PLACES = 3


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    found = [*_problems(files["gsmhardv2.jsonl"])]
    problems = {
        "id": [problem for problem in found if problem.level < 3],
        "hard": [problem for problem in found if problem.level == 3],
    }
    return build_published(split, rng, problems, tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion ends on the gold number, to three decimals, in its wrapping."""
    return final_number_to(text, answer, PLACES)


def audit(text: str, answer: str) -> float:
    """The second opinion: read word by word, and at most half a unit of the third decimal off."""
    numbers = audited(text, answer)
    return float(
        numbers is not None and abs(numbers[0] - numbers[1]) <= Fraction(1, 2 * 10**PLACES)
    )


def mutants(answer: str) -> list[str]:
    """Gold completions with one digit changed, dropped or doubled that are wrong for it.

    A slip below half a unit of the third decimal, as in 0.333 and 0.3333, is none.
    """
    slips = {
        answer[:place] + piece + answer[place + 1 :]
        for place, digit in enumerate(answer)
        if digit.isdecimal()
        for piece in (str((int(digit) + 1) % 10), "", 2 * digit)
    }
    return sorted(slip for slip in slips if not _close(slip, answer))


def _close(text: str, answer: str) -> bool:
    """Whether two gold completions differ by little more than half a unit."""
    numbers = [re.sub(r"[^0-9.-]", "", one).rstrip("-") for one in (text, answer)]
    return all(numbers) and abs(float(numbers[0]) - float(numbers[1])) < 0.6 / 10**PLACES


def _problems(data: bytes) -> Iterator[Problem]:
    for number, line in enumerate(data.decode().removesuffix("\n").split("\n"), start=1):
        row = json.loads(line)
        nodes = ast.walk(ast.parse(row["code"]))
        steps = sum(isinstance(node, ast.BinOp | ast.AugAssign) for node in nodes)
        level = next((level for most, level in LEVELS if steps <= most), 3)
        meta = {"line": number, "steps": steps}
        yield Problem(row["input"].strip(), _written(row["target"]), level, meta)


def _written(number: float) -> str:
    """A number to three decimals, without an exponent and without zeros at its end."""
    text = format(Decimal(repr(number)).quantize(Decimal(1).scaleb(-PLACES)), "f")
    text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
