"""Step-level PPO: the turn of an agent is the action, and the critic estimates turns.

StepPO (arXiv 2604.18401) with the formulas of Agent-R1 (arXiv 2511.14460): advantages over turns,
whitened over turns, and the clipped ratio of tokens. From ``ppo`` it differs in: advantage (over
turns), normalize (each turn counts once).
"""

from __future__ import annotations

from crlbench.algo.advantage import StepGae
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K1, Fixed, KlInReward
from crlbench.algo.normalize import WhitenTurns
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.value import Critic

RECIPE = Recipe(
    name="step-ppo",
    advantage=StepGae(gamma=1.0, lam=1.0),
    normalize=WhitenTurns(),
    ratio=TokenRatio(),
    clip=PpoClip(low=0.2, high=0.2),
    aggregate=TokenMean(),
    kl=KlInReward(Fixed(0.01), K1()),
    critic=Critic(coefficient=0.1, clip=0.2),
)
