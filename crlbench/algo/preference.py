"""Learning from preferences: the Bradley-Terry likelihood of a pair."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from crlbench.algo.masked import masked_mean


def bradley_terry(
    chosen: Tensor,
    rejected: Tensor,
    *,
    margin: Tensor | None = None,
    centering: float = 0.0,
    keep: Tensor | None = None,
) -> Tensor:
    """Mean of -log sigmoid(chosen - rejected - margin) over pairs (Bradley & Terry 1952).

    A difference of scores says nothing about their level: ``centering`` adds the mean of
    centering * (chosen + rejected)^2, which keeps them around zero (Eisenstein et al. 2023,
    arXiv:2312.09244).

    Args:
        chosen: (N,) scores of the preferred completions.
        rejected: (N,) scores of the others.
        margin: (N,) how much better the preferred one must be, or None for 0.
        centering: weight of the second term.
        keep: (N,) bool, the pairs that count; None for all. The mean is over these alone.
    """
    gap = chosen - rejected if margin is None else chosen - rejected - margin
    loss = -logsigmoid(gap)
    if centering:
        loss = loss + centering * (chosen + rejected) ** 2
    return loss.mean() if keep is None else masked_mean(loss, keep)


def pair_accuracy(chosen: Tensor, rejected: Tensor) -> Tensor:
    """() share of pairs (N,) whose preferred completion has the higher score; a tie is half."""
    gap = chosen - rejected
    return torch.where(gap == 0, 0.5, (gap > 0).to(gap.dtype)).mean()
