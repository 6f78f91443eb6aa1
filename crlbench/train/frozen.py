"""Policies that do not learn, beside the one that does: what they say of answers, and when they
follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from crlbench.algo.reference import Reference
from crlbench.train.passes import Passes
from crlbench.types import Rollout

Weights = Mapping[str, Tensor]
"""All that learns, by name: what :meth:`crlbench.train.learner.Learner.learned` gives, and what
``policy.safetensors`` of a run holds."""


class FrozenPolicy(Protocol):
    """A policy that is asked and never trained."""

    def logprobs(self, passes: Passes, rollout: Rollout) -> Tensor:
        """(b, t) float32 log-probabilities of a rollout's tokens, on the host."""
        ...


@dataclass(frozen=True)
class StartModel:
    """The start model, which the learner's policy carries as its reference."""

    def logprobs(self, passes: Passes, rollout: Rollout) -> Tensor:
        actions = rollout.action_mask
        return passes.policy.reference_logprobs(*passes.inputs(rollout), actions=actions).cpu()


@dataclass(frozen=True)
class HeldWeights:
    """The learner's policy with other weights, by its own passes."""

    weights: dict[str, Tensor]
    """All that learns, by name, as :meth:`crlbench.train.learner.Learner.learned` has it."""

    def logprobs(self, passes: Passes, rollout: Rollout) -> Tensor:
        device = passes.device
        weights = {name: tensor.to(device) for name, tensor in self.weights.items()}
        return passes.of_weights(rollout, weights).logprobs

    @torch.no_grad()
    def drawn_to(self, weights: Weights, kept: float) -> HeldWeights:
        """These weights, moved by a share 1 - ``kept`` of the way to others."""
        pairs = ((name, old.to(weights[name].device)) for name, old in self.weights.items())
        return HeldWeights({name: kept * old + (1 - kept) * weights[name] for name, old in pairs})


def held(weights: Weights) -> HeldWeights:
    """A copy of weights that nobody changes."""
    return HeldWeights({name: tensor.detach().clone() for name, tensor in weights.items()})


@dataclass(eq=False)
class Followed:
    """What a learner is measured against, and how it follows the learner during a run."""

    rule: Reference
    policy: FrozenPolicy
    is_learner: bool = True
    """Whether the learner still has the weights that it is measured against."""

    @property
    def is_start(self) -> bool:
        """Whether it is the model that the policy carries as its reference."""
        return isinstance(self.policy, StartModel)

    def begin(self, iteration: int, iterations: int, learned: Callable[[], Weights]) -> None:
        """Take the learner as it is where the rule says so, before an iteration.

        Args:
            iteration: counted from 0.
            iterations: of the whole run.
            learned: the learner's weights, as :meth:`crlbench.train.learner.Learner.learned` has
                them.
        """
        averaged = self.rule.kept < 1.0 and not isinstance(self.policy, HeldWeights)
        if averaged or self.rule.round_begins(iteration, iterations):
            self.policy, self.is_learner = held(learned()), True

    def follow(self, learned: Callable[[], Weights], moved: bool = True) -> bool:
        """Follow a step of the learner, which ``moved`` its weights or left them; whether it did
        follow."""
        self.is_learner &= not moved
        if self.rule.kept == 1.0 or not isinstance(self.policy, HeldWeights):
            return False
        self.policy = self.policy.drawn_to(learned(), self.rule.kept)
        self.is_learner |= self.rule.kept == 0.0
        return True

    def state(self) -> dict[str, Any]:
        """What a checkpoint carries: nothing where the rule keeps the start."""
        if not self.rule.moves or not isinstance(self.policy, HeldWeights):
            return {}
        return {"reference": self.policy.weights, "reference_is_learner": self.is_learner}

    def load(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from the state in a checkpoint."""
        if "reference" in checkpoint:
            self.policy = HeldWeights(checkpoint["reference"])
            self.is_learner = bool(checkpoint["reference_is_learner"])
