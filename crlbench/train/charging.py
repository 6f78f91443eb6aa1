"""What a stage is charged for the rollouts and rows that it works on.

A stage adds up what these functions give, one call for each thing that it does: sampling, a pass of
each model that reads (old log-probabilities, the reference), a reward model's scores, the updates.
The coefficients are those of the model that does it
(:func:`~crlbench.policy.weights.flops.measure_flops`).
"""

from __future__ import annotations

from collections.abc import Sequence

from crlbench.contract.charges import (
    Charges,
    Coefficients,
    Group,
    forward_flops,
    reading_work,
    sampling_work,
    scoring_work,
    training_flops,
)
from crlbench.train.reward import said_by_row
from crlbench.types import Rollout


def groups_of(rollout: Rollout) -> list[Group]:
    """The distinct prompts of a rollout with the lengths of their completions, in real tokens."""
    prompts = rollout.prompt_mask.sum(1).tolist()
    lengths = rollout.completion_mask.sum(1).tolist()
    by_prompt: dict[int, tuple[int, list[int]]] = {}
    for name, prompt, length in zip(rollout.prompts.tolist(), prompts, lengths, strict=True):
        if length:  # a row without a token was never run
            by_prompt.setdefault(name, (prompt, []))[1].append(length)
    return [Group(prompt, tuple(completions)) for prompt, completions in by_prompt.values()]


def charge_sampling(
    rollout: Rollout, model: Coefficients, *, labels: int, valued: bool = False
) -> Charges:
    """Completions that a model sampled, and the verdicts on them.

    Args:
        labels: verdicts of the source of truth: one of each completion that it judged.
        valued: whether a critic estimated every token in decoding.
    """
    groups = groups_of(rollout)
    generated = sum(sum(group.completions) for group in groups)
    flops = forward_flops(sampling_work(groups, model), model, values=generated if valued else 0)
    texts = (text for row in said_by_row(rollout) for _, text in row)
    return Charges(
        labels=labels,
        generated_bytes=sum(len(text.encode()) for text in texts),
        generated_tokens=generated,
        read_tokens=sum(group.prompt for group in groups),
        flops=flops,
    )


def charge_reading(rollout: Rollout, model: Coefficients, *, valued: bool = False) -> Charges:
    """A pass without a gradient: old log-probabilities, or those of the reference."""
    groups = groups_of(rollout)
    work = reading_work(groups, model)
    values = work.logits if valued else 0
    return Charges(read_tokens=work.tokens, flops=forward_flops(work, model, values=values))


def charge_updates(
    rollout: Rollout, model: Coefficients, *, epochs: int, updates: int, valued: bool = False
) -> Charges:
    """Epochs of training on completions: forward and backward.

    Args:
        updates: optimizer steps of all epochs together.
    """
    work = reading_work(groups_of(rollout), model)
    values = work.logits if valued else 0
    flops = epochs * training_flops(work, model, values=values)
    return Charges(read_tokens=epochs * work.tokens, flops=flops, updates=updates)


def charge_rows(
    rows: Sequence[int], model: Coefficients, *, epochs: int = 0, updates: int = 0
) -> Charges:
    """Whole rows of so many tokens, one score each: a reward model that scores, or is fitted.

    Args:
        epochs: passes with a gradient; 0 scores the rows once.
    """
    work, count = scoring_work(rows, model), len(rows)
    if not epochs:
        return Charges(read_tokens=work.tokens, flops=forward_flops(work, model, values=count))
    flops = epochs * training_flops(work, model, values=count)
    return Charges(read_tokens=epochs * work.tokens, flops=flops, updates=updates)


def as_evaluation(charges: Charges) -> Charges:
    """The same as the benchmark's cost: its FLOPs are kept apart, and it buys nothing."""
    return Charges(evaluation_flops=charges.flops + charges.evaluation_flops)
