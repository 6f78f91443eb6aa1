"""REINFORCE++: PPO without a critic; token rewards to go, whitened over the whole batch.

Hu et al. 2025 (arXiv 2501.03262). From ``ppo`` it differs in: advantage (reward-to-go of token
rewards that contain the KL penalty), critic (none). Whitening, clip and KL are those of ``ppo``.
"""

from __future__ import annotations

from crlbench.algo.advantage import RewardToGo
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K1, Fixed, KlInReward
from crlbench.algo.normalize import Whiten
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="reinforce-pp",
    advantage=RewardToGo(gamma=1.0),
    normalize=Whiten(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
    kl=KlInReward(Fixed(0.01), K1()),
)
