r"""GSM8K (Cobbe et al. 2021, arXiv:2110.14168): grade-school word problems of 2 to 8 steps.

Training problems come from the published train file, evaluation from the test file. The level is
the number of lines of the published solution, one step each: 1 for up to three, 2 for four and
five, 3 for six and more. ``train`` and ``id`` hold levels 1 and 2 and ``hard`` level 3, so that
``id`` and ``hard`` together are the whole test file. The key is a hash of the question's words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from crlbench.reward.final_number import final_number
from crlbench.reward.final_number_audit import audited
from crlbench.reward.published import Problem, build_published
from crlbench.reward.word_problems import TEMPLATES, tell

__all__ = ["CARD", "SOURCE", "TEMPLATES", "audit", "build", "verify"]

CARD = {
    "name": "gsm8k",
    "version": "2.0.0",
    "tags": ["arithmetic", "compositional", "external"],
    "summary": "Solve grade-school word problems of two to eight steps.",
    "max_completion_bytes": 1536,
    "licence": "MIT",
    "canary": "crlbench-canary-0d95b7e3-gsm8k-5b1f0c82e6a7",
    "contact": "crlbench maintainers",
}

SOURCE = {
    "origin": "https://github.com/openai/grade-school-math",
    "commit": "3101c7d5072418e28b9008a6636bde82a006892c",
    "licence": "MIT",
    "files": {
        "train.jsonl": {
            "sha256": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
            "bytes": 4166206,
            "path": "grade_school_math/data/train.jsonl",
        },
        "test.jsonl": {
            "sha256": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            "bytes": 749738,
            "path": "grade_school_math/data/test.jsonl",
        },
    },
}

LEVELS = ((3, 1), (5, 2))
"""Most steps of a level, and the level; more steps are level 3."""
TRAINED = (1, 2)


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the two published files."""
    train, test = (list(_problems(files[name])) for name in ("train.jsonl", "test.jsonl"))
    problems = {
        "train": [problem for problem in train if problem.level in TRAINED],
        "id": [problem for problem in test if problem.level in TRAINED],
        "hard": [problem for problem in test if problem.level not in TRAINED],
    }
    return build_published(split, rng, problems, tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion ends on the number of the gold completion, in its wrapping."""
    return final_number(text, answer)


def _problems(data: bytes) -> Iterator[Problem]:
    for number, line in enumerate(data.decode().removesuffix("\n").split("\n"), start=1):
        row = json.loads(line)
        solution, _, final = row["answer"].rpartition("#### ")
        steps = sum(bool(step.strip()) for step in solution.split("\n"))
        level = next((level for most, level in LEVELS if steps <= most), 3)
        answer = final.strip().replace(",", "")
        yield Problem(row["question"].strip(), answer, level, {"line": number, "steps": steps})


def audit(text: str, answer: str) -> float:
    """The second opinion: the closing line or the agreeing wrappings, read word by word."""
    numbers = audited(text, answer)
    return float(numbers is not None and numbers[0] == numbers[1])
