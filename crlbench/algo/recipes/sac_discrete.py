"""Discrete SAC (experimental, never ranked): soft actor-critic over tokens, from a replay.

Haarnoja et al. 2018 (arXiv 1812.05905) for discrete actions (Christodoulou 2019, arXiv 1910.07207):
two critics estimate every next token, and the policy maximises the smaller estimate minus its KL
from the start model. docs/soft-actor-critic.md says what is known here, and which numbers failed.
Vocabularies of at most 512 words. Other recipes of its kind differ from this one in one axis.
"""

from __future__ import annotations

from crlbench.algo.replay import FixedTemperature, Replay, SacRecipe, StartPrior
from crlbench.algo.soft_actor_critic import DiscreteSac

RECIPE = SacRecipe(
    name="sac-discrete",
    soft_losses=DiscreteSac(polyak=0.05),
    temperature=FixedTemperature(alpha=0.1),
    prior=StartPrior(),
    replay=Replay(updates=16),
)
