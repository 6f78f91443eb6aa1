"""REINFORCE++-baseline: the group mean is taken off before the whitening.

Hu et al. 2025 (arXiv 2501.03262); the whitening is over tokens, so long completions weigh more
in its statistics. From ``reinforce-pp`` it differs in: advantage (the outcome minus the mean of
its prompt, the KL penalty as reward-to-go of the tokens).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K1, Fixed, KlInReward
from crlbench.algo.normalize import Whiten
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="reinforce-pp-baseline",
    advantage=GroupMean(penalty="token"),
    normalize=Whiten(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
    kl=KlInReward(Fixed(0.01), K1()),
)
