"""Norms and cosines of steps, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from crlbench.train import optimizer
from crlbench.train.optimizer import Displacement, dots, fused_dot


def step(*rows):
    return {str(i): torch.tensor(row) for i, row in enumerate(rows)}


def test_norm_and_cosine_by_hand():
    path = Displacement()
    first = path.measure(step([3.0, 0.0], [4.0]))
    assert first["update_norm"] == 5.0 and math.isnan(first["update_cosine"])
    assert path.measure(step([3.0, 0.0], [4.0]))["update_cosine"] == pytest.approx(1.0)
    assert path.measure(step([-4.0, 7.0], [3.0]))["update_cosine"] == pytest.approx(0.0)


def test_a_step_that_moves_nothing_is_passed_over():
    path = Displacement()
    path.measure(step([1.0, 2.0]))
    assert path.measure({}) == pytest.approx(
        {"update_norm": 0.0, "update_cosine": math.nan}, nan_ok=True
    )
    assert path.measure(step([-1.0, -2.0]))["update_cosine"] == pytest.approx(-1.0)


def test_a_weight_that_moves_only_sometimes():
    path = Displacement()
    path.measure(step([3.0], [4.0]))
    assert path.measure({"1": torch.tensor([2.0])})["update_cosine"] == pytest.approx(0.8)


def test_a_large_model_is_remembered_in_part(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(optimizer, "REMEMBERED", 20_000)
    path = Displacement()
    one = {str(i): torch.randn(30_000) for i in range(3)}
    other = {n: 0.6 * t + 0.8 * torch.randn(t.shape) for n, t in one.items()}
    path.measure(one)
    assert sum(t.numel() for t in path.last.values()) <= 20_000
    assert len(path.last) == 3
    found = path.measure(other)
    assert found["update_cosine"] == pytest.approx(0.6, abs=0.03)
    assert found["update_norm"] == pytest.approx(math.sqrt(90_000), rel=0.02)


def test_inner_products_over_what_both_have():
    a, b = step([1.0, 2.0], [3.0]), {"1": torch.tensor([5.0]), "2": torch.tensor([7.0])}
    assert dots([(a, a), (a, b), ({}, a), (b, b)]) == [14.0, 15.0, 0.0, 74.0]
    assert dots([({}, {})]) == [0.0]


def test_few_kernels_find_the_inner_products_of_one_for_each_tensor():
    torch.manual_seed(0)
    a = [torch.randn(shape) for shape in ((40, 30), (7,), (1, 5))]
    b = [torch.randn(x.shape) for x in a]
    square = sum(float(x.double().square().sum()) for x in a)
    product = sum(float((x.double() * y.double()).sum()) for x, y in zip(a, b, strict=True))
    for found, expected in ((fused_dot(a, a), square), (fused_dot(a, b), product)):
        assert found.dtype == torch.float64 and found.shape == ()
        assert float(found) == pytest.approx(expected, rel=1e-5)
