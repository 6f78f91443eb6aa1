"""Two critics of every next token, on a trunk that learns."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from crlbench.policy.forward import states_shared
from crlbench.policy.head import at_least_float32
from crlbench.policy.policy import Policy
from crlbench.seeding import derive

SCALE = 0.01
"""Standard deviation of the first weights of a head: both critics begin near 0, and differ."""


class TwinCritic(nn.Module):
    """Q1 and Q2 of all words in every state: a copy of a policy's trunk with two linear heads."""

    def __init__(self, policy: Policy, words: int, seed: int) -> None:
        """The trunk begins as the policy's is now; the heads by keyed draws."""
        super().__init__()
        self.trunk: Any = copy.deepcopy(policy.backbone).requires_grad_(False)
        self.trunk.get_decoder().requires_grad_(True)
        heads = [nn.Linear(policy.width, words) for _ in range(2)]
        for number, head in enumerate(heads):
            generator = torch.Generator().manual_seed(derive(seed, "critic", number))
            head.weight.data.normal_(std=SCALE, generator=generator)
            head.bias.data.zero_()
        self.heads = nn.ModuleList(heads)

    def forward(self, batch: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """(B, T, V) float32 of each critic, of the state before each token.

        ``batch`` is what :meth:`crlbench.policy.policy.Policy.forward` takes; nothing depends on
        its temperature.
        """
        states = at_least_float32(states_shared(self.trunk, *batch[:5]))
        first, second = (head(states) for head in self.heads)
        return first, second

    def learning(self) -> dict[str, nn.Parameter]:
        """The weights that learn, by name."""
        return {n: p for n, p in self.named_parameters() if p.requires_grad}


def frozen_copy(critic: TwinCritic) -> TwinCritic:
    """A target: the same critic, which no gradient reaches."""
    return copy.deepcopy(critic).requires_grad_(False)
