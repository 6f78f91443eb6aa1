"""Discrete soft actor-critic: the losses of two critics, an actor and a temperature.

A state is a prefix of tokens and an action the next token. Nothing here samples or trains. On
language models these losses are experimental (docs/soft-actor-critic.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part


@dataclass(frozen=True)
class DiscreteSac(Part):
    """Losses over N states with A actions each; means over the states.

    Log-probabilities of actions that cannot be taken are -inf. With ``log_prior`` the entropy
    becomes minus the KL from that distribution, which keeps a policy near a reference.
    """

    gamma: float = 1.0
    """Discount of a step."""
    polyak: float = 0.005
    """Share of the critic that its target takes over in an update."""

    formula: ClassVar[str] = (
        "y = r + gamma (1 - done) sum_a pi(a|s') [min Q'(s', a) - alpha log pi(a|s')];  "
        "critic: (Q1(s, a) - y)^2 + (Q2(s, a) - y)^2;  actor: sum_a pi [alpha log pi - min Q];  "
        "temperature: -alpha sum_a pi [log pi + H];  target: Q' moves by polyak (Q - Q')"
    )
    source: ClassVar[str] = (
        "Haarnoja et al. 2018, arXiv 1812.05905; Christodoulou 2019, arXiv 1910.07207, eq. 4, 10-12"
    )

    def check(self) -> None:
        self.require(0 <= self.gamma <= 1, "gamma", "from 0 to 1")
        self.require(0 < self.polyak <= 1, "polyak", "above 0 and at most 1")

    def soft_value(
        self,
        logprobs: Tensor,
        q1: Tensor,
        q2: Tensor,
        alpha: float,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """(N,) expected smaller Q plus alpha times the entropy; all others (N, A)."""
        gain = torch.minimum(q1, q2) - alpha * _surprise(logprobs, log_prior)
        return _expected(logprobs, gain)

    @torch.no_grad()
    def target(
        self,
        rewards: Tensor,
        done: Tensor,
        next_logprobs: Tensor,
        next_q1: Tensor,
        next_q2: Tensor,
        alpha: float,
        next_log_prior: Tensor | None = None,
    ) -> Tensor:
        """(N,) what the critics are fitted to.

        Args:
            rewards: (N,) of the step.
            done: (N,) bool: the completion ended here. One that was cut off did not: it goes on in
                the state after its last token.
            next_logprobs: (N, A) of the policy in the next state.
            next_q1: (N, A) of the first target critic there.
            next_q2: (N, A) of the second.
            alpha: temperature.
            next_log_prior: (N, A), or None for the entropy.
        """
        value = self.soft_value(next_logprobs, next_q1, next_q2, alpha, next_log_prior)
        # A state after the end is none: whatever stands there counts nothing.
        return rewards + self.gamma * torch.where(done, torch.zeros_like(value), value)

    def critic_loss(self, q1: Tensor, q2: Tensor, actions: Tensor, target: Tensor) -> Tensor:
        """() squared errors of both critics (N, A) at the actions taken (N,) int64."""
        taken = (q.gather(1, actions[:, None]).squeeze(1) for q in (q1, q2))
        first, second = ((q - target).square().mean() for q in taken)
        return first + second

    def actor_loss(
        self,
        logprobs: Tensor,
        q1: Tensor,
        q2: Tensor,
        alpha: float,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """() minus the soft value, in expectation over actions; the critics learn nothing."""
        return -self.soft_value(logprobs, q1.detach(), q2.detach(), alpha, log_prior).mean()

    def temperature_loss(
        self, log_alpha: Tensor, logprobs: Tensor, entropy: float, log_prior: Tensor | None = None
    ) -> Tensor:
        """() lowers alpha where the policy has more than ``entropy`` nats, and raises it below.

        ``log_alpha`` () learns; the policy does not.
        """
        surprise = _expected(logprobs, _surprise(logprobs, log_prior)).detach()
        return (-log_alpha.exp() * (surprise + entropy)).mean()

    @torch.no_grad()
    def follow(self, target: torch.nn.Module, critic: torch.nn.Module) -> None:
        """Move a target's weights towards the critic's, in place."""
        for into, source in zip(target.parameters(), critic.parameters(), strict=True):
            into.lerp_(source, self.polyak)


def _surprise(logprobs: Tensor, log_prior: Tensor | None) -> Tensor:
    """(N, A) log pi, or log pi - log prior."""
    return logprobs if log_prior is None else logprobs - log_prior


def _expected(logprobs: Tensor, values: Tensor) -> Tensor:
    """(N,) sum over actions of pi times values; 0 times -inf is 0."""
    possible = logprobs > -torch.inf
    terms = logprobs.exp() * torch.where(possible, values, 0.0)
    return torch.where(possible, terms, 0.0).sum(dim=1)
