"""Attention of the CPU in float32, also under autocast."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from crlbench.policy import attention
from crlbench.policy.attention import attend
from crlbench.policy.policy import Policy
from tests.policy.test_policy import a_batch
from tests.support.checkpoints import CONFIGS, random_model


class Layer(torch.nn.Module):
    """What attention asks of a layer: four query heads, two key heads."""

    num_key_value_groups = 2
    is_causal = True


def operands(dtype: torch.dtype, length: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(3, 4, length, 8), (3, 2, 9, 8), (3, 2, 9, 8)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("length", [1, 4])  # one token, and several in groups of heads
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_the_arithmetic_is_that_of_float32(dtype, length):
    query, key, value = operands(dtype, length)
    seen = torch.rand(3, 1, length, 9) < 0.7
    seen[..., 0] = True
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = attend(Layer(), query, key, value, seen, scaling=0.3)
    wide = [x.float() for x in (query, *(x.repeat_interleave(2, dim=1) for x in (key, value)))]
    expected = scaled_dot_product_attention(*wide, attn_mask=seen, scale=0.3).transpose(1, 2)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype), atol=2e-6, rtol=0)


def test_gradients_of_grouped_heads_are_those_of_repeated_keys():
    query, key, value = (x.requires_grad_() for x in operands(torch.float32, 4))
    seen = torch.rand(3, 1, 4, 9) < 0.7
    seen[..., 0] = True
    found, _ = attend(Layer(), query, key, value, seen, scaling=0.3)
    wide = [query, *(x.repeat_interleave(2, dim=1) for x in (key, value))]
    expected = scaled_dot_product_attention(*wide, attn_mask=seen, scale=0.3).transpose(1, 2)
    slope = torch.randn_like(found)
    ours = torch.autograd.grad(found, (query, key, value), slope)
    theirs = torch.autograd.grad(expected, (query, key, value), slope)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=0)


def test_a_mask_of_numbers_in_half_precision_is_added():
    query, key, value = operands(torch.bfloat16, 4)
    seen = torch.rand(3, 1, 4, 9) < 0.7
    seen[..., 0] = True
    added = torch.zeros(seen.shape, dtype=torch.bfloat16).masked_fill_(~seen, -torch.inf)
    one, other = (attend(Layer(), query, key, value, m, scaling=0.3)[0] for m in (seen, added))
    assert torch.equal(one, other)


def test_elements_of_a_head_may_lie_apart():
    query, key, value = operands(torch.float32, 1)
    apart = query.transpose(1, 3).contiguous().transpose(1, 3)
    assert apart.stride(-1) != 1
    one, other = (attend(Layer(), q, key, value, None, scaling=0.3)[0] for q in (query, apart))
    assert torch.equal(one, other)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_models_attend_by_it(family, monkeypatch):
    calls = []
    original = scaled_dot_product_attention

    def watched(query, *args, **options):
        calls.append(query.dtype)
        return original(query, *args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    monkeypatch.setattr(attention, "scaled_dot_product_attention", watched)
    with torch.autocast("cpu", torch.bfloat16):
        Policy(random_model(family), value_head=False)(*a_batch(), 1.0).logprobs.sum().backward()
    assert calls and set(calls) == {torch.float32}


@torch.no_grad()
def test_a_model_stored_in_bfloat16_runs_without_autocast():
    model = random_model().to(torch.bfloat16)
    found = model(torch.randint(0, 128, (2, 7))).logits
    assert found.dtype == torch.bfloat16 and found.isfinite().all()
