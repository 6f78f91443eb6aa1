"""Learning from pairs: on one prompt an answer that is preferred to another one.

A :class:`~crlbench.algo.pairs.recipe.PairRecipe` is one part per axis: what a pair loses
(:mod:`loss`), against which policy log-probabilities are measured (:mod:`reference`), which answers
of a prompt make pairs (:mod:`pairing`), and what keeps the preferred answers likely
(:mod:`anchor`).
"""
