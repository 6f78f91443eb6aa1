"""Implicit process rewards: what a second model, trained on outcomes alone, says of each token.

PRIME (Cui et al. 2025, arXiv 2502.01456): the reward of a token is beta times the log-ratio of a
model phi to the reference, and phi learns from outcomes by cross-entropy (:func:`outcome_loss`).
Returns take the process reward and the outcome apart, each against the others of its group. All
tensors are (B, T) unless said otherwise; masks are bool.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from crlbench.algo.advantage import rewards_to_go
from crlbench.algo.masked import select
from crlbench.algo.signal import GroupStats
from crlbench.algo.token_rewards import place_outcome


def implicit_rewards(phi: Tensor, ref: Tensor, mask: Tensor, beta: float) -> Tensor:
    """r_t = beta (l_phi_t - l_ref_t), 0 where not ``mask``.

    ``phi`` and ``ref`` are log-probabilities of the tokens.
    """
    return beta * (select(mask, phi) - select(mask, ref))


def outcome_loss(log_ratio: Tensor, outcome: Tensor, mask: Tensor, beta: float) -> Tensor:
    """Scalar to minimise for the model phi: cross-entropy of sigmoid(beta sum_t log-ratio_t).

    ``log_ratio`` is l_phi - l_ref, differentiable; ``outcome`` (B,) lies in [0, 1].
    """
    logits = beta * select(mask, log_ratio).sum(1)
    return functional.binary_cross_entropy_with_logits(logits, outcome.to(logits.dtype))


def bounded(rewards: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """Process rewards divided by the largest absolute return of the batch, plus ``eps``.

    So no return exceeds 1 (``batch_norm`` of PRIME's repository); a return is undiscounted.
    """
    clean = select(mask, rewards)
    returns = clean.flip(1).cumsum(1).flip(1)
    return clean / (returns.abs().max() + eps)


def leave_one_out(rewards: Tensor, mask: Tensor, group: Tensor) -> Tensor:
    """(B, T) float64: token rewards against the token means of the other rows of a group.

    With G rows in the group: r_it G / (G - 1) - sum_j mean_t(r_jt) / (G - 1), as in PRIME's
    repository, where j goes over all rows, i included. For rows of one reward each this is the
    leave-one-out baseline. Rows without a token are no part of a group; 0 in a group of one.
    ``group`` (B,) int64.
    """
    clean, tokens = select(mask, rewards).double(), mask.sum(1)
    stats = GroupStats.of(clean.sum(1) / tokens.clamp(min=1), tokens > 0, group)
    others = (stats.count - 1).clamp(min=1)
    scaled = (clean - stats.mean[:, None]) * (stats.count / others)[:, None]
    return select(mask & (stats.count > 1)[:, None], scaled)


def process_returns(
    rewards: Tensor,
    outcome: Tensor,
    mask: Tensor,
    group: Tensor,
    gamma: float = 1.0,
    outcome_gamma: float = 1.0,
) -> Tensor:
    """(B, T) float64: returns of the process ``rewards`` plus returns of the outcome.

    Both are taken against the others of their group, each with its own discount. ``outcome`` (B,)
    is paid at the last valid token; ``group`` (B,) int64 names the rows that are compared.
    """
    final = place_outcome(torch.ones_like(outcome), mask) > 0
    paid = leave_one_out(place_outcome(outcome, mask), final, group)
    process = leave_one_out(rewards, mask, group)
    return rewards_to_go(process, mask, gamma) + rewards_to_go(paid, mask, outcome_gamma)
