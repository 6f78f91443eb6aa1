"""Dr. GRPO: GRPO without its two biases, of length and of difficulty.

Liu et al. 2025 (arXiv 2503.20783): no division by the group's standard deviation, and a constant
in place of the completion's length. From ``grpo`` it differs in: normalize (none), aggregate
(tokens over a fixed length, here the cap on completions), kl (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import FixedLength
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import NoNorm
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="dr-grpo",
    advantage=GroupMean(),
    normalize=NoNorm(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=FixedLength(),
)
