"""From the rewards of a completion to rewards of its tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from crlbench.algo.masked import select

StepRewards = Sequence[Sequence[tuple[int, float]]]
"""B lists of (end, reward): the step ends after ``end`` characters of the completion's text."""


def token_rewards(
    outcome: Tensor, mask: Tensor, steps: Tensor | None = None, penalty: Tensor | None = None
) -> Tensor:
    """(B, T): outcome on the last valid token, plus ``steps``, minus ``penalty``; 0 if masked.

    ``outcome`` (B,); ``steps`` (see :func:`place_steps`) and ``penalty``, the KL term times its
    coefficient, are (B, T).
    """
    placed = place_outcome(outcome, mask)
    placed = placed if steps is None else placed + steps
    return select(mask, placed if penalty is None else placed - penalty)


def place_outcome(outcome: Tensor, mask: Tensor) -> Tensor:
    """(B, T): ``outcome`` (B,) on the last valid token of each row, 0 elsewhere.

    A row without a valid token has no place for its outcome, and stays 0.
    """
    later = mask.long().flip(1).cumsum(1).flip(1) - mask.long()
    return select(mask & (later == 0), outcome[:, None].expand(mask.shape))


def place_steps(
    step_rewards: StepRewards, token_ends: Sequence[Sequence[int]], mask: Tensor
) -> Tensor:
    """(B, T) float64: each step's reward on the token that contains the step's last character.

    ``token_ends[i][t]`` is the number of characters of text i up to and including token t (at
    least as many entries as row i has tokens). If that token is not valid, the next valid one
    takes the reward, else the last valid one. Several steps in one token add up.
    """
    placed = torch.zeros(mask.shape, dtype=torch.float64)
    for i, steps in enumerate(step_rewards):
        valid = mask[i].nonzero().squeeze(1).tolist()
        ends = [token_ends[i][t] for t in valid]
        # A half-decoded character can count twice for a while; bisection needs sorted ends.
        ends = list(accumulate(reversed(ends), min))[::-1]
        for end, reward in steps if valid else ():
            placed[i, valid[min(bisect_left(ends, end), len(valid) - 1)]] += reward
    return placed.to(mask.device)
