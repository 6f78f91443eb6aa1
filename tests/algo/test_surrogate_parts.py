"""Ratio, clip rule, aggregation, critic and reward placement, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from crlbench.algo.aggregate import FixedLength, SequenceMean, TokenMean, Totals
from crlbench.algo.clip import PpoClip
from crlbench.algo.ratio import TokenRatio
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
    got = part(rho, a)
    got.sum().backward()
    assert got.item() == pytest.approx(loss) and rho.grad.item() == pytest.approx(slope)
    assert [side.item() for side in part.clipped(rho, a)] == [low, high]


def test_dual_clip_bounds_negative_advantages_only() -> None:
    rho = torch.tensor([[10.0, 10.0, 2.0]], requires_grad=True)
    loss = PpoClip(0.2, 0.2, dual=3.0)(rho, torch.tensor([[-1.0, 1.0, -1.0]]))
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([3.0, -1.2, 2.0])
    assert rho.grad[0].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("settings", [{"low": 0.0}, {"high": -1.0}, {"dual": 1.0}, {"low": True}])
def test_impossible_clips_are_refused(settings: dict) -> None:
    with pytest.raises(UsageError, match=f"PpoClip.{next(iter(settings))}"):
        PpoClip(**settings)


LOSSES = torch.tensor([[1.0, 2.0, 6.0], [4.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
TOTALS = Totals(tokens=4, rows=2, completions=3)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (TokenMean(), 13 / 4),
        (SequenceMean(), (3 + 4) / 2),
        (SequenceMean("sum"), (9 + 4) / 2),
        (SequenceMean(count_empty=True), (3 + 4) / 3),
        (FixedLength(10), 13 / 30),
        (FixedLength(10, per_completion=False), 13 / 10),
    ],
)
def test_aggregations_by_hand_and_in_pieces(part, expected: float) -> None:
    assert part(LOSSES, MASK, TOTALS).item() == pytest.approx(expected)
    rows = zip(LOSSES.split(1), MASK.split(1), strict=True)
    pieces = sum(part(loss, mask, TOTALS).item() for loss, mask in rows)
    assert pieces == pytest.approx(expected)
    nothing = part(LOSSES, torch.zeros_like(MASK), Totals(0, 0, 0))
    assert nothing.item() == 0.0


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
