"""The maths of policy optimisation: pure tensor functions and frozen dataclasses.

An algorithm is a :class:`~crlbench.algo.recipe.Recipe` of parts, one per axis; two functions
of :mod:`crlbench.algo.objective` turn a rollout into an experience and an experience into a
loss. Nothing here knows a model, a file or a training loop.
"""
