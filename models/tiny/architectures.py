"""The eight architectures: equal size, context and vocabulary; only the design differs.

Each is the real transformers class with about 1.0M parameters in three layers of width 192;
the feed-forward layers are as wide as the rest leaves room for. Three wide layers decode
faster on a CPU than four narrow ones of the same size. Llama and Gemma come in two further sizes,
in which all widths differ and nothing else.
"""

from __future__ import annotations

from typing import Any

from tokenizer import BOS, CONTEXT, EOS, PAD, VOCABULARY
from transformers import (
    DeepseekV3Config,
    Gemma2Config,
    GPTNeoXConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    MistralConfig,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
)

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 192,
    "num_hidden_layers": 3,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
    "initializer_range": 0.05,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
ROTARY = {"rope_type": "default", "rope_theta": 500.0}
MODERN: dict[str, Any] = {**SHARED, "rms_norm_eps": 1e-6, "rope_parameters": ROTARY}
"""RMSNorm, and rotary positions on whole heads."""


def llama() -> PreTrainedConfig:
    """Grouped-query attention (6 query heads on 2 key-value heads), SwiGLU, RMSNorm."""
    return LlamaConfig(
        **MODERN, intermediate_size=384, num_attention_heads=6, num_key_value_heads=2
    )


def llama_small() -> PreTrainedConfig:
    """As tiny-llama, half as wide (96): 3 query heads on 1 key-value head."""
    return LlamaConfig(
        **{**MODERN, "hidden_size": 96},
        intermediate_size=232,
        num_attention_heads=3,
        num_key_value_heads=1,
    )


def llama_large() -> PreTrainedConfig:
    """As tiny-llama, half as wide again (288): 9 query heads on 3 key-value heads."""
    return LlamaConfig(
        **{**MODERN, "hidden_size": 288},
        intermediate_size=824,
        num_attention_heads=9,
        num_key_value_heads=3,
    )


def qwen2() -> PreTrainedConfig:
    """As Llama, with biases on the query, key and value projections."""
    return Qwen2Config(
        **MODERN, intermediate_size=384, num_attention_heads=6, num_key_value_heads=2
    )


def mistral() -> PreTrainedConfig:
    """Sliding-window attention over 32 positions, and half as many key-value as query heads."""
    return MistralConfig(
        **MODERN,
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
        **MODERN,
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


def gemma2() -> PreTrainedConfig:
    """Soft-capped attention and output logits, a norm before and after every block, GeGLU.

    Attention reaches 32 positions back in the first and third layer and all in the second.
    Gemma 2 and not 3, because no other model here caps its logits.
    """
    return Gemma2Config(
        **MODERN,
        intermediate_size=384,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=32,
    )


def gemma2_small() -> PreTrainedConfig:
    """As tiny-gemma, half as wide (96): 3 query heads on 1 key-value head."""
    return Gemma2Config(
        **{**MODERN, "hidden_size": 96},
        intermediate_size=232,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=32,
    )


def gemma2_large() -> PreTrainedConfig:
    """As tiny-gemma, half as wide again (288): 9 query heads on 3 key-value heads."""
    return Gemma2Config(
        **{**MODERN, "hidden_size": 288},
        intermediate_size=824,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=32,
    )


def gpt_neox() -> PreTrainedConfig:
    """Attention and feed-forward side by side, each with its LayerNorm; GELU; biases.

    Every head has its own keys and values, from one fused projection; a quarter of each head
    is rotated by position.
    """
    return GPTNeoXConfig(
        **SHARED,
        rope_parameters={**ROTARY, "partial_rotary_factor": 0.25},
        intermediate_size=448,
        num_attention_heads=6,
        use_parallel_residual=True,
    )


def phi() -> PreTrainedConfig:
    """Attention and feed-forward side by side behind one LayerNorm; GELU; biases.

    Every head has its own keys and values; half of each head is rotated by position. The
    output logits have a bias too.
    """
    return PhiConfig(
        **SHARED,
        rope_parameters={**ROTARY, "partial_rotary_factor": 0.5},
        intermediate_size=448,
        num_attention_heads=6,
    )


def granite_hybrid() -> PreTrainedConfig:
    """Two state-space layers (Mamba 2) around one layer of grouped-query attention.

    No positions are given: the states and the causal mask carry the order of tokens. A state
    has 6 heads of 64 x 32 numbers, however long the text. SwiGLU, RMSNorm; no experts.
    """
    return GraniteMoeHybridConfig(
        **SHARED,
        rms_norm_eps=1e-6,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        position_embedding_type="nope",
        num_attention_heads=6,
        num_key_value_heads=2,
        attention_multiplier=32**-0.5,
        mamba_n_heads=6,
        mamba_d_state=32,
        mamba_chunk_size=32,
        shared_intermediate_size=224,
        num_local_experts=0,
        num_experts_per_tok=0,
    )


EQUAL = {
    "tiny-llama": llama,
    "tiny-qwen2": qwen2,
    "tiny-mistral": mistral,
    "tiny-deepseek": deepseek,
    "tiny-gemma": gemma2,
    "tiny-neox": gpt_neox,
    "tiny-phi": phi,
    "tiny-granite-hybrid": granite_hybrid,
}
"""One budget, eight designs."""
SIZES = {
    "tiny-llama-0.3m": llama_small,
    "tiny-llama": llama,
    "tiny-llama-3m": llama_large,
}
"""One design, three budgets, in rising order."""
SECOND_SIZES = {
    "tiny-gemma-0.3m": gemma2_small,
    "tiny-gemma": gemma2,
    "tiny-gemma-3m": gemma2_large,
}
"""Another design, in the second generation alone."""
FIRST = {**EQUAL, **SIZES}
"""Those of the first generation."""
ARCHITECTURES = {**FIRST, **SECOND_SIZES}


def parameter_counts(model: Any) -> tuple[int, int]:
    """(total, active): active leaves out the routed experts that a token does not use."""
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    if not routed:
        return total, total
    idle = 1 - model.config.num_experts_per_tok / model.config.n_routed_experts
    return total, total - round(routed * idle)
