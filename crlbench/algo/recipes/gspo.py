"""GSPO: one importance ratio per completion, the geometric mean of its tokens' ratios.

Zheng et al. 2025 (arXiv 2507.18071), with the paper's clip range. From ``grpo`` it differs in:
ratio (sequence), clip (3e-4 below, 4e-4 above), kl (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import SequenceMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import GroupStd
from crlbench.algo.ratio import SequenceRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="gspo",
    advantage=GroupMean(),
    normalize=GroupStd(),
    ratio=SequenceRatio(mean="geometric"),
    clip=PpoClip(low=3e-4, high=4e-4),
    aggregate=SequenceMean(row="mean"),
)
