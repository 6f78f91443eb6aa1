"""Baselines and normalisers: closed forms, and the edge cases where peers disagree."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from crlbench.algo.advantage import BatchMean, GroupMean, LeaveOneOut, RewardToGo
from crlbench.algo.kl import KlInReward
from crlbench.algo.normalize import BatchStd, GroupStd, NoNorm, Whiten
from crlbench.algo.objective import prepare
from crlbench.algo.recipes import load
from crlbench.algo.signal import GroupStats, Signal
from crlbench.errors import UsageError

NAN = math.nan
GROUP = torch.tensor([2, 0, 2, 0, 2, 0, 2, 0])
REWARDS = torch.tensor([0.9, 0.1, 0.2, 0.8, 0.4, 0.3, 0.7, 0.5], dtype=torch.float64)
FIELDS = {
    BatchMean: {"penalty": "tokens"},
    RewardToGo: {"gamma": 1.1},
    GroupStd: {"ddof": 2},
    BatchStd: {"of": "group"},
    Whiten: {"eps": 0.0},
}


def signal_of(rewards: Tensor, group: Tensor, mask: Tensor | None = None) -> Signal:
    """One token per completion that earns the outcome, unless ``mask`` says otherwise."""
    rewards = rewards.double()
    mask = torch.ones(len(rewards), 1, dtype=torch.bool) if mask is None else mask
    valid = rewards.isfinite()
    live = mask & valid[:, None]
    token_rewards = torch.zeros(mask.shape, dtype=torch.float64)
    token_rewards[:, 0] = torch.where(live[:, 0], rewards, 0.0)
    return Signal(
        rewards=rewards,
        token_rewards=token_rewards,
        mask=live,
        group=group,
        truncated=torch.zeros(len(rewards), dtype=torch.bool),
        valid=valid,
    )


def advantages(estimator, normalizer, rewards: Tensor, group: Tensor = GROUP) -> list[float]:
    signal = signal_of(rewards, group)
    rows, _ = normalizer(estimator(signal)[0], signal.mask, signal)
    return rows[:, 0].tolist()


def test_known_numbers_for_one_success_in_four() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long)
    grpo = advantages(GroupMean(), GroupStd(), rewards, group)
    assert grpo == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)
    assert advantages(LeaveOneOut(), NoNorm(), rewards, group) == pytest.approx(
        [1.0, -1 / 3, -1 / 3, -1 / 3]
    )
    assert advantages(GroupMean(), NoNorm(), rewards, group) == [0.75, -0.25, -0.25, -0.25]


def test_leave_one_out_is_the_group_mean_scaled() -> None:
    """Dr. GRPO's advantage is RLOO's times (G - 1) / G."""
    ours = advantages(LeaveOneOut(), NoNorm(), REWARDS)
    assert ours == pytest.approx([4 / 3 * a for a in advantages(GroupMean(), NoNorm(), REWARDS)])


@pytest.mark.parametrize(
    ("estimator", "normalizer"),
    [
        (GroupMean(), GroupStd()),
        (LeaveOneOut(), GroupStd()),
        (BatchMean(), BatchStd()),
        (GroupMean(), BatchStd(of="centred")),
        (LeaveOneOut(), BatchStd(of="leave_one_out")),
        (BatchMean(), Whiten()),
        (RewardToGo(), Whiten()),
    ],
)
@pytest.mark.parametrize(("scale", "shift"), [(2.0, -1.0), (0.25, 3.0), (100.0, 0.0)])
def test_scale_and_shift_of_the_reward_do_not_matter(estimator, normalizer, scale, shift) -> None:
    there = advantages(estimator, normalizer, scale * REWARDS + shift)
    assert there == pytest.approx(advantages(estimator, normalizer, REWARDS), rel=1e-4, abs=1e-6)


def test_the_deviation_of_the_batch_is_that_of_raw_rewards_by_default() -> None:
    rewards = torch.tensor([1.0, 0.9, 0.1, 0.0])
    group = torch.tensor([0, 0, 1, 1])
    raw = advantages(GroupMean(), BatchStd(), rewards, group)
    centred = advantages(GroupMean(), BatchStd(of="centred"), rewards, group)
    assert raw[0] == pytest.approx(0.05 / rewards.std().item(), rel=1e-4)
    assert centred[0] == pytest.approx(0.05 / math.sqrt(4 * 0.05**2 / 3), rel=1e-4)


@pytest.mark.parametrize("normalizer", [GroupStd(eps=1e-9), BatchStd(eps=1e-9), NoNorm(), Whiten()])
@pytest.mark.parametrize("estimator", [GroupMean(), LeaveOneOut(), BatchMean()])
def test_equal_rewards_give_exactly_zero(estimator, normalizer) -> None:
    """The float32 mean of six times 0.3 is off by one ulp, which a small eps blows up."""
    for rewards in (torch.full((6,), 0.3), torch.full((10,), 0.1, dtype=torch.float64)):
        group = torch.zeros(len(rewards), dtype=torch.long)
        assert advantages(estimator, normalizer, rewards, group) == [0.0] * len(rewards)


def test_an_almost_constant_group_is_scaled_like_any_other() -> None:
    rewards = torch.tensor([0.3, 0.3, 0.3, 0.3001], dtype=torch.float64)
    got = advantages(GroupMean(), GroupStd(), rewards, torch.zeros(4, dtype=torch.long))
    std = 0.0001 / 2  # of (0, 0, 0, 1): sqrt(3 / 4 / 3) = 1 / 2
    assert got == pytest.approx([-0.000025 / (std + 1e-6)] * 3 + [0.000075 / (std + 1e-6)])


@pytest.mark.parametrize("estimator", [GroupMean(), LeaveOneOut()])
@pytest.mark.parametrize("normalizer", [GroupStd(), GroupStd(ddof=0), NoNorm()])
def test_a_completion_without_company_gets_zero(estimator, normalizer) -> None:
    rewards, group = torch.tensor([0.9, 0.2, 0.6]), torch.tensor([0, 1, 1])
    got = advantages(estimator, normalizer, rewards, group)
    assert got[0] == 0.0 and got[1] == -got[2] != 0.0


def test_uniform_rows_are_counted() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.5, NAN])
    signal = signal_of(rewards, torch.tensor([0, 0, 1, 1, 2, 2]))
    counts = GroupStd()(GroupMean()(signal)[0], signal.mask, signal)[1]
    assert counts == {"uniform_rows": 3.0}  # the last of them has no sound company
    flat = signal_of(torch.full((3,), 0.7), torch.tensor([0, 1, 2]))
    assert BatchStd()(RewardToGo()(flat)[0], flat.mask, flat)[1] == {"uniform_rows": 3.0}


def test_an_undefined_reward_enters_no_statistic() -> None:
    rewards = torch.tensor([1.0, NAN, 0.0, math.inf])
    for estimator in (GroupMean(), LeaveOneOut(), BatchMean()):
        for normalizer in (NoNorm(), GroupStd(), BatchStd(), Whiten()):
            got = advantages(estimator, normalizer, rewards, torch.zeros(4, dtype=torch.long))
            alone = advantages(
                estimator, normalizer, torch.tensor([1.0, 0.0]), torch.zeros(2, dtype=torch.long)
            )
            assert got == [alone[0], 0.0, alone[1], 0.0]


def test_an_empty_completion_is_part_of_the_statistics() -> None:
    mask = torch.tensor([[True], [True], [False]])
    signal = signal_of(torch.tensor([1.0, 0.0, 2.0]), torch.zeros(3, dtype=torch.long), mask)
    assert signal.totals.tolist() == [1.0, 0.0, 2.0]
    assert GroupMean()(signal)[0][:, 0].tolist() == [0.0, -1.0, 0.0]
    scaled, _ = GroupStd(eps=1e-12)(GroupMean()(signal)[0], signal.mask, signal)
    assert scaled[:, 0].tolist() == pytest.approx([0.0, -1.0, 0.0])


def test_groups_need_not_stand_together_nor_be_numbered_from_zero() -> None:
    stats = GroupStats.of(
        torch.tensor([1.0, 5.0, 3.0, NAN]).double(),
        torch.tensor([True, True, True, False]),
        torch.tensor([9, 4, 9, 4]),
    )
    assert stats.count.tolist() == [2.0, 1.0, 2.0, 1.0]
    assert stats.mean.tolist() == [2.0, 5.0, 2.0, 5.0]
    assert stats.var.tolist() == [2.0, 0.0, 2.0, 0.0]
    assert stats.uniform.tolist() == [False, True, False, True]


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_rewards_to_go_skip_tokens_of_others(gamma: float) -> None:
    mask = torch.tensor([[True, False, True, False]])
    signal = replace(
        signal_of(torch.tensor([0.0]), torch.tensor([0]), mask),
        token_rewards=torch.tensor([[1.0, NAN, 2.0, NAN]], dtype=torch.float64),
    )
    assert RewardToGo(gamma)(signal)[0].tolist() == [[1.0 + 2.0 * gamma, 0.0, 2.0, 0.0]]


@pytest.mark.parametrize("estimator", [GroupMean, LeaveOneOut, BatchMean])
def test_a_penalty_is_part_of_the_reward_or_of_the_tokens(rollout_of, estimator) -> None:
    mask, old = torch.ones(2, 2, dtype=torch.bool), torch.full((2, 2), -1.0)
    ref = torch.tensor([[-1.5, -1.25], [-1.0, -1.0]])  # k1 is (0.5, 0.25) and (0, 0)
    outcome = torch.tensor([1.0, 0.0])
    rollout = rollout_of(mask, group=torch.zeros(2, dtype=torch.long))
    factor = 2.0 if estimator is LeaveOneOut else 1.0

    def found(penalty):
        part = estimator(penalty=penalty)
        recipe = replace(load("rloo"), advantage=part, kl=KlInReward(1.0))
        return prepare(rollout, outcome, old, ref, None, recipe)[0].advantages.tolist()

    whole = factor * (1.0 - 0.75) / 2
    assert found("completion") == [[whole, whole], [-whole, -whole]]
    half = factor * 0.5
    assert found("token") == [[half - 0.75, half - 0.25], [-half, -half]]


def test_statistics_are_those_of_the_whole_batch(rollout_of) -> None:
    """A group that is split over micro-batches still has one mean."""
    mask, old = torch.ones(4, 1, dtype=torch.bool), torch.full((4, 1), -1.0)
    rollout = rollout_of(mask, group=torch.tensor([0, 1, 0, 1]))
    outcome = torch.tensor([1.0, 0.0, 0.0, 0.5])
    experience, _ = prepare(rollout, outcome, old, None, None, load("dr-grpo"))
    halves = [experience.rows(rows).advantages[:, 0] for rows in torch.arange(4).split(2)]
    assert torch.cat(halves).tolist() == [0.5, -0.25, -0.5, 0.25]


@pytest.mark.parametrize("part", FIELDS)
def test_impossible_settings_are_refused(part) -> None:
    with pytest.raises(UsageError, match=f"{part.__name__}.{next(iter(FIELDS[part]))}"):
        part(**FIELDS[part])
