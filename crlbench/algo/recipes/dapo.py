"""DAPO: GRPO with clip-higher, dynamic sampling, token-level loss and a soft length penalty.

Yu et al. 2025 (arXiv 2503.14476). From ``grpo`` it differs in: clip (0.28 above), aggregate
(token mean over the whole step), select (dynamic sampling), overlong (soft punishment on the
last fifth of the cap, as 4096 of 20480 tokens in the paper), kl (none). The punishment is half of
the spread of the rewards, which the paper pays from -1 to 1 and a task here from 0 to 1.
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import GroupStd
from crlbench.algo.overlong import SoftPunishment
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.select import DynamicSampling

RECIPE = Recipe(
    name="dapo",
    advantage=GroupMean(),
    normalize=GroupStd(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.28),
    aggregate=TokenMean(),
    select=DynamicSampling(),
    overlong=SoftPunishment(cache=0.2, factor=0.5),
)
