"""DPO: direct preference optimisation on pairs, measured against the start model.

Rafailov et al. 2023 (arXiv 2305.18290), with beta 0.1. Log-probabilities are summed over an answer
and its end token. The other recipes on pairs say how they differ from this one.
"""

from __future__ import annotations

from crlbench.algo.pairs.loss import Dpo
from crlbench.algo.pairs.recipe import PairRecipe

RECIPE = PairRecipe(name="dpo", pair_loss=Dpo(beta=0.1))
