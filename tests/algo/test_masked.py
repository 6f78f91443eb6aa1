from __future__ import annotations

import math

import pytest
import torch

from crlbench.algo.masked import masked_mean, masked_sum, masked_var, masked_whiten, select

NAN = math.nan
MASK = torch.tensor([[True, True, False], [True, False, True]])
X = torch.tensor([[1.0, 2.0, NAN], [3.0, math.inf, 6.0]], dtype=torch.float64)


def test_statistics_of_the_valid_positions() -> None:
    assert masked_sum(X, MASK).item() == 12.0
    assert masked_mean(X, MASK).item() == 3.0
    assert masked_var(X, MASK).item() == pytest.approx(14 / 3)  # squares 4 + 1 + 0 + 9
    assert masked_var(X, MASK, ddof=0).item() == pytest.approx(14 / 4)


def test_whitening_by_hand() -> None:
    scale = math.sqrt(14 / 3 + 1e-8)
    expected = torch.tensor([[-2.0, -1.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64) / scale
    assert torch.allclose(masked_whiten(X, MASK), expected, rtol=1e-12)
    kept_mean = masked_whiten(X, MASK, shift_mean=False)
    assert torch.allclose(kept_mean, expected + 3.0 * MASK, rtol=1e-12)


@pytest.mark.parametrize(
    ("place", "scale"), [("var", math.sqrt(1.0)), ("std", 1.25), ("floor", math.sqrt(0.75))]
)
def test_places_of_eps(place: str, scale: float) -> None:
    x, mask = torch.tensor([[1.0, 0.0, 0.5]]), torch.ones(1, 3, dtype=torch.bool)  # var 0.25
    eps = 0.75
    assert masked_whiten(x, mask, eps=eps, eps_place=place)[0, 0].item() == pytest.approx(
        0.5 / scale
    )


def test_gradients_never_see_masked_positions() -> None:
    x = X.clone().requires_grad_()
    select(MASK, x).square().sum().backward()
    assert torch.equal(x.grad, torch.tensor([[2.0, 4.0, 0.0], [6.0, 0.0, 12.0]]).double())


@pytest.mark.parametrize("valid", [0, 1])
def test_too_few_values_to_whiten(valid: int) -> None:
    x, mask = torch.tensor([[5.0, NAN]]), torch.tensor([[valid == 1, False]])
    assert masked_whiten(x, mask).tolist() == [[5.0 * valid, 0.0]]
    assert masked_mean(x, mask).item() == 5.0 * valid
    assert masked_var(x, mask).item() == 0.0


def test_equal_values_whiten_to_zero() -> None:
    x, mask = torch.full((4, 5), 0.3), torch.ones(4, 5, dtype=torch.bool)
    assert masked_whiten(x, mask).abs().max().item() < 1e-9
