"""SFT: supervised fine-tuning on demonstrations.

Ouyang et al. 2022 (arXiv 2203.02155), section 3.5: the mean negative log-likelihood of the tokens
of the answers and of their end tokens. Prompts are read and not learned. Other recipes on
demonstrations differ from this one in: likelihood.
"""

from __future__ import annotations

from crlbench.algo.supervised import SupervisedRecipe, TokenNll

RECIPE = SupervisedRecipe(name="sft", likelihood=TokenNll())
