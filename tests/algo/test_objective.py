"""``prepare`` and ``loss`` on batches small enough to compute by hand, and their edge cases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from crlbench.algo.advantage import Gae
from crlbench.algo.aggregate import Totals
from crlbench.algo.kl import KlInLoss, KlInReward, NoKl
from crlbench.algo.normalize import NoNorm, Normalizer
from crlbench.algo.objective import combine, loss, prepare
from crlbench.algo.recipes import load
from crlbench.algo.select import SampleFilter
from crlbench.types import UpdateStats

NAN = math.nan
PPO = load("ppo")
PPO_WITHOUT_KL = replace(PPO, kl=NoKl())
PLAIN = replace(PPO, normalize=NoNorm(), kl=NoKl(), advantage=Gae(1.0, 1.0))
"""Advantage = reward to go - value, nothing else."""

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
OLD = torch.full((2, 3), -1.0)
VALUES = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, NAN]])
OUTCOME = torch.tensor([1.0, 0.0])


def step(minibatch, recipe, new=None, values=None, entropy=None):
    """The loss of one whole minibatch, its gradient in the log-probs, and its statistics."""
    shape = minibatch.old_logprobs.shape
    new = (minibatch.old_logprobs if new is None else new).clone().requires_grad_()
    values = (torch.zeros(shape) if values is None else values).clone().requires_grad_()
    total, stats = loss(minibatch, new, values, entropy, recipe, Totals.of(minibatch))
    total.backward()
    return total.item(), new.grad, values.grad, stats


def test_advantages_by_hand(rollout_of) -> None:
    experience, counts = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PLAIN)
    expected = torch.tensor([[0.9, 0.8, 0.7], [-0.4, -0.5, 0.0]])
    assert torch.allclose(experience.advantages, expected)
    assert experience.token_rewards.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert torch.allclose(experience.returns, torch.tensor([[1.0, 1, 1], [0, 0, 0]]))
    assert experience.keep.tolist() == [True, True]
    assert counts == {
        "dropped_rows": 0.0,
        "filtered_rows": 0.0,
        "empty_rows": 0.0,
        "whitening_skipped": 0.0,
        "kl_per_completion": 0.0,
    }
    for name in ("rewards", "token_rewards", "old_logprobs", "values", "returns", "advantages"):
        assert getattr(experience, name).dtype == torch.float32


def test_kl_in_the_reward(rollout_of) -> None:
    recipe = replace(PLAIN, kl=KlInReward(0.5))
    ref = torch.tensor([[-1.2, -0.9, -1.0], [-2.0, -1.0, NAN]])
    experience, counts = prepare(rollout_of(MASK), OUTCOME, OLD, ref, VALUES, recipe)
    # k1 = old - ref = (0.2, -0.1, 0) and (1, 0)
    expected = torch.tensor([[-0.1, 0.05, 1.0], [-0.5, 0.0, 0.0]])
    assert torch.allclose(experience.token_rewards, expected)
    assert counts["kl_per_completion"] == pytest.approx((0.1 + 1.0) / 2)
    double, _ = prepare(rollout_of(MASK), OUTCOME, OLD, ref, VALUES, recipe, kl_coefficient=1.0)
    assert double.token_rewards[1, 0].item() == pytest.approx(-1.0)


def test_step_rewards_reach_their_tokens(rollout_of) -> None:
    experience, _ = prepare(
        rollout_of(MASK),
        OUTCOME,
        OLD,
        None,
        VALUES,
        PLAIN,
        step_rewards=[[(4, 0.25)], [(2, -0.5)]],
        token_ends=[[2, 4, 6], [2, 4]],
    )
    assert experience.token_rewards.tolist() == [[0, 0.25, 1], [-0.5, 0, 0]]
    assert experience.rewards.tolist() == [1.0, 0.0]


def test_whitened_advantages_are_zero_outside_the_mask(rollout_of) -> None:
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PPO_WITHOUT_KL)
    valid = experience.advantages[MASK].double()
    assert valid.mean().abs().item() < 1e-6 and valid.std().item() == pytest.approx(1.0, abs=1e-5)
    assert (experience.advantages[~MASK] == 0).all()


def spoil(name: str, value: float) -> dict[str, Tensor | None]:
    """Arguments of prepare whose row 0 holds ``value`` in one place; row 1 is sound."""
    ref = OLD - 0.1
    given = {"outcome": OUTCOME, "old": OLD, "ref": ref, "values": VALUES}
    spoiled = given[name].clone()
    spoiled[(0,) if name == "outcome" else (0, 1)] = value
    return {**given, name: spoiled}


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["outcome", "old", "ref", "values"])
def test_rows_with_a_bad_number_teach_nothing(rollout_of, name: str, value: float) -> None:
    given = spoil(name, value)
    recipe = replace(PPO, kl=KlInReward(0.1))
    experience, counts = prepare(rollout_of(MASK), recipe=recipe, **given)
    assert counts["dropped_rows"] == 1.0 and experience.keep.tolist() == [False, True]
    assert (experience.advantages[0] == 0).all() and (experience.returns[0] == 0).all()
    assert torch.isfinite(experience.advantages).all()

    alone = {key: x[1:] for key, x in given.items()}
    expected, _ = prepare(rollout_of(MASK[1:]), recipe=recipe, **alone)
    assert torch.equal(experience.advantages[1:], expected.advantages)
    in_loss = replace(recipe, kl=KlInLoss(0.1))
    total, grad, value_grad, stats = step(experience, in_loss, torch.full((2, 3), -0.9))
    lone_total, lone_grad, _, lone_stats = step(expected, in_loss, torch.full((1, 3), -0.9))
    assert total == lone_total and torch.equal(grad[1:], lone_grad)
    assert (grad[0] == 0).all() and (value_grad[0] == 0).all()
    assert stats["kept_fraction"] == 0.5 and lone_stats["kept_fraction"] == 1.0


def test_a_bad_step_reward_drops_its_row(rollout_of) -> None:
    experience, counts = prepare(
        rollout_of(MASK),
        OUTCOME,
        OLD,
        None,
        VALUES,
        PPO_WITHOUT_KL,
        step_rewards=[[(1, NAN)], []],
        token_ends=[[1, 2, 3], [1, 2]],
    )
    assert counts["dropped_rows"] == 1.0 and experience.keep.tolist() == [False, True]


def test_a_row_sampled_from_a_broken_distribution_is_dropped(rollout_of) -> None:
    behavior = OLD.clone()
    behavior[0, 0] = NAN
    rollout = rollout_of(MASK, behavior_logprobs=behavior)
    experience, counts = prepare(rollout, OUTCOME, OLD, None, VALUES, PPO_WITHOUT_KL)
    assert counts["dropped_rows"] == 1.0 and experience.keep.tolist() == [False, True]


@dataclass(frozen=True)
class Ones(Normalizer):
    """Forgets the mask."""

    formula: ClassVar[str] = "1"

    def __call__(self, advantages, mask, signal):
        return torch.ones_like(advantages), {"seen": 1.0}


@dataclass(frozen=True)
class KeepFinished(SampleFilter):
    """Only completions that ended by themselves."""

    formula: ClassVar[str] = "not truncated"

    def __call__(self, signal):
        return ~signal.truncated


def test_filtered_rows_teach_nothing_and_are_counted(rollout_of) -> None:
    recipe = replace(PLAIN, normalize=Ones(), select=KeepFinished())
    rollout = rollout_of(MASK, finished=torch.tensor([False, True]))
    experience, counts = prepare(rollout, OUTCOME, OLD, None, VALUES, recipe)
    assert experience.advantages.tolist() == [[0, 0, 0], [1, 1, 0]]
    assert (counts["filtered_rows"], counts["dropped_rows"], counts["seen"]) == (1.0, 0.0, 1.0)


def test_padding_may_hold_anything(rollout_of) -> None:
    sound = {"old": OLD, "ref": OLD - 0.1, "values": VALUES.nan_to_num(0.0)}
    broken = {k: torch.where(MASK, x, torch.tensor(NAN)) for k, x in sound.items()}
    recipe = replace(PPO, kl=KlInLoss(0.1))
    new = torch.full((2, 3), -0.8)
    results = []
    for given, fresh in ((sound, new), (broken, torch.where(MASK, new, torch.tensor(NAN)))):
        experience, counts = prepare(rollout_of(MASK), OUTCOME, recipe=recipe, **given)
        assert counts["dropped_rows"] == 0.0
        results.append(step(experience, recipe, fresh, values=given["values"], entropy=fresh))
    (total, grad, value_grad, stats), (other, other_grad, other_value_grad, other_stats) = results
    assert total == other and stats == other_stats
    assert torch.equal(grad, other_grad) and torch.equal(value_grad, other_value_grad)


def test_an_empty_completion_is_no_error(rollout_of) -> None:
    mask = torch.cat([MASK, torch.zeros(1, 3, dtype=torch.bool)])
    old, values = torch.full((3, 3), -1.0), torch.zeros(3, 3)
    experience, counts = prepare(
        rollout_of(mask), torch.tensor([1.0, 0.0, 1.0]), old, None, values, PPO_WITHOUT_KL
    )
    assert counts["empty_rows"] == 1.0 and counts["dropped_rows"] == 0.0
    totals = Totals.of(experience)
    assert totals == Totals(tokens=5.0, rows=2.0, completions=3.0)
    total, grad, _, stats = step(experience, PPO_WITHOUT_KL)
    assert math.isfinite(total) and (grad[2] == 0).all() and stats["kept_fraction"] == 1.0


def test_one_valid_token_skips_whitening(rollout_of) -> None:
    mask = torch.tensor([[True, False]])
    experience, counts = prepare(
        rollout_of(mask), torch.tensor([1.0]), OLD[:1, :2], None, torch.zeros(1, 2), PPO_WITHOUT_KL
    )
    assert counts["whitening_skipped"] == 1.0
    assert experience.advantages.tolist() == [[1.0, 0.0]]
    total, grad, _, _ = step(experience, PPO_WITHOUT_KL)
    assert math.isfinite(total) and grad[0].tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("mask", [MASK, torch.zeros_like(MASK)])
def test_nothing_left_is_a_zero_loss_that_can_be_differentiated(rollout_of, mask) -> None:
    outcome = torch.full((2,), NAN)
    experience, counts = prepare(rollout_of(mask), outcome, OLD, OLD, VALUES, PPO)
    assert counts["dropped_rows"] == 2.0 and counts["whitening_skipped"] == 1.0
    total, grad, value_grad, stats = step(experience, PPO, values=VALUES, entropy=VALUES)
    assert total == 0.0 and (grad == 0).all() and (value_grad == 0).all()
    assert all(math.isfinite(number) for number in stats.values())
    assert stats["ratio_max"] == 0.0 and stats["kept_fraction"] == 0.0


def test_a_huge_ratio_stays_finite(rollout_of) -> None:
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PLAIN)
    total, grad, _, stats = step(experience, PLAIN, torch.full((2, 3), 1e4))
    assert math.isfinite(total) and torch.isfinite(grad).all()
    assert stats["ratio_max"] == pytest.approx(math.exp(20.0))


def test_statistics_by_hand(rollout_of) -> None:
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, OLD - 0.5, VALUES, PLAIN)
    new = OLD.clone()
    new[0, 0] += math.log(3.0)  # advantage 0.9: clipped above
    new[1, 0] -= math.log(2.0)  # advantage -0.4: clipped below
    entropy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, NAN]])
    values = VALUES + 0.1
    total, _, _, stats = step(experience, PLAIN, new, values=values, entropy=entropy)
    assert set(stats) == set(UpdateStats.__annotations__) - {"grad_norm"}
    policy = -(1.2 * 0.9 + 0.8 + 0.7 - 0.8 * 0.4 - 0.5) / 5
    value = 0.5 * (0.8**2 + 0.7**2 + 0.6**2 + 0.5**2 + 0.6**2) / 5
    assert stats["policy_loss"] == pytest.approx(policy)
    assert stats["value_loss"] == pytest.approx(value)
    assert stats["loss"] == pytest.approx(policy + 0.1 * value) == pytest.approx(total)
    assert stats["clip_fraction"] == pytest.approx(2 / 5)
    assert stats["entropy"] == pytest.approx(3.0)
    assert stats["reference_kl"] == pytest.approx(0.5 + (math.log(3) - math.log(2)) / 5)
    k3 = (3 - math.log(3) - 1) + (0.5 + math.log(2) - 1)
    assert stats["approx_kl"] == pytest.approx(k3 / 5)
    assert stats["ratio_max"] == pytest.approx(3.0)
    assert stats["kept_fraction"] == 1.0


def test_kl_in_the_loss_and_entropy_bonus_add_to_the_total(rollout_of) -> None:
    recipe = replace(PLAIN, kl=KlInLoss(0.5, "k2"), entropy_bonus=0.25)
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, OLD - 0.4, VALUES, recipe)
    entropy = torch.full((2, 3), 2.0)
    total, _, _, stats = step(experience, recipe, entropy=entropy)
    base = stats["policy_loss"] + 0.1 * stats["value_loss"]
    assert total == pytest.approx(base + 0.5 * 0.08 - 0.25 * 2.0)
    zero = torch.zeros(2, 3)
    stronger, _ = loss(
        experience, OLD, zero, entropy, recipe, Totals.of(experience), kl_coefficient=1.0
    )
    assert stronger.item() == pytest.approx(total + 0.5 * 0.08)


def test_missing_inputs_are_named(rollout_of) -> None:
    with pytest.raises(ValueError, match="reference"):
        prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PPO)
    with pytest.raises(ValueError, match="critic"):
        prepare(rollout_of(MASK), OUTCOME, OLD, OLD, None, PPO)
    with pytest.raises(ValueError, match="token_ends"):
        prepare(rollout_of(MASK), OUTCOME, OLD, OLD, VALUES, PPO, step_rewards=[[], []])
    recipe = replace(PLAIN, entropy_bonus=0.1)
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, recipe)
    with pytest.raises(ValueError, match="entropy"):
        step(experience, recipe)


def test_combining_micro_batches_keeps_the_largest_ratio() -> None:
    parts = [{"loss": 1.0, "ratio_max": 2.0}, {"loss": 0.5, "ratio_max": 1.5}]
    assert combine(parts) == {"loss": 1.5, "ratio_max": 2.0}
