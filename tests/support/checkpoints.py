"""Small random checkpoints of real families, saved as their makers' tools would save them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma2Config,
    GPTNeoXConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    MistralConfig,
    PhiConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

SHARED: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "initializer_range": 0.2,
    "pad_token_id": 128,
    "bos_token_id": 129,
    "eos_token_id": 130,
}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHARED, num_key_value_heads=2),
    "qwen2": lambda: Qwen2Config(**SHARED, num_key_value_heads=2),
    "mistral": lambda: MistralConfig(**SHARED, num_key_value_heads=2, sliding_window=8),
    "deepseek": lambda: DeepseekV3Config(
        **SHARED,
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        moe_intermediate_size=16,
        n_shared_experts=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
    ),
}
"""Grouped-query, biased, sliding-window and latent attention with experts."""

HYBRID: dict[str, Any] = SHARED | {
    "num_key_value_heads": 2,
    "shared_intermediate_size": 40,
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
STATE, SIGHT = "linear_attention", "full_attention"
DESIGNS = {
    "gemma2": lambda: Gemma2Config(
        **SHARED | {"initializer_range": 0.1, "num_hidden_layers": 3},
        num_key_value_heads=2,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=6,
        attn_logit_softcapping=4.0,
    ),
    "neox": lambda: GPTNeoXConfig(**SHARED),
    "neox, one half after the other": lambda: GPTNeoXConfig(
        **SHARED | {"initializer_range": 0.3}, use_parallel_residual=False, hidden_act="gelu_new"
    ),
    "phi": lambda: PhiConfig(**SHARED),
    "deepseek": CONFIGS["deepseek"],
    "deepseek, short queries": lambda: DeepseekV3Config(
        **CONFIGS["deepseek"]().to_diff_dict() | {"q_lora_rank": 16, "rope_interleave": False}
    ),
    "hybrid": lambda: GraniteMoeHybridConfig(
        **HYBRID | {"num_hidden_layers": 3},
        layer_types=[STATE, SIGHT, STATE],
        position_embedding_type="nope",
        mamba_n_groups=1,
    ),
    "hybrid, two groups": lambda: GraniteMoeHybridConfig(
        **HYBRID,
        layer_types=[STATE, SIGHT],
        position_embedding_type="rope",
        mamba_n_groups=2,
        mamba_conv_bias=False,
        residual_multiplier=0.7,
        embedding_multiplier=3.0,
        logits_scaling=2.0,
    ),
}
"""Designs whose layers differ from Llama's, as the fast plan serves them."""

CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def ascii_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """One token per ASCII character; 128-130 are <pad>, <bos>, <eos>."""
    stand_ins = dict(zip(range(128), _byte_level_characters(), strict=True))
    vocabulary = {character: byte for byte, character in stand_ins.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<bos>", "<eos>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def _byte_level_characters() -> list[str]:
    """What the byte-level convention writes for the first 128 bytes."""
    spare = iter(range(256, 512))
    return [chr(b if 33 <= b < 127 else next(spare)) for b in range(128)]


def random_model(family: str = "llama", seed: int = 0) -> Any:
    """A causal LM of a family with random weights."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config((CONFIGS | DESIGNS)[family]())


def write_checkpoint(folder: Path, family: str = "llama", chat_template: str | None = None) -> Path:
    """Save a random model and the ASCII tokenizer into ``folder``."""
    random_model(family).save_pretrained(folder)
    ascii_tokenizer(chat_template).save_pretrained(folder)
    # Without it transformers gives Qwen2 its own unknown token, which has no row here.
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unk_token": None}))
    return folder
