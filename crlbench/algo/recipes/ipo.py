"""IPO: identity preference optimisation, whose margin does not grow without end.

Azar et al. 2023 (arXiv 2310.12036), on log-probabilities per token, with beta 0.1. From ``dpo`` it
differs in: pair_loss (a squared distance).
"""

from __future__ import annotations

from crlbench.algo.pairs.loss import Ipo
from crlbench.algo.pairs.recipe import PairRecipe

RECIPE = PairRecipe(name="ipo", pair_loss=Ipo(beta=0.1))
