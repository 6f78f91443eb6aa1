"""BFCL multiple (Patil et al. 2025): several functions are offered and one call is right.

A category of the Berkeley Function-Calling Leaderboard. The level is the number of functions
offered: 1 for two, 2 for three, 3 for four. The key is a hash of request and functions.
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
    "name": "bfcl-multiple",
    "version": "1.0.0",
    "tags": ["tools", "format", "external"],
    "summary": "Choose one of several functions and call it (BFCL, measured only).",
    "max_completion_bytes": 2048,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-bfcl-multiple-5d80e2b94f71",
    "contact": "crlbench maintainers",
    "golds": False,
    "relative": "bfcl-simple",
}

SOURCE = source(
    (
        "aef168155ebd74b7ac2401198b201343bc7d16d7a3d7e0d4e6d8ee82c6969b2a",
        316583,
        "BFCL_v4_multiple",
    ),
    (
        "244e00ce9395df948bcafc7bee64e8f9c87ef70887587d83cae45b13699f3047",
        32254,
        "possible_answer/BFCL_v4_multiple",
    ),
)


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published files."""
    return build_requests(split, rng, [*answered(files, "multiple", _level)])


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
    return len(functions) - 1
