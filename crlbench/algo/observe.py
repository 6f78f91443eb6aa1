"""What the computation of a loss shows about the policy: the statistics of an optimizer step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p99": 0.99}


@dataclass(frozen=True)
class Observation:
    """One (micro-)batch; n is the number of its valid tokens."""

    sums: dict[str, float]
    """Shares of the step's statistics, which add up over its micro-batches."""
    ids: Tensor
    """(n,) int64: the tokens."""
    ratio: Tensor
    """(n,) probability of the token now over its probability when it was sampled."""
    low: Tensor
    """(n,) bool: held back at the lower bound of the clip rule."""
    high: Tensor
    """(n,) bool: held back at the upper bound."""


def step_stats(observations: Sequence[Observation]) -> dict[str, float]:
    """Statistics of an optimizer step from its micro-batches (with the same ``totals``).

    The names of :class:`~crlbench.contract.dynamics.StepStats` but for ``grad_norm``,
    ``update_norm`` and ``update_cosine``. Without a valid token the ratios are those of an
    unchanged policy.
    """
    stats = {name: sum(o.sums[name] for o in observations) for name in observations[0].sums}
    ratio = torch.cat([o.ratio for o in observations]).double()
    if not len(ratio):
        ratio = torch.ones(1, dtype=torch.float64)
    ordered = ratio.sort().values
    stats |= {name: _quantile(ordered, level) for name, level in QUANTILES.items()}
    stats["ratio_max"] = float(ordered[-1])
    stats["ess"] = float(ratio.sum().square() / (len(ratio) * ratio.square().sum()))
    return stats


def _quantile(ordered: Tensor, level: float) -> float:
    """Between the two neighbours in rank, linearly; torch.quantile refuses 2^24 numbers."""
    rank = level * (len(ordered) - 1)
    low = math.floor(rank)
    pair = ordered[low : low + 2].tolist()
    return pair[0] + (rank - low) * (pair[-1] - pair[0])
