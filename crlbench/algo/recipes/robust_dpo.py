"""Robust DPO: unbiased where a known share of the pairs is the wrong way round.

Chowdhury et al. 2024 (arXiv 2403.00409), for 10 % of wrong pairs. From ``dpo`` it differs in:
pair_loss (corrected for flipped labels).
"""

from __future__ import annotations

from crlbench.algo.pairs.loss import RobustDpo
from crlbench.algo.pairs.recipe import PairRecipe

RECIPE = PairRecipe(name="robust-dpo", pair_loss=RobustDpo(beta=0.1, label_smoothing=0.1))
