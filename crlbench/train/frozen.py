"""Policies that do not learn, beside the one that does: what they say of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from crlbench.train.passes import Passes
from crlbench.types import Rollout


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
    def drawn_to(self, weights: Mapping[str, Tensor], kept: float) -> HeldWeights:
        """These weights, moved by a share 1 - ``kept`` of the way to others."""
        pairs = ((name, old.to(weights[name].device)) for name, old in self.weights.items())
        return HeldWeights({name: kept * old + (1 - kept) * weights[name] for name, old in pairs})


def held(weights: Mapping[str, Tensor]) -> HeldWeights:
    """A copy of weights that nobody changes."""
    return HeldWeights({name: tensor.detach().clone() for name, tensor in weights.items()})
