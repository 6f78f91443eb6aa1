"""BFCL simple (Patil et al. 2025): one function is offered and one call of it is right.

A category of the Berkeley Function-Calling Leaderboard. The level is the number of arguments that
the answer knows: 1 for up to two, 2 for three, 3 for more. The key is a hash of request and
functions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from crlbench.reward.bfcl import gold_calls, verify_calls
from crlbench.reward.bfcl_audit import audit_calls
from crlbench.reward.bfcl_rows import (
    NULL_TEXTS,
    SPLITS,
    TEMPLATES,
    answered,
    build_requests,
    source,
)

__all__ = [
    "CARD",
    "NULL_TEXTS",
    "SOURCE",
    "SPLITS",
    "TEMPLATES",
    "audit",
    "build",
    "gold",
    "verify",
]

CARD = {
    "name": "bfcl-simple",
    "version": "1.0.0",
    "tags": ["tools", "format", "external"],
    "summary": "Call the one function offered, with the right arguments (BFCL, measured only).",
    "max_completion_bytes": 2048,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-bfcl-simple-c1f7a9e36b20",
    "contact": "crlbench maintainers",
    "golds": False,
}

SOURCE = source(
    (
        "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
        283274,
        "BFCL_v4_simple_python",
    ),
    (
        "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc",
        63627,
        "possible_answer/BFCL_v4_simple_python",
    ),
)


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published files."""
    return build_requests(split, rng, [*answered(files, "simple_python", _level)])


def verify(text: str, answer: str) -> float:
    """1.0 iff the calls of the completion are those that the published answer accepts."""
    return verify_calls(text, answer)


def audit(text: str, answer: str) -> float:
    """The second opinion: accepted calls written out in full, and crossed off one by one."""
    return audit_calls(text, answer)


def gold(answer: str) -> str:
    """A right reply."""
    return gold_calls(answer)


def _level(functions: Sequence[Any], calls: Sequence[Any]) -> int:
    ((arguments,),) = (call.values() for call in calls)
    return min(max(len(arguments) - 1, 1), 3)
