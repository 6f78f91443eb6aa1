from __future__ import annotations

import math

import pytest
import torch

from crlbench.algo.kl import (
    K1,
    K2,
    K3,
    AbsoluteK1,
    Adaptive,
    Fixed,
    KlInLoss,
    KlInReward,
    NoKl,
    kl_per_completion,
)
from crlbench.errors import UsageError

REF = torch.zeros(1, 2)
NEW = torch.tensor([[math.log(2.0), -math.log(2.0)]])


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (K1(), [math.log(2.0), -math.log(2.0)]),
        (K2(), [math.log(2.0) ** 2 / 2] * 2),
        (K3(), [0.5 + math.log(2.0) - 1, 2.0 - math.log(2.0) - 1]),
        (AbsoluteK1(), [math.log(2.0)] * 2),
    ],
)
def test_estimators_by_hand(estimator, expected: list[float]) -> None:
    assert estimator(NEW, REF)[0].tolist() == pytest.approx(expected)


def test_k1_and_k3_are_unbiased() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    kl = (p * (p / q).log()).sum().item()
    for estimator in (K1(), K3()):
        assert (p * estimator(p.log(), q.log())).sum().item() == pytest.approx(kl)


def test_k3_is_clamped_by_default_and_free_on_request() -> None:
    far = torch.tensor([[-30.0, 50.0]], requires_grad=True)
    clamped = K3()(far, REF)
    assert clamped.tolist() == [[10.0, 10.0]]
    clamped.sum().backward()
    assert far.grad.tolist() == [[0.0, 0.0]]
    free = K3(input_clamp=None, output_clamp=None)(far.detach().double(), REF)
    assert free[0].tolist() == pytest.approx([math.exp(30.0) - 31.0, 49.0])
    assert K1(output_clamp=10.0)(far, REF).tolist() == [[-10.0, 10.0]]


def test_terms_are_zero_outside_the_mask_even_with_nan() -> None:
    new = torch.tensor([[0.5, math.nan]], requires_grad=True)
    ref = torch.tensor([[0.0, math.inf]])
    mask = torch.tensor([[True, False]])
    for term in (KlInReward(0.1), KlInLoss(0.1), KlInLoss(0.1, "k2")):
        per_token = term(new, ref, mask)
        assert per_token[0, 1] == 0 and torch.isfinite(per_token).all()
    KlInLoss(0.1, "k2")(new, ref, mask).sum().backward()
    assert new.grad[0, 1] == 0 and torch.isfinite(new.grad).all()
    assert NoKl()(new, ref, mask).tolist() == [[0.0, 0.0]]


def test_shorthands_give_parts() -> None:
    assert KlInLoss(0.04, "k3") == KlInLoss(Fixed(0.04), K3())
    assert KlInReward(1).coefficient == Fixed(1.0)
    assert KlInReward(0.1).estimator == K1() and KlInLoss(0.1).estimator == K3()
    assert NoKl().coefficient.start == 0.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KlInLoss(0.1, "k4"), "Did you mean k"),
        (lambda: KlInLoss(-0.1), "Fixed.value must be 0 or above"),
        (lambda: KlInLoss("high"), "Adaptive, Fixed"),
        (lambda: K3(input_clamp=-1.0), "input_clamp"),
        (lambda: Adaptive(0.1, 0.0, 100), "target"),
    ],
)
def test_impossible_settings_are_refused(build, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


def test_adaptive_coefficient() -> None:
    controller = Adaptive(initial=0.2, target=2.0, horizon=100)
    assert controller.start == 0.2
    # 10 % above the target, 50 completions of a horizon of 100
    assert controller.next_coefficient(0.2, 2.2, 50) == pytest.approx(0.2 * 1.05)
    assert controller.next_coefficient(0.2, 100.0, 50) == pytest.approx(0.2 * 1.10)
    assert controller.next_coefficient(0.2, 0.0, 50) == pytest.approx(0.2 * 0.90)
    assert Fixed(0.3).next_coefficient(0.3, 99.0, 50) == 0.3


def test_kl_per_completion_sums_tokens_and_averages_rows() -> None:
    old = torch.tensor([[1.0, 2.0, math.nan], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    assert kl_per_completion(old, torch.zeros(3, 3), mask) == pytest.approx(3.5 / 3)
    assert kl_per_completion(old[:0], old[:0], mask[:0]) == 0.0
