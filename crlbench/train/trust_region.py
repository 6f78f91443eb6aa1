"""Trust-region optimisation: one natural-gradient step an iteration, no optimizer state.

What it costs beyond another recipe. Time: ``cg_iterations`` products of the Fisher rows, each
about six forward passes of them, and up to ``tries`` forward passes of everything. Memory: some
ten vectors as long as the trainable weights, the old distribution (V floats a token), and the
graph of a gradient of the Fisher rows, a few times that of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from crlbench.algo import objective
from crlbench.algo.observe import Observation, step_stats
from crlbench.algo.trust_region import (
    Measure,
    Product,
    flatten,
    kl_product,
    token_kl,
    trust_region_step,
)
from crlbench.policy.policy import twice_differentiable
from crlbench.train.displacement import Weights
from crlbench.train.module import PolicyOptimization
from crlbench.types import Experience, Rollout, as_bool

REJECTED = ("negative curvature", "line search failed")
"""Outcomes of a step that was tried and not taken."""


class TrustRegionOptimization(PolicyOptimization):
    """Policy optimisation by the :class:`~crlbench.algo.step.TrustRegion` step of the recipe.

    The optimizer that the parent configures never steps. The figures of an update are those
    after the step. Its ``approx_kl`` is above the KL that was bounded: it looks only at the
    sampled tokens, whose own probabilities the step was made to move.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.rejected_steps = 0

    def evaluate_tokens(self, rollout: Rollout, reference: bool) -> tuple[Tensor | None, ...]:
        """As the parent, by the attention that the step uses, so that the ratio starts at 1."""
        with twice_differentiable():
            old, *others = super().evaluate_tokens(rollout, reference)
        self.gap = (rollout.behavior_logprobs - old).abs()[rollout.action_mask]
        return old, *others

    def knows_tokens(self, rollout: Rollout) -> bool:
        """Never: decoding uses another attention."""
        return False

    @property
    def defers_old(self) -> bool:
        """Never: the update makes no pass of its own before the step."""
        return False

    def minibatches(self, experience: Experience, iteration: int) -> Iterator[Tensor]:
        """The whole experience, once."""
        yield torch.arange(len(experience.keep), device=experience.keep.device)

    def update(self, minibatch: Experience) -> tuple[dict[str, float], Weights]:
        """One step, or none; skipped as any update where the gradient is not finite."""
        landscape = Landscape(self, minibatch)
        before = {n: p.detach().clone() for n, p in self.policy.trainable().items()}
        with twice_differentiable():
            gradient = landscape.gradient()
            result = trust_region_step(
                landscape.weights,
                gradient,
                landscape.product,
                landscape.measure,
                self.recipe.step,
            )
        self.skipped_running = self.skipped_running + 1 if result.reason == "not finite" else 0
        self.longest_skip = max(self.longest_skip, self.skipped_running)
        self.rejected_steps += result.reason in REJECTED
        seen = landscape.latest if result.accepted else landscape.start
        self.observations += seen
        after = self.policy.trainable()
        moved = {name: after[name].detach() - old for name, old in before.items()}
        return step_stats(seen) | {"grad_norm": float(gradient.norm())}, moved

    def finish_iteration(self, *given: Any) -> None:
        """As the parent, which takes the counts last; rejected steps are among them."""
        *others, counts = given
        rejected, self.rejected_steps = self.rejected_steps, 0
        super().finish_iteration(*others, counts | {"rejected_steps": float(rejected)})


class Landscape:
    """Surrogate J and mean KL of one experience, as functions of the policy's weights.

    The experience is run in as many parts as the track has minibatches, so that a pass holds
    no more in memory than the update of another recipe.
    """

    def __init__(self, module: PolicyOptimization, minibatch: Experience) -> None:
        self.module = module
        self.minibatch = minibatch
        self.weights = list(module.policy.trainable().values())
        self.totals = module.totals(minibatch)
        rows = torch.arange(len(minibatch.keep), device=minibatch.keep.device)
        self.parts = [
            minibatch.rows(index).trimmed()
            for index in rows.chunk(module.conditions.optimization.minibatches)
        ]
        self.old: list[Tensor] = []
        """Of each part, the log-distributions (n, V) of its valid tokens before the step."""
        self.start: list[Observation] = []
        """Of each part, what was seen before the step."""
        self.latest: list[Observation] = []
        """Of each part, what the last measure saw."""

    def gradient(self) -> Tensor:
        """(n,) gradient of J at the present weights, which become the old policy."""
        shares = []
        for part in self.parts:
            loss, observation, distribution = self.loss(part)
            slopes = torch.autograd.grad(-loss, self.weights, allow_unused=True)
            shares.append(flatten(slopes, self.weights))
            self.old.append(distribution.detach())
            self.start.append(observation)
        return torch.stack(shares).sum(0)

    def product(self, vector: Tensor) -> Tensor:
        """(n,) Hessian of the mean KL of the Fisher rows, times ``vector`` (n,)."""
        return self.curvature(vector)

    @cached_property
    def curvature(self) -> Product:
        part = self.minibatch.rows(self.fisher_rows()).trimmed()
        distribution = self.distribution(part)
        return kl_product(token_kl(distribution, distribution.detach()).mean(), self.weights)

    def fisher_rows(self) -> Tensor:
        """(m,) int64: rows with a valid token, spread evenly."""
        rows = valid_tokens(self.minibatch).any(1).nonzero().squeeze(1)
        count = min(self.module.recipe.step.fisher_rows, len(rows))
        return rows[torch.linspace(0, len(rows) - 1, count).round().long().to(rows.device)]

    @torch.no_grad()
    def measure(self) -> Measure:
        """J and the mean KL to the old policy over all valid tokens, at the present weights."""
        surrogate, divergence, self.latest = 0.0, 0.0, []
        for part, old in zip(self.parts, self.old, strict=True):
            loss, observation, distribution = self.loss(part)
            surrogate -= float(loss)
            divergence += float(token_kl(distribution, old).double().sum())
            self.latest.append(observation)
        return Measure(surrogate, divergence / max(self.totals.tokens, 1.0))

    def loss(self, part: Experience) -> tuple[Tensor, Observation, Tensor]:
        """The part's share of -J, what it shows, and the distributions of its valid tokens."""
        outputs = self.module.policy(*self.module.inputs(part.rollout), distribution=True)
        loss, observation = objective.loss(
            part, outputs.logprobs, None, outputs.entropy, self.module.recipe, self.totals
        )
        return loss, observation, outputs.distribution[valid_tokens(part)]

    def distribution(self, part: Experience) -> Tensor:
        """(n, V) log-distributions of the part's valid tokens."""
        outputs = self.module.policy(*self.module.inputs(part.rollout), distribution=True)
        return outputs.distribution[valid_tokens(part)]


def valid_tokens(part: Experience) -> Tensor:
    """(b, T) bool: the tokens that J and the KL are taken over."""
    return as_bool(part.rollout.action_mask) & part.keep[:, None]
