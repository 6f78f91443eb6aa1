"""LightningRL: every call of an episode gets its outcome, and every episode weighs the same.

Agent Lightning (arXiv 2508.03680), after its repository: group statistics count each episode once,
and the loss is the mean over episodes of their token means. From ``grpo`` it differs in: aggregate
(trajectory mean), kl (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import TrajectoryMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import GroupStd
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="lightning",
    advantage=GroupMean(),
    normalize=GroupStd(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TrajectoryMean(),
)
