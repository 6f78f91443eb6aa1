"""GRPO: group-relative advantages, every completion weighing the same, KL in the loss.

Shao et al. 2024 (arXiv 2402.03300), with outcome rewards and the paper's KL weight of 0.04. From
``ppo`` it differs in: advantage (group mean), normalize (group standard deviation), aggregate
(mean of the completions' token means), kl (k3 in the loss), critic (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import SequenceMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K3, Fixed, KlInLoss
from crlbench.algo.normalize import GroupStd
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="grpo",
    advantage=GroupMean(),
    normalize=GroupStd(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=SequenceMean(row="mean"),
    kl=KlInLoss(Fixed(0.04), K3()),
)
