"""The four architectures: equal size, context and vocabulary; only the design differs.

Each is the real transformers class with about 1.0M parameters in three layers of width 192.
Three wide layers decode faster on a CPU than four narrow ones of the same size.
"""

from __future__ import annotations

from typing import Any

from tokenizer import BOS, CONTEXT, EOS, PAD, VOCABULARY
from transformers import (
    DeepseekV3Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
)

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 192,
    "num_hidden_layers": 3,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "initializer_range": 0.05,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}


def llama() -> PreTrainedConfig:
    """Grouped-query attention (6 query heads on 2 key-value heads), SwiGLU, RMSNorm."""
    return LlamaConfig(
        **SHARED, intermediate_size=384, num_attention_heads=6, num_key_value_heads=2
    )


def qwen2() -> PreTrainedConfig:
    """As Llama, with biases on the query, key and value projections."""
    return Qwen2Config(
        **SHARED, intermediate_size=384, num_attention_heads=6, num_key_value_heads=2
    )


def mistral() -> PreTrainedConfig:
    """Sliding-window attention over 32 positions, and half as many key-value as query heads."""
    return MistralConfig(
        **SHARED,
        intermediate_size=368,
        num_attention_heads=6,
        num_key_value_heads=3,
        sliding_window=32,
    )


def deepseek() -> PreTrainedConfig:
    """Multi-head latent attention; the last two layers route 2 of 4 experts beside a shared one.

    The latent that is cached has 48 + 32 numbers a position. The first layer is dense, as in
    DeepSeek-V3; expert groups and multi-token prediction make no sense at this size.
    """
    return DeepseekV3Config(
        **SHARED,
        intermediate_size=304,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=48,
        qk_nope_head_dim=16,
        qk_rope_head_dim=32,
        v_head_dim=32,
        rope_interleave=False,
        first_k_dense_replace=1,
        moe_intermediate_size=96,
        n_shared_experts=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        num_mtp_layers=0,
    )


ARCHITECTURES = {
    "tiny-llama": llama,
    "tiny-qwen2": qwen2,
    "tiny-mistral": mistral,
    "tiny-deepseek": deepseek,
}


def parameter_counts(model: Any) -> tuple[int, int]:
    """(total, active): active leaves out the routed experts that a token does not use."""
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    if not routed:
        return total, total
    idle = 1 - model.config.num_experts_per_tok / model.config.n_routed_experts
    return total, total - round(routed * idle)
