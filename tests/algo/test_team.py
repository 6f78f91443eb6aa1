"""Values of a team by hand; pymarl's own numbers are golden vectors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from crlbench.algo.team import (
    Layer,
    Mixer,
    best_next,
    counterfactual_advantages,
    lambda_targets,
    one_step_targets,
    policy_loss,
    squared_error,
    summed_value,
)


def row(*numbers: float) -> Tensor:
    """(1, T, 1)."""
    return torch.tensor(numbers, dtype=torch.float64).view(1, -1, 1)


def constant(*numbers: float) -> tuple[Layer]:
    """A layer that says these numbers in every state of two."""
    bias = torch.tensor(numbers, dtype=torch.float64)
    return (Layer(torch.zeros(len(numbers), 2, dtype=torch.float64), bias),)


def test_a_sum_and_a_mixture_by_hand() -> None:
    values = torch.tensor([[[1.0, -3.0]]], dtype=torch.float64)
    assert summed_value(values).item() == -2.0
    weight, bias = constant(2.0, -1.0, 1.0, 1.0), constant(0.5, 0.0)
    mixer = Mixer(weight, bias, constant(-3.0, 1.0), constant(7.0))
    states = torch.zeros(1, 1, 2, dtype=torch.float64)
    # Hidden: elu(1*2 - 3*1 + 0.5) and elu(1*1 - 3*1 + 0); weights are absolute.
    expected = 3.0 * (math.exp(-0.5) - 1.0) + 1.0 * (math.exp(-2.0) - 1.0) + 7.0
    assert mixer(values, states).item() == pytest.approx(expected)


def test_a_mixture_never_falls_in_the_value_of_an_agent() -> None:
    draw = torch.Generator().manual_seed(3)

    def layer(size: int) -> tuple[Layer]:
        return (Layer(torch.randn(size, 2, generator=draw), torch.randn(size, generator=draw)),)

    mixer = Mixer(layer(12), layer(4), layer(4), layer(1))
    values = torch.randn(8, 5, 3, generator=draw).requires_grad_()
    states = torch.randn(8, 5, 2, generator=draw)
    (gradient,) = torch.autograd.grad(mixer(values, states).sum(), values)
    assert bool((gradient >= 0).all()) and bool((gradient > 0).any())


def test_returns_of_lambda_between_one_step_and_the_whole_episode() -> None:
    rewards, over, mask = row(1, 2, 4), row(0, 0, 1), row(1, 1, 1)
    values = row(9, 10, 20, 40)
    given = rewards, over, mask, values, 0.5
    assert lambda_targets(*given, lam=0.0).flatten().tolist() == [6.0, 12.0, 4.0]
    steps = one_step_targets(rewards, over, values[:, 1:], 0.5)
    assert torch.equal(lambda_targets(*given, lam=0.0), steps)
    assert lambda_targets(*given, lam=1.0).flatten().tolist() == [3.0, 4.0, 4.0]
    assert lambda_targets(*given, lam=0.5).flatten().tolist() == [
        1 + 0.25 * 10 + 0.25 * (2 + 0.25 * 20 + 0.25 * 4), 2 + 0.25 * 20 + 0.25 * 4, 4.0
    ]  # fmt: skip
    unfinished = lambda_targets(rewards, row(0, 0, 0), mask, values, 0.5, lam=1.0)
    assert unfinished.flatten().tolist() == [1 + 0.5 * (2 + 0.5 * (4 + 0.5 * 40)), 14.0, 24.0]


def test_the_learner_chooses_what_the_target_values_and_never_what_is_forbidden() -> None:
    online = torch.tensor([[[[0.0, 0.0, 0.0]], [[1.0, 5.0, 9.0]]]])
    target = torch.tensor([[[[70.0, 80.0, 90.0]]]])
    allowed = torch.ones_like(online)
    assert best_next(online, target, allowed).item() == 90.0
    allowed[0, 1, 0, 2] = 0
    assert best_next(online, target, allowed).item() == 80.0


def test_an_error_is_a_mean_over_valid_steps_and_a_target_has_no_gradient() -> None:
    values, targets = row(1, 2, math.nan).requires_grad_(), row(3, 2, 5).requires_grad_()
    loss = squared_error(values, targets, row(1, 1, 0))
    assert loss.item() == 2.0
    loss.backward()
    assert values.grad is not None and values.grad.flatten().tolist() == [-2.0, 0.0, 0.0]
    assert targets.grad is None


def test_a_counterfactual_advantage_is_zero_on_average_under_the_agents_policy() -> None:
    policy = torch.tensor([[[[0.25, 0.75]]]], dtype=torch.float64).requires_grad_()
    values = torch.tensor([[[[8.0, 4.0]]]], dtype=torch.float64)
    found = [
        counterfactual_advantages(policy, values, torch.full((1, 1, 1, 1), action))
        for action in (0, 1)
    ]
    assert [one.item() for one in found] == [3.0, -1.0]
    assert not found[0].requires_grad
    loss = policy_loss(policy, torch.zeros(1, 1, 1, 1), found[0], row(1))
    assert loss.item() == pytest.approx(-3.0 * math.log(0.25))
    loss.backward()
    assert policy.grad is not None and policy.grad.flatten().tolist() == [-12.0, 0.0]
