"""SVAMP (Patel et al. 2021, arXiv:2103.07191): short word problems varied against shortcuts.

The set has no training file, so the task is only measured. Level 1 takes one operation, level 2
two, counted in the published equation. The key is a hash of the problem's words.
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

__all__ = ["CARD", "SOURCE", "SPLITS", "TEMPLATES", "audit", "build", "verify"]

CARD = {
    "name": "svamp",
    "version": "2.0.0",
    "tags": ["arithmetic", "external"],
    "summary": "Solve short word problems varied against shortcuts (measured only).",
    "max_completion_bytes": 1024,
    "licence": "MIT",
    "canary": "crlbench-canary-0d95b7e3-svamp-c41d07a9be52",
    "contact": "crlbench maintainers",
}

SOURCE = {
    "origin": "https://github.com/arkilpatel/SVAMP",
    "commit": "689d7ccac74b9983a2ac7cc3b264f441b99e7c53",
    "licence": "MIT",
    "files": {
        "SVAMP.json": {
            "sha256": "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
            "bytes": 339970,
            "path": "SVAMP.json",
        },
    },
}

SPLITS = ("id", "format")
OPERATIONS = "+-*/"


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published file."""
    return build_published(split, rng, {"id": [*_problems(files["SVAMP.json"])]}, tell)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion ends on the number of the gold completion, in its wrapping."""
    return final_number(text, answer)


def audit(text: str, answer: str) -> float:
    """The second opinion: the closing line or the agreeing wrappings, read word by word."""
    numbers = audited(text, answer)
    return float(numbers is not None and numbers[0] == numbers[1])


def _problems(data: bytes) -> Iterator[Problem]:
    for row in json.loads(data):
        operations = sum(character in OPERATIONS for character in row["Equation"])
        body, question = row["Body"].strip(), row["Question"].strip()
        joint = " " if body[-1] in ".,;!?" else ", "
        answer = f"{row['Answer']:.12g}"
        meta = {"published": row["ID"], "kind": row["Type"]}
        yield Problem(f"{body}{joint}{question}", answer, 2 if operations > 1 else 1, meta)
