"""Products of decoding in the layout of the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crlbench.policy import precision
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.precision import by_blocks, laid_out, product
from crlbench.train.stream import make_batch
from tests.policy.test_sample import loop, prompts
from tests.support.checkpoints import CONFIGS, random_model


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 24), (5, 1, 24), (2, 3, 24)])
@torch.no_grad()
def test_a_product_is_that_of_the_layer(shape, dtype, bias):
    layer = nn.Linear(24, 40, bias=bias, dtype=dtype)
    x = torch.randn(shape).to(dtype)
    found, expected = product(layer)(x), layer(x)
    assert found.shape == expected.shape and found.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_head_by_blocks_of_words_is_the_whole_head_in_float32(dtype, bias, monkeypatch):
    monkeypatch.setattr(precision, "BLOCK_WORDS", 16)
    head, x = nn.Linear(24, 40, bias=bias, dtype=dtype), torch.randn(5, 24).to(dtype)
    found = by_blocks(head)(x)
    assert found.dtype == torch.float32 and found.is_contiguous()
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, head(x).float(), atol=tolerance, rtol=0)


@torch.no_grad()
def test_a_layer_in_bfloat16_takes_float32_as_autocast_does():
    layer, x = nn.Linear(24, 40, bias=False, dtype=torch.bfloat16), torch.randn(5, 24)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(product(layer)(x), layer(x), atol=2e-2, rtol=0)


def test_layers_are_as_they_were_afterwards_and_small_ones_always():
    model = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 4))
    with pytest.raises(RuntimeError, match="stop"), laid_out(model, model[1], "cpu"):
        assert "forward" in vars(model[0]) and "forward" not in vars(model[1])
        raise RuntimeError("stop")
    assert "forward" not in vars(model[0])
    with laid_out(model, model[1], "cuda"):
        assert "forward" not in vars(model[0])


@pytest.mark.parametrize(("dtype", "changed"), [(torch.float32, False), (torch.bfloat16, True)])
def test_frozen_weights_get_no_second_copy(dtype, changed):
    model = nn.Sequential(nn.Linear(256, 512, dtype=dtype)).requires_grad_(False)
    with laid_out(model, model, "cpu"):
        assert ("forward" in vars(model[0])) is changed


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_completions_are_those_of_the_plain_products(family, bf16, monkeypatch):
    policy = Policy(random_model(family), value_head=True)
    batch, found = make_batch(prompts(), 128, completions=3), []
    for least in (0, 1 << 60):
        monkeypatch.setattr(precision, "LEAST_WEIGHTS", least)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found.append(loop(max_tokens=8).sample(policy, batch, DrawKey(5, "test")))
    one, other = found
    same = (one.completion_ids == other.completion_ids).all(1)
    assert same.float().mean() >= (0.8 if bf16 else 1.0)
    gap = (one.behavior_logprobs - other.behavior_logprobs)[same].abs().max()
    assert gap < (5e-2 if bf16 else 1e-5)
