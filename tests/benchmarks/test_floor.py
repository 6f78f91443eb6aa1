"""Operations are those that torch counts in a real forward and backward pass."""

from __future__ import annotations

import pytest
import torch
from floor import forward_operations, iteration_bytes, iteration_operations, measure, shape_of
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from crlbench.errors import ValidationError
from tests.support.checkpoints import CONFIGS

ROWS, LENGTH = 3, 7


def counted(family: str) -> tuple[float, float]:
    """Forward operations, and those of forward and backward, as torch counts them."""
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), attn_implementation="eager")
    ids = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH)
    with FlopCounterMode(display=False) as forward:
        logits = model(ids).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    ahead = forward.get_total_flops()
    return ahead, ahead + backward.get_total_flops()


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_pass_is_counted_as_torch_counts_it(family):
    shape = shape_of(CONFIGS[family]())
    # Without sharing and with a key for every query, masked ones too.
    mine = forward_operations(shape, ROWS * LENGTH, ROWS * LENGTH, ROWS * LENGTH**2)
    ahead, both = counted(family)
    assert mine == ahead
    assert 3 * mine == both


def test_an_iteration_runs_each_prompt_once():
    shape = shape_of(CONFIGS["llama"]())
    # Prompts of 2 and 5 tokens, 3 completions of 4 tokens: 7 + 6 * 3 tokens, 2 + 6 * 3 predicted;
    # pairs of prompts 3 + 15, of completions (3 + 4 + 5) * 3 + (6 + 7 + 8) * 3.
    once = forward_operations(shape, 25, 20, 18 + 36 + 63)
    plain = iteration_operations(shape, [2, 5], 3, 4, critic=False)
    assert (plain.decode, plain.reference, plain.update) == (once, once, 3 * once)
    assert plain.total == 5 * once
    critic = iteration_operations(shape, [2, 5], 3, 4, critic=True)
    assert critic.total - plain.total == 4 * 2 * 32 * 20


def test_models_whose_operations_differ_are_refused():
    with pytest.raises(ValidationError, match="n_routed_experts.*dense"):
        shape_of(CONFIGS["deepseek"]())


def test_bytes_grow_with_tokens_and_shrink_with_precision():
    shape = shape_of(CONFIGS["llama"]())
    assert iteration_bytes(shape, 10, "fp32") == shape.parameters * (40 + 28)
    assert iteration_bytes(shape, 10, "bf16") == shape.parameters * (20 + 28)


@pytest.mark.slow
def test_the_peak_is_measured(monkeypatch):
    monkeypatch.setattr("floor.PRODUCTS", ((64, 64, 64), (256, 256, 256)))
    monkeypatch.setattr("floor.REPEATS", 2)
    peak = measure()
    assert peak.flops["fp32"] > 1e6
    assert peak.flops["bf16"] > 1e5
    assert peak.bandwidth > 1e6
