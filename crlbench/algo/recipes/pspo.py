"""PSPO (proximal sequence policy optimization): one importance ratio and one advantage per turn.

PaperScout (arXiv 2601.10029), after the authors' repository, with its clip range, clip of values
and KL weight; it is neither PSPO* (arXiv 2411.11681) nor probability smoothing (arXiv 2509.21282).
From ``step-ppo`` it differs in: ratio (per turn), clip (3e-4 below, 4e-4 above), aggregate (mean
over turns of token means), kl (k3 in the loss, weight 0.001), critic (clip 0.5).
"""

from __future__ import annotations

from crlbench.algo.advantage import StepGae
from crlbench.algo.aggregate import TurnMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.kl import K3, Fixed, KlInLoss
from crlbench.algo.normalize import WhitenTurns
from crlbench.algo.ratio import TurnRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.value import Critic

RECIPE = Recipe(
    name="pspo",
    advantage=StepGae(gamma=1.0, lam=1.0),
    normalize=WhitenTurns(),
    ratio=TurnRatio(mean="geometric"),
    clip=PpoClip(low=3e-4, high=4e-4),
    aggregate=TurnMean(),
    kl=KlInLoss(Fixed(0.001), K3()),
    critic=Critic(coefficient=0.1, clip=0.5),
)
