"""The arms of an entry: what pays its runs, and how fast they learn.

=======  ==============================================================================
real     the task's verifier pays (or its reward model)
placebo  a coin of the same mean, blind to the answer
mode     agreement with the start model's own greedy answer; no label is read
stress   as real, at three times the track's learning rates (policy and value head)
wrong    the task's verifier, asked for a fixed wrong answer of each prompt
=======  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from crlbench.contract.conditions import Conditions

Arm = Literal["real", "placebo", "mode", "stress", "wrong"]
ARMS: tuple[Arm, ...] = get_args(Arm)
CONTROLS: tuple[Arm, ...] = ("placebo", "mode", "stress", "wrong")
"""Arms beside the real one. A protocol says which ones a rank needs; none needs the wrong arm."""
ANSWERED: tuple[Arm, ...] = ("mode", "wrong")
"""Arms that compare a completion with an answer; a task of episodes has none, and no such arm."""
CONTROL_SEEDS = 3
"""A control arm runs on the first seed indices only (protocols CRL-1, A.4, and CRL-2)."""
STRESS_FACTOR = 3.0
"""Learning rates of the stress arm, in multiples of the track's."""
RATES = ("learning_rate", "value_learning_rate")
"""Every rate at which a run learns: an arm that raised one of them would change their ratio too."""
TRUST_REGION = "TrustRegion"
"""The part of a recipe that takes steps of a size of its own."""
PAID_BY_TASK: tuple[Arm, ...] = ("real", "stress")
"""Arms in which a fall of the score is a failure: the others measure it."""


def seeds_of(arm: Arm, seeds: int) -> int:
    """Seeds of an arm of an entry with that many real ones."""
    return seeds if arm == "real" else min(seeds, CONTROL_SEEDS)


def why_unstressed(config: Mapping[str, Any]) -> str:
    """Why a recipe can have no stress arm, as a clause; empty where it can.

    Args:
        config: of the recipe, as records and plans hold it.
    """
    step = config.get("step")
    if not isinstance(step, Mapping) or step.get("part") != TRUST_REGION:
        return ""
    return "the recipe takes trust-region steps, whose size no learning rate decides"


def conditions_under(arm: Arm, conditions: Conditions) -> Conditions:
    """What a run of an arm learns with; the fingerprint states the conditions of the track."""
    if arm != "stress":
        return conditions
    rates = {name: STRESS_FACTOR * getattr(conditions.optimization, name) for name in RATES}
    optimization = conditions.optimization.model_copy(update=rates)
    return conditions.model_copy(update={"optimization": optimization})
