"""Lite PPO: two techniques on plain PPO without a critic, group mean with batch deviation.

Liu et al. 2025, "Tricks or Traps?" (arXiv 2508.08221). From ``grpo`` it differs in: normalize
(standard deviation of the raw rewards of the whole batch), aggregate (token mean), kl (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import BatchStd
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="lite-ppo",
    advantage=GroupMean(),
    normalize=BatchStd(of="raw"),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
)
