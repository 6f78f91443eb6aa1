"""Discrete SAC (experimental, never ranked): soft actor-critic over tokens, from a replay.

Haarnoja et al. 2018 (arXiv 1812.05905) for discrete actions (Christodoulou 2019, arXiv 1910.07207):
two critics estimate every next token, and the policy maximises the smaller estimate plus its
entropy. Nobody has shown that it works on language models; docs/soft-actor-critic.md says what is
known here. Vocabularies of at most 512 words. Other recipes of its kind differ from this one in one
axis.
"""

from __future__ import annotations

from crlbench.algo.replay import SacRecipe

RECIPE = SacRecipe(name="sac-discrete")
