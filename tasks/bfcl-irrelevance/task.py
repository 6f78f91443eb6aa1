"""BFCL irrelevance (Patil et al. 2025): whether to call at all.

A category of the Berkeley Function-Calling Leaderboard. In half of the rows the one function that
is offered does not serve the request, and a reply without a call is right (level 2: the published
240). In the other half it does, and any call is right (level 1: as many requests of the category
``simple``). Without them, silence would be worth everything. The key is a hash of request and
functions.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward.bfcl import gold_calls, verify_calls
from crlbench.reward.bfcl_audit import audit_calls
from crlbench.reward.bfcl_rows import NULL_TEXTS, SPLITS, TEMPLATES, build_requests, judged, source

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
    "name": "bfcl-irrelevance",
    "version": "1.0.0",
    "tags": ["tools", "external"],
    "summary": "Call a function if it serves the request, and only then (BFCL, measured only).",
    "max_completion_bytes": 2048,
    "licence": "Apache-2.0",
    "canary": "crlbench-canary-0d95b7e3-bfcl-irrelevance-b86f31e47d09",
    "contact": "crlbench maintainers",
    "golds": False,
    "relative": "bfcl-simple",
}

SOURCE = source(
    (
        "2b6ed4c2e992cdcf5f1678a701851f944bef7550ee026ed1ddb89efed5be01a6",
        159940,
        "BFCL_v4_irrelevance",
    ),
    (
        "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
        283274,
        "BFCL_v4_simple_python",
    ),
)


def build(split: str, rng: random.Random, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of one split, made from the published files."""
    alone = [*judged(files, "BFCL_v4_irrelevance", "none", 2)]
    served = [*judged(files, "BFCL_v4_simple_python", "some", 1)]
    served.sort(key=lambda request: request.key)
    return build_requests(split, rng, [*alone, *served[: len(alone)]])


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion holds a call where one is right, and none where none is."""
    return verify_calls(text, answer)


def audit(text: str, answer: str) -> float:
    """The second opinion: accepted calls written out in full, and crossed off one by one."""
    return audit_calls(text, answer)


def gold(answer: str) -> str:
    """A right reply."""
    return gold_calls(answer)
