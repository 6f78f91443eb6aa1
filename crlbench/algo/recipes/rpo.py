"""DPO with an anchor: preferred answers are also learned by heart, so that they stay likely.

Pang et al. 2024 (arXiv 2404.19733), with weight 1. From ``dpo`` it differs in: anchor (the
negative log-likelihood of the preferred answer).
"""

from __future__ import annotations

from crlbench.algo.pairs.anchor import Nll
from crlbench.algo.pairs.loss import Dpo
from crlbench.algo.pairs.recipe import PairRecipe

RECIPE = PairRecipe(name="rpo", pair_loss=Dpo(beta=0.1), anchor=Nll(weight=1.0))
