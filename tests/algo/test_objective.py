"""``prepare`` and ``loss`` on batches small enough to compute by hand, and their edge cases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from crlbench.algo.advantage import Gae
from crlbench.algo.aggregate import SequenceMean, Totals
from crlbench.algo.clip import NoClip
from crlbench.algo.kl import KlInLoss, KlInReward, NoKl
from crlbench.algo.normalize import NoNorm, Normalizer
from crlbench.algo.objective import loss, prepare
from crlbench.algo.observe import step_stats
from crlbench.algo.overlong import MaskTruncated
from crlbench.algo.ratio import SequenceRatio, TokenRatio
from crlbench.algo.recipes import load
from crlbench.algo.select import SampleFilter
from crlbench.contract.dynamics import STEP_STATS

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
    total, seen = loss(minibatch, new, values, entropy, recipe, Totals.of(minibatch))
    total.backward()
    return total.item(), new.grad, values.grad, step_stats([seen])


def test_advantages_by_hand(rollout_of) -> None:
    experience, counts = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PLAIN)
    expected = torch.tensor([[0.9, 0.8, 0.7], [-0.4, -0.5, 0.0]])
    assert torch.allclose(experience.advantages, expected)
    assert experience.token_rewards.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert torch.allclose(experience.returns, torch.tensor([[1.0, 1, 1], [0, 0, 0]]))
    assert experience.keep.tolist() == [True, True]
    assert math.isnan(counts.pop("kl_per_completion"))  # there is no reference
    assert counts == {
        "dropped_rows": 0.0,
        "filtered_rows": 0.0,
        "empty_rows": 0.0,
        "whitening_skipped": 0.0,
        "uniform_rows": 0.0,
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


def test_an_empty_completion_is_no_error(rollout_of) -> None:
    mask = torch.cat([MASK, torch.zeros(1, 3, dtype=torch.bool)])
    old, values = torch.full((3, 3), -1.0), torch.zeros(3, 3)
    experience, counts = prepare(
        rollout_of(mask), torch.tensor([1.0, 0.0, 1.0]), old, None, values, PPO_WITHOUT_KL
    )
    assert counts["empty_rows"] == 1.0 and counts["dropped_rows"] == 0.0
    totals = Totals.of(experience)
    assert totals == Totals(tokens=5.0, rows=2.0, completions=3.0, group_tokens={0: 5.0})
    total, grad, _, stats = step(experience, PPO_WITHOUT_KL)
    assert math.isfinite(total) and (grad[2] == 0).all()


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
    assert stats["ratio_max"] == stats["ess"] == 1.0


@pytest.mark.parametrize(
    ("ratio", "largest"),
    [(TokenRatio(), 20.0), (SequenceRatio(), 10.0), (SequenceRatio("product"), 10.0)],
)
def test_a_huge_ratio_stays_finite(rollout_of, ratio, largest: float) -> None:
    recipe = replace(PLAIN, ratio=ratio, clip=NoClip())
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, recipe)
    experience = replace(experience, advantages=-MASK.float())
    for shift, ratio in ((1e4, math.exp(largest)), (-1e4, 0.0)):
        total, grad, _, stats = step(experience, recipe, OLD + shift)
        assert torch.isfinite(grad).all()
        policy = pytest.approx(ratio, rel=1e-5, abs=1e-8)
        assert stats["policy_loss"] == policy and math.isfinite(total)
    assert step(experience, recipe, OLD + 1e4)[3]["ratio_max"] == pytest.approx(math.exp(20.0))


def test_a_bad_log_prob_now_reaches_the_weights_where_the_step_is_refused(rollout_of) -> None:
    """What is not finite before the first update is dropped; later the gradient norm shows it."""
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, None, VALUES, PLAIN)
    logits = torch.zeros(2, 3, 4)
    logits[0, 1, 2] = NAN
    logits.requires_grad_()
    total, seen = loss(
        experience, logits.log_softmax(-1)[..., 0], VALUES, None, PLAIN, Totals.of(experience)
    )
    total.backward()
    stats = step_stats([seen])
    assert math.isnan(total.item()) and not torch.isfinite(logits.grad).all()
    assert math.isnan(stats["loss"]) and math.isnan(stats["ess"])


def test_all_rows_cut_off_and_filtered_is_a_zero_loss(rollout_of) -> None:
    grpo = replace(load("grpo"), overlong=MaskTruncated())
    rollout = rollout_of(MASK, finished=torch.zeros(2, dtype=torch.bool))
    experience, counts = prepare(rollout, OUTCOME, OLD, OLD - 0.1, None, grpo)
    assert counts["filtered_rows"] == 2.0 and not experience.keep.any()
    totals = Totals.of(experience)
    assert (totals.tokens, totals.rows, totals.completions) == (0.0, 0.0, 2.0)
    total, grad, _, stats = step(experience, grpo)
    assert total == 0.0 and (grad == 0).all()
    assert all(math.isfinite(number) for number in stats.values())


def test_a_cut_off_completion_is_masked_and_still_in_the_mean_of_its_group(rollout_of) -> None:
    recipe = replace(load("dr-grpo"), overlong=MaskTruncated())
    rollout = rollout_of(MASK, finished=torch.tensor([True, False]))
    experience, _ = prepare(rollout, OUTCOME, OLD, None, None, recipe)
    assert experience.keep.tolist() == [True, False]
    assert experience.advantages.tolist() == [[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]]


def test_an_empty_completion_counts_in_the_statistics_and_in_no_denominator(rollout_of) -> None:
    mask = torch.cat([MASK, torch.zeros(1, 3, dtype=torch.bool)])
    rollout = rollout_of(mask, group=torch.zeros(3, dtype=torch.long))
    old = torch.full((3, 3), -1.0)
    outcome = torch.tensor([1.0, 0.0, 2.0])
    recipe = replace(load("dr-grpo"), aggregate=SequenceMean(row_eps=0.0))
    experience, counts = prepare(rollout, outcome, old, None, None, recipe)
    assert counts["empty_rows"] == 1.0 and experience.keep.all()
    assert experience.advantages[:2, 0].tolist() == [0.0, -1.0]  # the mean is 1, not 1/2
    _, grad, _, _ = step(experience, recipe)
    assert grad[1].tolist() == [0.25, 0.25, 0.0]  # (1 / B') (1 / n_i) with B' = 2


def test_an_undefined_reward_is_left_out_of_its_group(rollout_of) -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    rollout = rollout_of(mask, group=torch.zeros(3, dtype=torch.long))
    old = torch.full((3, 2), -1.0)
    outcome = torch.tensor([1.0, NAN, 0.0])
    experience, counts = prepare(rollout, outcome, old, None, None, load("dr-grpo"))
    assert experience.advantages[:, 0].tolist() == [0.5, 0.0, -0.5]
    assert counts["dropped_rows"] == 1.0 and experience.keep.tolist() == [True, False, True]


def test_a_length_penalty_shapes_the_reward_and_not_the_filter(rollout_of) -> None:
    dapo = load("dapo")
    lengths = torch.tensor([10, 8, 9, 4])
    mask = torch.arange(10) < lengths[:, None]
    old = torch.full((4, 10), -1.0)
    outcome = torch.tensor([1.0, 1.0, 0.0, 1.0])
    experience, counts = prepare(rollout_of(mask), outcome, old, None, None, dapo, max_length=10)
    # The last fifth of 10 tokens: 10 costs a half, 9 a quarter, 8 nothing.
    assert experience.rewards.tolist() == [0.5, 1.0, -0.25, 1.0]
    # Rows 0 and 1 both scored 1: uniform, whatever their lengths cost them.
    assert experience.keep.tolist() == [False, False, True, True]
    assert counts["filtered_rows"] == 2.0
    with pytest.raises(ValueError, match="length limit"):
        prepare(rollout_of(mask), outcome, old, None, None, dapo)


def test_statistics_by_hand(rollout_of) -> None:
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, OLD - 0.5, VALUES, PLAIN)
    new = OLD.clone()
    new[0, 0] += math.log(3.0)  # advantage 0.9: clipped above
    new[1, 0] -= math.log(2.0)  # advantage -0.4: clipped below
    entropy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, NAN]])
    values = VALUES + 0.1
    total, _, _, stats = step(experience, PLAIN, new, values=values, entropy=entropy)
    assert set(stats) == set(STEP_STATS) - {"grad_norm", "update_norm", "update_cosine"}
    policy = -(1.2 * 0.9 + 0.8 + 0.7 - 0.8 * 0.4 - 0.5) / 5
    value = 0.5 * (0.8**2 + 0.7**2 + 0.6**2 + 0.5**2 + 0.6**2) / 5
    assert stats["policy_loss"] == pytest.approx(policy)
    assert stats["value_loss"] == pytest.approx(value)
    assert stats["loss"] == pytest.approx(policy + 0.1 * value) == pytest.approx(total)
    assert stats["clip_fraction"] == pytest.approx(2 / 5)
    assert stats["clip_low"] == stats["clip_high"] == pytest.approx(1 / 5)
    assert stats["entropy"] == pytest.approx(3.0)
    k3 = (3 - math.log(3) - 1) + (0.5 + math.log(2) - 1)
    assert stats["approx_kl"] == pytest.approx(k3 / 5)
    assert stats["approx_kl_k1"] == pytest.approx((math.log(2) - math.log(3)) / 5)
    assert stats["approx_kl_k2"] == pytest.approx((math.log(2) ** 2 + math.log(3) ** 2) / 10)
    assert stats["ratio_max"] == pytest.approx(3.0) and stats["ratio_p50"] == 1.0
    assert stats["ess"] == pytest.approx((3 + 0.5 + 3) ** 2 / (5 * (9 + 0.25 + 3)))


def test_the_watched_kl_is_never_clamped(rollout_of) -> None:
    experience, _ = prepare(rollout_of(MASK), OUTCOME, OLD, OLD + 8.0, VALUES, PLAIN)
    stats = step(experience, PLAIN, OLD + 4.0)[3]
    assert stats["approx_kl"] == pytest.approx(math.exp(4.0) - 5.0, rel=1e-5)


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
