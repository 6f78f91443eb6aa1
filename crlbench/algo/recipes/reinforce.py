"""REINFORCE with the batch mean as its baseline: the plainest policy gradient.

Williams 1992 (doi 10.1007/BF00992696). From ``rloo`` it differs in: advantage (the baseline is
the mean of the whole batch, the completion's own prompt is not compared with itself), ratio and
clip (the log-probability itself: no correction when an old sample is used again), kl (none).
"""

from __future__ import annotations

from crlbench.algo.advantage import BatchMean
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import NoClip
from crlbench.algo.normalize import NoNorm
from crlbench.algo.ratio import NoRatio
from crlbench.algo.recipe import Recipe

RECIPE = Recipe(
    name="reinforce",
    advantage=BatchMean(),
    normalize=NoNorm(),
    ratio=NoRatio(),
    clip=NoClip(),
    aggregate=TokenMean(),
)
