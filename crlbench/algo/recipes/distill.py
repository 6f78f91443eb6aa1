"""On-policy distillation: the policy samples, and a teacher says what it would have said.

Agarwal et al. 2023 (arXiv 2306.13649), with samples of the student alone and the reverse KL over
the whole vocabulary. The teacher is a model entry of the same vocabulary and never learns. No
reward is learned from. Other recipes with a teacher differ from this one in divergence or teacher.
"""

from __future__ import annotations

from crlbench.algo.distillation import DistillRecipe, ReverseKl, Teacher

RECIPE = DistillRecipe(
    name="distill", divergence=ReverseKl(), teacher=Teacher(entry="tiny-llama-3m")
)
