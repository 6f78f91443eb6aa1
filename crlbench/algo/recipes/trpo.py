"""TRPO: a natural-gradient step under a hard bound on the KL, here with GRPO's advantages.

Schulman et al. 2015 (arXiv 1502.05477), on language models: the divergence is taken over the
whole vocabulary at every token. From ``grpo`` it differs in: step (one trust-region step an
iteration over all completions, instead of AdamW on minibatches), clip (none: the bound does
its work), kl (none: the same), aggregate (token mean, for the surrogate as for the bound).
"""

from __future__ import annotations

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import NoClip
from crlbench.algo.normalize import GroupStd
from crlbench.algo.ratio import TokenRatio
from crlbench.algo.recipe import Recipe
from crlbench.algo.step import TrustRegion

RECIPE = Recipe(
    name="trpo",
    advantage=GroupMean(),
    normalize=GroupStd(),
    ratio=TokenRatio(),
    clip=NoClip(),
    aggregate=TokenMean(),
    step=TrustRegion(),
)
