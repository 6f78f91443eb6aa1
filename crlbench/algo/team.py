"""Values of a team: how the values of agents make one, and what each agent did for it.

Pure functions on tensors. Shapes: E episodes of T steps, n agents, A actions; a value of a team has
a last dimension of 1. The formulas are those of pymarl's code, whose numbers are golden vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from crlbench.algo.masked import select


def summed_value(agent_values: Tensor) -> Tensor:
    """(E, T, 1): VDN's value of a team, the sum of its agents' (Sunehag et al. 2017, 1706.05296).

    ``agent_values`` (E, T, n): of the action that each agent chose.
    """
    return agent_values.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Layer:
    """An affine map ``x -> x W' + b``."""

    weight: Tensor
    """(out, in)."""
    bias: Tensor
    """(out,)."""

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


Layers = tuple[Layer, ...]
"""Layers with ReLU between them."""


def through(layers: Layers, x: Tensor) -> Tensor:
    """``x`` (..., in) through all layers."""
    for place, layer in enumerate(layers):
        x = layer(functional.relu(x) if place else x)
    return x


@dataclass(frozen=True)
class Mixer:
    """QMIX's mixing network, whose weights are functions of the state (Rashid et al. 2018,
    arXiv 1803.11485, section 4): ``q = elu(q_agents |W1(s)| + b1(s)) |w2(s)| + v(s)``.

    The weights of values are absolute, so the value of a team never falls in that of an agent.
    """

    weight: Layers
    """State -> n x embed numbers: W1."""
    bias: Layers
    """State -> embed numbers: b1."""
    out: Layers
    """State -> embed numbers: w2."""
    value: Layers
    """State -> 1 number: v."""

    def __call__(self, agent_values: Tensor, states: Tensor) -> Tensor:
        """(E, T, 1) from ``agent_values`` (E, T, n) and ``states`` (E, T, S)."""
        bias = through(self.bias, states)
        weight = through(self.weight, states).abs()
        weight = weight.view(*agent_values.shape, bias.shape[-1])
        hidden = functional.elu((agent_values.unsqueeze(-2) @ weight).squeeze(-2) + bias)
        out = through(self.out, states).abs()
        return (hidden * out).sum(-1, keepdim=True) + through(self.value, states)


def chosen(values: Tensor, actions: Tensor) -> Tensor:
    """(E, T, n): the entries of ``values`` (E, T, n, A) at ``actions`` (E, T, n, 1)."""
    return values.gather(-1, actions.long()).squeeze(-1)


def best_next(online: Tensor, target: Tensor, available: Tensor) -> Tensor:
    """(E, T, n): double Q: the target network's value of the action that the learner prefers.

    ``online`` (E, T + 1, n, A) of all steps; ``target`` (E, T, n, A) of the steps after the first;
    ``available`` (E, T + 1, n, A) is nonzero where an action may be taken. (van Hasselt et al.
    2016, arXiv 1509.06461)
    """
    allowed = torch.where(available != 0, online, -torch.inf)[:, 1:]
    return chosen(target, allowed.argmax(-1, keepdim=True))


def one_step_targets(rewards: Tensor, terminated: Tensor, after: Tensor, gamma: float) -> Tensor:
    """``r + gamma (1 - terminated) after``; ``rewards`` and ``terminated`` are (E, T, 1), ``after``
    (E, T, 1) or (E, T, n)."""
    return rewards + gamma * (1.0 - terminated) * after


def lambda_targets(
    rewards: Tensor,
    terminated: Tensor,
    mask: Tensor,
    values: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """(E, T, n): TD(lambda) returns (Sutton 1988), taken backwards from the last value.

    G_t = lam gamma G_{t+1} + m_t (r_t + (1 - lam) gamma (1 - terminated_t) V_{t+1}). G after the
    last step is its value, or 0 where the episode terminated.

    ``values`` (E, T + 1, n); the others are (E, T, 1).
    """
    later = values[:, -1] * (1.0 - terminated.sum(1))
    returns = []
    for t in reversed(range(rewards.shape[1])):
        bootstrap = (1.0 - lam) * gamma * values[:, t + 1] * (1.0 - terminated[:, t])
        later = lam * gamma * later + mask[:, t] * (rewards[:, t] + bootstrap)
        returns.append(later)
    return torch.stack(returns[::-1], 1)


def squared_error(values: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Scalar to minimise: the mean of squared errors over the valid entries; targets are constants.

    ``mask`` (E, T, 1) counts for each agent where ``values`` (E, T, n) are those of agents.
    """
    valid = (mask != 0).expand_as(values)
    errors = select(valid, values - targets.detach())
    return errors.square().sum() / valid.sum()


def counterfactual_advantages(policy: Tensor, values: Tensor, actions: Tensor) -> Tensor:
    """(E, T, n): COMA's advantage: Q of the action taken minus the mean of Q under the agent's own
    policy, the others' actions fixed (Foerster et al. 2018, arXiv 1705.08926, eq. 4).

    ``policy`` and ``values`` (E, T, n, A); ``actions`` (E, T, n, 1). Advantages are constants.
    """
    baseline = (policy * values).sum(-1)
    return (chosen(values, actions) - baseline).detach()


def policy_loss(policy: Tensor, actions: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Scalar to minimise: the mean of ``-A log pi(a)`` over the valid entries.

    ``policy`` (E, T, n, A); ``advantages`` (E, T, n); ``mask`` (E, T, 1) counts for each agent.
    """
    valid = (mask != 0).expand_as(advantages)
    taken = torch.where(valid, chosen(policy, actions), 1.0).log()
    return -select(valid, advantages * taken).sum() / valid.sum()
