"""Trust-region optimisation: one natural-gradient step an iteration, no optimizer state.

What it costs beyond another recipe. Time: ``cg_iterations`` products of the Fisher rows, each
about six forward passes of them, and up to ``tries`` forward passes of everything. Memory: some
ten vectors as long as the trainable weights, the old distribution (V floats a token), and the
graph of a gradient of the Fisher rows, a few times that of a loss.
"""

from __future__ import annotations

import contextlib
from functools import cached_property

import torch
from torch import Tensor, nn

from crlbench.algo import objective, step
from crlbench.algo.observe import Observation
from crlbench.algo.trust_region import (
    Measure,
    Product,
    flatten,
    kl_product,
    token_kl,
    trust_region_step,
)
from crlbench.errors import UsageError
from crlbench.policy.policy import TokenOutputs, twice_differentiable
from crlbench.train.charging import Meter
from crlbench.train.learner import Learner, Step
from crlbench.train.surrogate import Surrogate
from crlbench.types import Experience, as_bool

REJECTED = ("negative curvature", "line search failed")
"""Outcomes of a step that was tried and not taken."""


class TrustRegion:
    """The step of :class:`crlbench.algo.step.TrustRegion` on a whole experience.

    The learner's optimizer never steps. The figures of an update are those after the step. Its
    ``approx_kl`` is above the KL that was bounded: it looks only at the sampled tokens, whose own
    probabilities the step was made to move.
    """

    whole_experience = True

    def __init__(self, rule: step.TrustRegion) -> None:
        self.rule = rule

    def attention(self) -> contextlib.AbstractContextManager[None]:
        """The one that the step uses, so that the ratio starts at 1."""
        return twice_differentiable()

    def step(self, learner: Learner, objective: Surrogate) -> Step:
        """One step, or none; skipped as any update where the gradient is not finite.

        Raises:
            UsageError: the objective is no recipe's surrogate, which alone has distributions.
        """
        if not isinstance(objective, Surrogate):
            raise UsageError(
                "a trust-region step needs the surrogate of a recipe, and "
                f"{type(objective).__name__} is none. Take FirstOrder for another objective."
            )
        weights = learner.trainable()
        parts = learner.conditions.optimization.minibatches
        landscape = Landscape(objective, list(weights.values()), self.rule, parts, learner.meter)
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        with twice_differentiable():
            gradient = landscape.gradient()
            result = trust_region_step(
                landscape.weights, gradient, landscape.product, landscape.measure, self.rule
            )
        figures = objective.note(landscape.latest if result.accepted else landscape.start)
        return Step(
            figures | {"grad_norm": float(gradient.norm())},
            moved={name: weight.detach() - before[name] for name, weight in weights.items()},
            skipped=result.reason == "not finite",
            counts={"rejected_steps": float(result.reason in REJECTED)},
        )


class Landscape:
    """Surrogate J and mean KL of one experience, as functions of the policy's weights."""

    def __init__(
        self,
        surrogate: Surrogate,
        weights: list[nn.Parameter],
        rule: step.TrustRegion,
        parts: int,
        meter: Meter | None = None,
    ) -> None:
        """The experience is run in ``parts``, as many as the track has minibatches, so that a
        pass holds no more in memory than the update of another recipe. ``meter`` is charged for
        every pass."""
        self.surrogate = surrogate
        self.weights = weights
        self.rule = rule
        self.meter = meter
        self.minibatch = surrogate.minibatch
        rows = torch.arange(len(self.minibatch.keep), device=self.minibatch.keep.device)
        self.parts = [self.minibatch.rows(index).trimmed() for index in rows.chunk(parts)]
        self.old: list[Tensor] = []
        """Log-distributions (n, V) of each part's valid tokens before the step."""
        self.start: list[Observation] = []
        """What each part showed before the step."""
        self.latest: list[Observation] = []
        """What each part showed to the last measure."""

    def gradient(self) -> Tensor:
        """(n,) gradient of J at the present weights, which become the old policy."""
        shares = []
        for part in self.parts:
            loss, observation, distribution = self.loss(part)
            slopes = torch.autograd.grad(-loss, self.weights, allow_unused=True)
            shares.append(flatten(slopes, self.weights))
            if self.meter is not None:
                self.meter.trace(part.rollout)
            self.old.append(distribution.detach())
            self.start.append(observation)
        return torch.stack(shares).sum(0)

    def product(self, vector: Tensor) -> Tensor:
        """(n,) Hessian of the mean KL of the Fisher rows, times ``vector`` (n,)."""
        product = self.curvature(vector)
        if self.meter is not None:
            self.meter.multiply(self.fisher.rollout)
        return product

    @cached_property
    def fisher(self) -> Experience:
        """The rows of which the Fisher matrix is made."""
        return self.minibatch.rows(self.fisher_rows()).trimmed()

    @cached_property
    def curvature(self) -> Product:
        distribution = self.distribution(self.fisher)
        if self.meter is not None:
            self.meter.trace(self.fisher.rollout)
        return kl_product(token_kl(distribution, distribution.detach()).mean(), self.weights)

    def fisher_rows(self) -> Tensor:
        """(m,) int64: rows with a valid token, spread evenly."""
        rows = valid_tokens(self.minibatch).any(1).nonzero().squeeze(1)
        count = min(self.rule.fisher_rows, len(rows))
        return rows[torch.linspace(0, len(rows) - 1, count).round().long().to(rows.device)]

    @torch.no_grad()
    def measure(self) -> Measure:
        """J and the mean KL to the old policy over all valid tokens, at the present weights."""
        surrogate, divergence, self.latest = 0.0, 0.0, []
        for part, old in zip(self.parts, self.old, strict=True):
            loss, observation, distribution = self.loss(part)
            if self.meter is not None:
                self.meter.read(part.rollout)
            surrogate -= float(loss)
            divergence += float(token_kl(distribution, old).double().sum())
            self.latest.append(observation)
        return Measure(surrogate, divergence / max(self.surrogate.totals.tokens, 1.0))

    def loss(self, part: Experience) -> tuple[Tensor, Observation, Tensor]:
        """The part's share of -J, what it shows, and the distributions of its valid tokens."""
        outputs = self.outputs(part)
        loss, observation = objective.loss(
            part,
            outputs.logprobs,
            None,
            outputs.entropy,
            self.surrogate.recipe,
            self.surrogate.totals,
        )
        return loss, observation, valid_distributions(part, outputs)

    def distribution(self, part: Experience) -> Tensor:
        """(n, V) log-distributions of the part's valid tokens."""
        return valid_distributions(part, self.outputs(part))

    def outputs(self, part: Experience) -> TokenOutputs:
        """What the policy says of the part, on the host, and the whole distribution, which stays
        on the device."""
        passes = self.surrogate.passes
        return passes.policy(*passes.inputs(part.rollout), distribution=True).on_host()


def valid_distributions(part: Experience, outputs: TokenOutputs) -> Tensor:
    """(n, V) log-distributions at the part's valid tokens."""
    assert outputs.distribution is not None
    return outputs.distribution[valid_tokens(part)]


def valid_tokens(part: Experience) -> Tensor:
    """(b, T) bool: the tokens that J and the KL are taken over."""
    return as_bool(part.rollout.action_mask) & part.keep[:, None]
