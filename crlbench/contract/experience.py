"""What a recipe learns from, as its configuration says it.

=================  ============================================================================
rewards            completions that the policy samples, and what they are paid
pairs              frozen answers, of which one of two is preferred
demonstrations     frozen answers that are imitated
own-pairs          completions that the policy samples, of which one of two is preferred
teacher            completions that the policy samples, and what another model says of them
replay             completions that the policy sampled at any time, and what they were paid
=================  ============================================================================

A chain of stages learns from what its last stage learns from. A budget counts completions. Of
frozen answers it counts those that are read, so that every recipe on a board learns from equally
many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from crlbench.contract.conditions import Budget

Source = Literal["rewards", "pairs", "demonstrations", "own-pairs", "teacher", "replay"]
FROZEN: Mapping[Source, int] = {"pairs": 2, "demonstrations": 1}
"""Sources that are frozen, with the answers that each prompt has."""
SAMPLED: frozenset[Source] = frozenset({"rewards", "own-pairs", "teacher", "replay"})
"""Sources that the policy samples while it learns."""
UNPAID: frozenset[Source] = frozenset({*FROZEN, "own-pairs"})
"""Sources without rewards: an iteration has figures of answers, and scores at evaluations alone."""
LEAF = "experience"
"""Leaf of a fingerprint that names the source; absent for rewards."""
OWN_LEAF = "answers_sha256"
"""Leaf with the digest of a person's own file of answers; absent where a task has frozen them."""
_SHA256 = re.compile("[0-9a-f]{64}")
_AXES: Mapping[str, Source] = {
    "pair_loss": "pairs",
    "likelihood": "demonstrations",
    "divergence": "teacher",
    "soft_losses": "replay",
}


def source_of(config: Mapping[str, Any]) -> Source:
    """What a recipe learns from; ``config`` is as records and plans hold it."""
    stages = config.get("stages")
    last = stages[-1] if stages else {}
    if last.get("data") == "own":
        return "own-pairs"
    recipe = last.get("recipe") or config
    return next((source for axis, source in _AXES.items() if axis in recipe), "rewards")


def paid_by_model(config: Mapping[str, Any]) -> bool:
    """Whether a reward model pays the completions of training: in a chain that fits one."""
    stages = config.get("stages") or [{}]
    return stages[-1].get("reward", "gold") != "gold"


def prompts_of(source: Source, budget: Budget) -> int:
    """Prompts of one iteration."""
    return budget.rows // FROZEN[source] if source in FROZEN else budget.prompts


class OwnAnswers(NamedTuple):
    """A person's own file of answers, as the leaves of a fingerprint name it."""

    sha256: str
    holds: str
    """``pairs`` or ``demonstrations``."""


def own_answers(leaves: Mapping[str, Any]) -> OwnAnswers | None:
    """The file of answers that runs of a fingerprint learn from; None without one."""
    sha256, holds = leaves.get(OWN_LEAF), leaves.get(LEAF)
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or holds not in FROZEN:
        return None
    return OwnAnswers(sha256, str(holds))


def reads_file(stage: Mapping[str, Any], holds: str) -> bool:
    """Whether a stage of a chain reads a person's own file: in place of the demonstrations of the
    track, or of pairs that it would collect.

    Args:
        stage: as files and records state it.
        holds: what the file holds.
    """
    if holds == "pairs":
        return stage.get("kind") == "collect"
    return stage.get("data") == "demos"


def leaves_of(config: Mapping[str, Any], own: OwnAnswers | None = None) -> dict[str, str]:
    """What a recipe adds to the leaves of a fingerprint: runs on rewards keep theirs, and chains
    are compared by what their track fixes, and by the file that they learn from.

    Args:
        own: a person's own file of answers; None without one.
    """
    if "stages" in config:
        reads = own is not None and any(reads_file(one, own.holds) for one in config["stages"])
        return {LEAF: own.holds, OWN_LEAF: own.sha256} if own is not None and reads else {}
    source = source_of(config)
    if source == "rewards":
        return {}
    has_file = own is not None and own.holds == source
    return {LEAF: source} | ({OWN_LEAF: own.sha256} if own is not None and has_file else {})


def why_open(config: Mapping[str, Any], has_file: bool = False) -> str:
    """Why runs of a recipe are in the open division whatever the board; empty where they are not.

    Tracks rank policy optimisation on rewards. Frozen answers and teachers know more of a task than
    rewards say, and learning from a replay is an experiment. A chain whose seeds share a product
    hides what that product's luck does.

    Args:
        has_file: whether stages of a chain read a person's own file.
    """
    for stage in config.get("stages", ()):
        if stage.get("seeds") == "one":
            return f"all seeds share what stage '{stage['name']}' leaves (seeds = one)"
        if "teacher" in stage:
            return f"stage '{stage['name']}' learns from another model, not from labels"
    if "stages" in config:
        return "stages learn from a file of answers of one's own" if has_file else ""
    source = source_of(config)
    if source in FROZEN:
        return f"the recipe learns from frozen {source}, not from rewards"
    return _WHY_OPEN.get(source, "")


_WHY_OPEN: Mapping[Source, str] = {
    "teacher": "the recipe learns from another model, not from rewards",
    "replay": "the recipe is experimental and is never ranked",
}
