"""The arms of an entry: what pays its runs, and how fast they learn.

=======  ==============================================================================
real     the task's verifier pays (or its reward model)
placebo  a coin of the same mean, blind to the answer
mode     agreement with the start model's own greedy answer; no label is read
stress   as real, at three times the track's learning rate
=======  ==============================================================================
"""

from __future__ import annotations

from typing import Literal, get_args

from crlbench.contract.conditions import Conditions

Arm = Literal["real", "placebo", "mode", "stress"]
ARMS: tuple[Arm, ...] = get_args(Arm)
CONTROLS: tuple[Arm, ...] = ("placebo", "mode", "stress")
"""Arms beside the real one."""
CONTROL_SEEDS = 3
"""A control arm runs on the first seed indices only (protocols CRL-1, A.4, and CRL-2)."""
STRESS_FACTOR = 3.0
"""Learning rate of the stress arm, in multiples of the track's."""
PAID_BY_TASK: tuple[Arm, ...] = ("real", "stress")
"""Arms in which a fall of the score is a failure: the others measure it."""


def seeds_of(arm: Arm, seeds: int) -> int:
    """Seeds of an arm of an entry with that many real ones."""
    return seeds if arm == "real" else min(seeds, CONTROL_SEEDS)


def conditions_under(arm: Arm, conditions: Conditions) -> Conditions:
    """What a run of an arm learns with; the fingerprint states the conditions of the track."""
    if arm != "stress":
        return conditions
    rate = STRESS_FACTOR * conditions.optimization.learning_rate
    optimization = conditions.optimization.model_copy(update={"learning_rate": rate})
    return conditions.model_copy(update={"optimization": optimization})
