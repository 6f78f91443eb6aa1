"""Ratio, clip rule, aggregation, critic and reward placement, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from crlbench.algo.aggregate import (
    FixedLength,
    GroupTokenMean,
    SequenceMean,
    TokenMean,
    Totals,
)
from crlbench.algo.clip import Cispo, NoClip, PpoClip, Sapo
from crlbench.algo.ratio import NoRatio, SequenceRatio, TokenRatio
from crlbench.algo.token_rewards import place_outcome, place_steps, token_rewards
from crlbench.algo.value import Critic
from crlbench.errors import UsageError

NAN = math.nan


def test_ratio_of_tokens() -> None:
    new = torch.tensor([[math.log(0.6), NAN, 500.0, -500.0]], requires_grad=True)
    old = torch.tensor([[math.log(0.3), 0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, True, True]])
    ratio = TokenRatio()(new, old, mask)
    assert ratio[0, 0].item() == pytest.approx(2.0) and ratio[0, 1].item() == 1.0
    assert ratio[0, 2:].tolist() == pytest.approx([math.exp(20.0), math.exp(-20.0)])
    ratio.sum().backward()
    assert new.grad[0].tolist() == pytest.approx([2.0, 0.0, 0.0, 0.0])
    assert TokenRatio(None)(new, old, mask)[0, 2].item() == math.inf


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "low", "high"),
    [
        (1.0, 2.0, -2.0, -2.0, False, False),
        (1.5, 2.0, -2.6, 0.0, False, True),  # held at 1.3
        (0.5, 2.0, -1.0, -2.0, False, False),
        (0.75, -2.0, 1.6, 0.0, True, False),  # held at 0.8
        (1.5, -2.0, 3.0, 2.0, False, False),
        (1.5, 0.0, 0.0, 0.0, False, False),
    ],
)
def test_clip_by_hand(ratio, advantage, loss, slope, low, high) -> None:
    rho = torch.tensor([[ratio]], requires_grad=True)
    part, a = PpoClip(low=0.2, high=0.3), torch.tensor([[advantage]])
    got = part(rho, a, rho.log())
    got.sum().backward()
    assert got.item() == pytest.approx(loss) and rho.grad.item() == pytest.approx(slope)
    assert [side.item() for side in part.clipped(rho, a)] == [low, high]


def test_dual_clip_bounds_negative_advantages_only() -> None:
    rho = torch.tensor([[10.0, 10.0, 2.0]], requires_grad=True)
    loss = PpoClip(0.2, 0.2, dual=3.0)(rho, torch.tensor([[-1.0, 1.0, -1.0]]), rho.log())
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([3.0, -1.2, 2.0])
    assert rho.grad[0].tolist() == [0.0, 0.0, 1.0]


def test_cispo_bounds_the_weight_and_keeps_every_gradient() -> None:
    rho = torch.tensor([[0.5, 1.0, 2.0, 2.0]], requires_grad=True)
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -3.0]], requires_grad=True)
    a = torch.tensor([[1.0, 1.0, -1.0, 0.0]])
    part = Cispo(low=0.2, high=0.3)
    loss = part(rho, a, logprobs)
    assert loss[0].tolist() == pytest.approx([0.8, 2.0, -3.9, 0.0])
    (by_ratio, by_logprob) = torch.autograd.grad(loss.sum(), [rho, logprobs], allow_unused=True)
    assert by_ratio is None
    assert by_logprob[0].tolist() == pytest.approx([-0.8, -1.0, 1.3, 0.0])
    low, high = part.clipped(rho, a)
    assert low[0].tolist() == [True, False, False, False]
    assert high[0].tolist() == [False, False, True, False]
    above_only = Cispo(low=None, high=0.3)
    assert above_only(rho, a, logprobs)[0, 0].item() == pytest.approx(0.5)
    assert not above_only.clipped(rho, a)[0].any()


def test_sapo_follows_less_the_further_the_ratio_is() -> None:
    rho = torch.tensor([[1.0, 1.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
    a = torch.tensor([[1.0, -1.0, 1.0, -1.0]], dtype=torch.float64)
    Sapo(tau_positive=1.0, tau_negative=2.0)(rho, a, rho.log()).sum().backward()
    at_two = [1 / (1 + math.exp(-tau)) for tau in (1.0, 2.0)]
    expected = [-1.0, 1.0, -4 * at_two[0] * (1 - at_two[0]), 4 * at_two[1] * (1 - at_two[1])]
    assert rho.grad[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_without_a_clip_the_gradient_is_the_advantage() -> None:
    rho = torch.tensor([[0.1, 9.0]], requires_grad=True)
    a = torch.tensor([[-2.0, 3.0]])
    NoClip()(rho, a, rho.log()).sum().backward()
    assert rho.grad[0].tolist() == [2.0, -3.0]
    assert not any(side.any() for side in NoClip().clipped(rho, a))


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        (PpoClip, {"low": 0.0}),
        (PpoClip, {"high": -1.0}),
        (PpoClip, {"dual": 1.0}),
        (PpoClip, {"low": True}),
        (Cispo, {"low": 1.5}),
        (Cispo, {"high": 0.0}),
        (Sapo, {"tau_negative": 0.0}),
        (TokenRatio, {"log_ratio_clamp": 0.0}),
        (SequenceRatio, {"log_ratio_max": -1.0}),
        (SequenceRatio, {"mean": "harmonic"}),
        (SequenceMean, {"row": "max"}),
        (SequenceMean, {"row_eps": 1.0}),
        (FixedLength, {"length": 0}),
        (Critic, {"coefficient": 0.0}),
        (Critic, {"clip": 0.0}),
    ],
)
def test_impossible_settings_are_refused(part, settings: dict) -> None:
    with pytest.raises(UsageError, match=f"{part.__name__}.{next(iter(settings))}"):
        part(**settings)


def test_ratio_of_a_completion() -> None:
    new = torch.tensor([[0.0, -1.0, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
    old = torch.tensor([[-0.2, -1.6, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    new.requires_grad_()
    geometric = SequenceRatio()(new, old, mask)
    assert geometric[0, :2].tolist() == pytest.approx([math.exp(0.4)] * 2)
    assert torch.isfinite(geometric).all()
    geometric[0, :1].sum().backward()
    assert new.grad[0].tolist() == pytest.approx([math.exp(0.4), 0.0, 0.0])  # its own token
    new.grad = None
    whole = SequenceRatio("product")(new, old, mask)
    assert whole[0, 0].item() == pytest.approx(math.exp(0.8))
    whole[0, :1].sum().backward()
    assert new.grad[0].tolist() == pytest.approx([math.exp(0.8), math.exp(0.8), 0.0])
    assert (new.grad[1] == 0).all()


def test_gspo_token_has_the_gradient_of_gspo_where_the_advantage_is_constant() -> None:
    draw = torch.Generator().manual_seed(0)
    mask = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    old = -torch.rand(3, 5, generator=draw, dtype=torch.float64)
    new = old + 0.1 * torch.randn(3, 5, generator=draw, dtype=torch.float64)
    a = torch.tensor([[1.5], [-0.5], [2.0]], dtype=torch.float64)
    lengths = mask.sum(1)

    def gradient(objective) -> torch.Tensor:
        leaf = new.clone().requires_grad_()
        return torch.autograd.grad(objective(leaf), leaf)[0]

    def gspo(leaf):
        s = ((leaf - old).where(mask, 0.0).sum(1) / lengths).exp()
        bounded = s.clamp(0.95, 1.05)
        return -torch.minimum(s * a[:, 0], bounded * a[:, 0]).mean()

    def ours(leaf):
        ratio = SequenceRatio()(leaf, old, mask)
        loss = PpoClip(0.05, 0.05)(ratio, a.expand(3, 5), leaf)
        return SequenceMean(row_eps=0.0)(loss, mask, Totals(9, 3, 3))

    assert gspo(new).item() == pytest.approx(ours(new).item(), rel=1e-12)
    assert torch.allclose(gradient(gspo), gradient(ours), rtol=1e-12, atol=0)
    assert gradient(ours).any()


def test_without_a_ratio_the_log_probability_learns() -> None:
    new = torch.tensor([[-1.0, NAN]], requires_grad=True)
    got = NoRatio()(new, torch.tensor([[-9.0, NAN]]), torch.tensor([[True, False]]))
    assert got.tolist() == [[-1.0, 0.0]]
    got.sum().backward()
    assert new.grad.tolist() == [[1.0, 0.0]]


LOSSES = torch.tensor([[1.0, 2.0, 6.0], [4.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
GROUP = torch.tensor([4, 2, 2])
TOTALS = Totals(tokens=4, rows=2, completions=3, length_cap=5, group_tokens={4: 3.0, 2: 1.0})


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (TokenMean(), 13 / 4),
        (SequenceMean(), (3 + 4) / 2),
        (SequenceMean("sum"), (9 + 4) / 2),
        (SequenceMean(count_empty=True), (3 + 4) / 3),
        (FixedLength(10), 13 / 30),
        (FixedLength(10, per_completion=False), 13 / 10),
        (FixedLength(), 13 / 15),
        (GroupTokenMean(), (9 / 3 + 4 / 1) / 2),
    ],
)
def test_aggregations_by_hand_and_in_pieces(part, expected: float) -> None:
    assert part(LOSSES, MASK, TOTALS, GROUP).item() == pytest.approx(expected)
    rows = zip(LOSSES.split(1), MASK.split(1), GROUP.split(1), strict=True)
    pieces = sum(part(loss, mask, TOTALS, group).item() for loss, mask, group in rows)
    assert pieces == pytest.approx(expected)
    nothing = part(LOSSES, torch.zeros_like(MASK), Totals(0, 0, 0, length_cap=5), GROUP)
    assert nothing.item() == 0.0


def test_aggregations_name_what_they_miss() -> None:
    with pytest.raises(ValueError, match="length_cap"):
        FixedLength()(LOSSES, MASK, Totals(4, 2, 3))
    with pytest.raises(ValueError, match="prompt of each row"):
        GroupTokenMean()(LOSSES, MASK, TOTALS)


def test_value_loss_by_hand() -> None:
    values = torch.tensor([[0.0, 0.5, 0.5, 0.1]], requires_grad=True)
    old = torch.tensor([[0.0, 0.0, 0.0, 0.0]])
    returns = torch.tensor([[1.0, 1.0, 0.2, 1.0]])
    loss = Critic(clip=0.2)(values, old, returns)
    # 0.5 is clipped to 0.2: worse for return 1 (0.64 against 0.25), better for 0.2
    assert loss[0].tolist() == pytest.approx([0.5, 0.32, 0.045, 0.405])
    loss.sum().backward()
    assert values.grad[0].tolist() == pytest.approx([-1.0, 0.0, 0.3, -0.9])
    assert Critic(clip=None)(values, old, returns)[0, 1].item() == pytest.approx(0.125)


def test_outcome_lands_on_the_last_valid_token() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]]).bool()
    placed = place_outcome(torch.tensor([1.0, 2.0, 3.0, 4.0]), mask)
    assert placed.tolist() == [[0, 0, 1], [0, 0, 2], [3, 0, 0], [0, 0, 0]]


def test_steps_land_on_the_token_with_their_last_character() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]]).bool()
    ends = [[2, 5, 9, 9], [3, 6, 8], []]
    steps = [
        [(1, 0.1), (2, 0.2), (3, 0.4), (9, 0.8), (50, 1.6)],
        [(4, 1.0)],  # its token is not ours: the next valid one
        [(1, 1.0)],
    ]
    placed = place_steps(steps, ends, mask)
    assert placed[0].tolist() == pytest.approx([0.3, 0.4, 0.8, 1.6])
    assert placed[1].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert placed[2].tolist() == [0.0] * 4


def test_steps_survive_half_decoded_characters() -> None:
    mask = torch.ones(1, 4, dtype=torch.bool)
    placed = place_steps([[(1, 0.5), (4, 0.25)]], [[1, 3, 2, 4]], mask)
    assert placed.tolist() == [[0.5, 0.0, 0.0, 0.25]]


def test_token_rewards_add_up() -> None:
    mask = torch.tensor([[True, True, False]])
    steps = torch.tensor([[0.5, 0.0, NAN]])
    penalty = torch.tensor([[0.1, 0.2, NAN]])
    rewards = token_rewards(torch.tensor([1.0]), mask, steps, penalty)
    assert rewards[0].tolist() == pytest.approx([0.4, 0.8, 0.0])
