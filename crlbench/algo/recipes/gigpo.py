"""GiGPO: episodes against their group, and turns against the group's turns in the same state.

Feng et al. 2025 (arXiv 2505.10978), with F_norm = 1 (no deviation divides), step weight 1, step
discount 0.95 and KL weight 0.01. From ``grpo`` it differs in: advantage (anchor states), normalize
(none), aggregate (every turn weighs the same), kl (weight 0.01).
"""

from __future__ import annotations

from crlbench.algo.advantage import AnchorState
from crlbench.algo.aggregate import TurnMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K3, Fixed, KlInLoss
from crlbench.algo.normalize import NoNorm
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="gigpo",
    advantage=AnchorState(weight=1.0, gamma=0.95),
    normalize=NoNorm(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TurnMean(),
    kl=KlInLoss(Fixed(0.01), K3()),
)
