"""pass@k from n draws of each item: does one of k answers solve it?

Of c right draws among n, the chance that k of them drawn without replacement hold a right one is
1 - C(n - c, k) / C(n, k). Its mean over items is unbiased for every k <= n (Chen et al. 2021,
"Evaluating large language models trained on code", equation 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.measures import unit
from crlbench.stats.novelty import is_right

KS = (1, 4, 8, 32, 64)
"""Answers that may be tried, where there are as many draws."""


def pass_at_k(right: np.ndarray, draws: int, k: int) -> np.ndarray:
    """(...) the chance that one of k answers is right.

    Args:
        right: (...) how many of the draws are right.
        draws: n, of each item.
        k: at most n.

    Raises:
        ValidationError: k lies outside 1 ... n.
    """
    if not 1 <= k <= draws:
        raise ValidationError(f"pass@{k} of {draws} draws: k must be from 1 to {draws}")
    right = np.asarray(right)
    # 1 - C(n - c, k) / C(n, k) is 1 - the product over i < k of (n - c - i) / (n - i).
    i = np.arange(k)
    factors = np.maximum(0.0, draws - right[..., None] - i) / (draws - i)
    return 1.0 - factors.prod(axis=-1)


def pass_scores(right: np.ndarray) -> dict[int, float]:
    """pass@k of a split by k of :data:`KS`, for each k that the draws reach.

    Args:
        right: (draws, N) whether each draw of each item is right.
    """
    draws, counts = len(right), np.asarray(right).sum(axis=0)
    return {k: float(pass_at_k(counts, draws, k).mean()) for k in KS if k <= draws}


def pass_by_k(scores: np.ndarray | None, floor: float, ceiling: float) -> dict[str, float] | None:
    """The same of (draws, N) stored scores, by k as text; None without them.

    A draw is right from half of the way from floor to ceiling on.
    """
    if scores is None:
        return None
    right = is_right(unit(scores.astype(np.float64), floor, ceiling))
    return {str(k): value for k, value in pass_scores(right).items()}


@dataclass(frozen=True)
class PassAtK:
    """One split of one task with the start model and with the final one."""

    split: str
    draws: int
    start: dict[int, float]
    """By k."""
    end: dict[int, float] | None
    """Mean over the seeds, 0 for a failed run; None where no run was scored at its end."""
