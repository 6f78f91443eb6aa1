"""Implicit process rewards and baselines of roles: closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from crlbench.algo.implicit import (
    bounded,
    implicit_rewards,
    leave_one_out,
    outcome_loss,
    process_returns,
)
from crlbench.algo.roles import above_role_baseline
from crlbench.algo.signal import left_out

NAN = math.nan
MASK = torch.tensor([[True, False, True], [True, True, False], [False, False, False]])


def clean(x: Tensor) -> Tensor:
    assert (x[~MASK] == 0).all()
    return x


def test_a_reward_is_the_log_ratio() -> None:
    phi = torch.tensor([[-1.0, NAN, -2.0], [0.0, -1.0, NAN], [NAN, NAN, NAN]])
    ref = torch.tensor([[-2.0, 5.0, -1.0], [0.0, -4.0, 1.0], [0.0, 0.0, 0.0]])
    found = clean(implicit_rewards(phi, ref, MASK, 0.5))
    assert found.tolist() == [[0.5, 0.0, -0.5], [0.0, 1.5, 0.0], [0.0, 0.0, 0.0]]


def test_the_outcome_loss_and_its_gradient() -> None:
    log_ratio = torch.tensor([[1.0, NAN, 3.0], [-2.0, 0.0, NAN], [NAN, NAN, NAN]])
    log_ratio = log_ratio.double().requires_grad_()
    loss = outcome_loss(log_ratio, torch.tensor([1.0, 1.0, 0.0]), MASK, 0.5)
    share = [1 / (1 + math.exp(-0.5 * total)) for total in (4.0, -2.0, 0.0)]
    assert loss.item() == pytest.approx(
        -(math.log(share[0]) + math.log(share[1]) + math.log(1 - share[2])) / 3
    )
    loss.backward()
    assert log_ratio.grad is not None
    slopes = [0.5 * (p - y) / 3 for p, y in zip(share, (1.0, 1.0, 0.0), strict=True)]
    expected = torch.tensor(slopes).double()[:, None] * MASK
    assert torch.allclose(log_ratio.grad, expected)


def test_no_return_exceeds_one() -> None:
    rewards = torch.tensor([[1.0, NAN, -5.0], [2.0, 2.0, NAN], [NAN, NAN, NAN]]).double()
    found = clean(bounded(rewards, MASK))
    # returns -4, -5; 4, 2
    assert found[0].tolist() == pytest.approx([0.2, 0.0, -1.0], rel=1e-6)
    assert found[1].tolist() == pytest.approx([0.4, 0.4, 0.0], rel=1e-6)
    assert (bounded(torch.zeros(3, 3), MASK) == 0).all()


def test_of_one_token_each_it_is_the_leave_one_out_baseline() -> None:
    rewards = torch.tensor([0.9, 0.1, 0.2, 0.8, 0.4, 0.5]).double()
    group, valid = torch.tensor([1, 0, 1, 0, 1, 4]), torch.ones(6, dtype=torch.bool)
    found = leave_one_out(rewards[:, None], valid[:, None], group)
    assert torch.allclose(found[:, 0], left_out(rewards, valid, group))
    assert found[5] == 0.0  # alone in its group


def test_process_rewards_by_hand() -> None:
    # Row means 2 and 3; of two rows: r * 2 - (2 + 3). Row three has no token and counts nothing.
    rewards = torch.tensor([[1.0, NAN, 3.0], [6.0, 0.0, NAN], [NAN, NAN, NAN]])
    group = torch.zeros(3, dtype=torch.long)
    found = clean(leave_one_out(rewards, MASK, group))
    assert found.tolist() == [[-3.0, 0.0, 1.0], [7.0, -5.0, 0.0], [0.0, 0.0, 0.0]]
    # Outcomes 1 and 0: 2 - 1 and -1 at the last tokens, discounted by half; process by nothing.
    returns = clean(process_returns(rewards, torch.tensor([1.0, 0.0, 9.0]), MASK, group, 1.0, 0.5))
    assert returns.tolist() == [[-1.5, 0.0, 2.0], [1.5, -6.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_role_has_a_baseline_of_its_own() -> None:
    before = {("take", 0): 0.5}
    roles = [("take", 0), ("take", 1), ("take", 0), ("kuhn", 0)]
    found, after = above_role_baseline([1.0, 0.0, 1.0, 0.25], roles, before, decay=0.9)
    assert found == pytest.approx([0.5, 0.0, 0.45, 0.25])
    assert after == {
        ("take", 0): pytest.approx(0.595),
        ("take", 1): pytest.approx(0.0),
        ("kuhn", 0): pytest.approx(0.025),
    }
    assert before == {("take", 0): 0.5}
