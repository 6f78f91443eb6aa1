"""Token-level PPO with a critic, as it is used on language models.

Schulman et al. 2017 (arXiv 1707.06347) for the clipped surrogate, Schulman et al. 2015 (arXiv
1506.02438) for generalised advantage estimation, Ziegler et al. 2019 (arXiv 1909.08593) for
the KL penalty in the token rewards, Huang et al. 2024 (arXiv 2403.17031) for the details of
the clipped value loss and of whitening on language models. The other recipes describe
themselves by the axes in which they differ from this one.
"""

from __future__ import annotations

from crlbench.algo.advantage import Gae
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K1, Fixed, KlInReward
from crlbench.algo.normalize import Whiten
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.select import KeepAll
from crlbench.algo.value import Critic

RECIPE = Recipe(
    name="ppo",
    advantage=Gae(gamma=1.0, lam=0.95),
    normalize=Whiten(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
    select=KeepAll(),
    kl=KlInReward(Fixed(0.01), K1()),
    critic=Critic(coefficient=0.1, clip=0.2),
)
