"""RLOO: REINFORCE against the mean of the other completions of the same prompt.

Ahmadian et al. 2024 (arXiv 2402.14740), after Kool et al. 2019; the KL penalty is part of the
reward of the whole completion. From ``ppo`` it differs in: advantage (no critic: leave-one-out),
normalize (none), critic (none). The clipped token ratio is kept, because the track makes several
optimizer steps of one rollout; at the first its gradient is the paper's, but for its scale.
"""

from __future__ import annotations

from crlbench.algo.advantage import LeaveOneOut
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K1, Fixed, KlInReward
from crlbench.algo.normalize import NoNorm
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="rloo",
    advantage=LeaveOneOut(),
    normalize=NoNorm(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
    kl=KlInReward(Fixed(0.01), K1()),
)
