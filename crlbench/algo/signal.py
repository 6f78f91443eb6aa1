"""What an advantage estimator, a normaliser or a sample filter may look at."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Signal:
    """The training signal of one whole batch, before any split into minibatches.

    B completions of at most T tokens; statistics are meant to be taken in float64.
    """

    rewards: Tensor
    """(B,) float64, the outcome reward; NaN where undefined."""
    token_rewards: Tensor
    """(B, T) float64: outcome, step rewards and KL penalty; 0 where ``mask`` is False."""
    mask: Tensor
    """(B, T) bool: tokens that the policy chose, in rows whose numbers are all finite."""
    group: Tensor
    """(B,) int64: the prompt of the row."""
    truncated: Tensor
    """(B,) bool: stopped by the length limit."""
    valid: Tensor
    """(B,) bool: every number of the row is finite. An empty completion can be valid."""
    values: Tensor | None = None
    """(B, T) float64 critic estimates of the state before each token."""
    final_values: Tensor | None = None
    """(B,) float64 critic estimates of the state after the last token."""
