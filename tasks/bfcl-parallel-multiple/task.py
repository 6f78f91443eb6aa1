"""BFCL parallel multiple (Patil et al. 2025): several calls of several functions are right.

A category of the Berkeley Function-Calling Leaderboard. The level is the number of calls: 1 for
two, 2 for three, 3 for more. The key is a hash of request and functions.
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
    "name": "bfcl-parallel-multiple",
    "version": "1.0.0",
    "tags": ["tools", "format", "external"],
    "summary": "Call several functions, one for each part of a request (BFCL, measured only).",
    "max_completion_bytes": 2048,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-bfcl-parallel-multiple-07b3cd58a1e6",
    "contact": "crlbench maintainers",
    "golds": False,
    "relative": "bfcl-simple",
}

SOURCE = source(
    (
        "8863ea8433239f55c5f016154cf0830853c89f693c6ea270396a2fa121960579",
        347080,
        "BFCL_v4_parallel_multiple",
    ),
    (
        "5ebf24f458c1f16300c05505d83d6f0a1b68b79be273a033febd0d4f840507e3",
        74602,
        "possible_answer/BFCL_v4_parallel_multiple",
    ),
)


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published files."""
    return build_requests(split, rng, [*answered(files, "parallel_multiple", _level)])


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
    return min(len(calls) - 1, 3)
