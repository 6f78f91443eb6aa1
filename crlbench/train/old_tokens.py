"""The log-probs that an update starts from: who finds them, and when.

In float32 what decoding saw is what a pass would see, up to rounding that the loop bounds once a
run. In bfloat16 it is not, and old log-probs that nothing looks at before the update are left to
its first pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from crlbench.algo.kl import Fixed
from crlbench.algo.recipe import Recipe
from crlbench.train.frozen import Followed
from crlbench.train.passes import Passes
from crlbench.train.ranks import whole_weights
from crlbench.types import Experience, Rollout


@dataclass(frozen=True)
class Tokens:
    """What is known of sampled tokens before an update."""

    old: Tensor
    """(B, T) float32 log-probs of the learner."""
    ref: Tensor | None
    """(B, T) float32 log-probs of the reference, where they were asked for."""
    start: Tensor | None
    """(B, T) float32 log-probs of the start model, where they were found."""
    values: Tensor | None
    """(B, T) float32 critic estimates, with a critic."""
    final_values: Tensor | None
    """(B,) float32 estimates after the last token, where the recipe wants them."""


@dataclass(frozen=True)
class OldTokens:
    """Finds old log-probs with as few passes as the recipe and the precision admit."""

    passes: Passes
    recipe: Recipe
    float32: bool
    """Whether decoding computes in float32."""
    needs_pass: bool
    """Whether the update needs a pass by its own attention, whatever decoding knows."""

    @property
    def deferred(self) -> bool:
        """Whether the first update finds the old log-probs by its own pass."""
        recipe = self.recipe
        return (
            not self.needs_pass
            and not self.float32
            and recipe.critic is None
            and recipe.kl.place != "reward"
            and isinstance(recipe.kl.coefficient, Fixed)
            and not recipe.select.resamples
        )

    def known(self, rollout: Rollout) -> bool:
        """Whether no pass of the learner is needed between sampling and the update."""
        valued = self.recipe.critic is None or rollout.behavior_values is not None
        return not self.needs_pass and (self.float32 and valued or self.deferred)

    @torch.no_grad()
    def find(self, rollout: Rollout, reference: Followed | None, watched: bool) -> Tokens:
        """Everything that is to be known of a rollout.

        A KL in the reward is the difference of two passes. While the learner is the reference,
        one pass of it stands for both: the KL is exactly 0, where whitening would make a signal of
        rounding.

        Args:
            reference: what the KL is the distance to; None where nothing asks for it.
            watched: whether the start model is asked in any case.
        """
        old, values = rollout.behavior_logprobs, rollout.behavior_values
        skips_pass = self.known(rollout)
        if not skips_pass:
            old, values = self.passes.of_learner(rollout)
        ref = None if reference is None else self._of(reference, rollout)
        start = ref if reference is not None and reference.is_start else None
        if watched and start is None:
            start = self.passes.of_reference(rollout)
        if skips_pass and self.recipe.kl.place == "reward":
            assert ref is not None and reference is not None
            old = ref if reference.is_learner else old
        finals = self.recipe.advantage.needs_final_values
        return Tokens(
            old, ref, start, values, self.passes.final_values(rollout) if finals else None
        )

    def _of(self, reference: Followed, rollout: Rollout) -> Tensor:
        """(B, T) log-probs of a reference."""
        if reference.is_start:
            return self.passes.of_reference(rollout)
        (logprobs,) = self.passes.evaluated(
            rollout, lambda part: (reference.policy.logprobs(self.passes, part),)
        )
        assert logprobs is not None
        return logprobs

    @torch.no_grad()
    def settle(self, experience: Experience, first: Tensor) -> None:
        """Old log-probs that were deferred: of all rows but ``first`` (b,), by a pass.

        Those of the first minibatch stay unknown (NaN): its own pass is theirs.
        """
        old = experience.old_logprobs
        rows = torch.arange(len(experience.keep), device=first.device)
        rest = rows[~torch.isin(rows, first)]
        old[first] = old[first].masked_fill(experience.rollout.action_mask[first], math.nan)
        if len(rest):
            with whole_weights(self.passes.policy):
                old[rest], _ = self.passes.of_learner(experience.rollout.rows(rest))
