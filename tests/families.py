"""Every architecture at toy size: those of all entries, and families that have none."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from transformers import AutoConfig

from crlbench.cards import ModelCard
from crlbench.catalog import Catalog
from crlbench.policy.load import Location
from crlbench.policy.served import toy
from crlbench.policy.shape import config_of

HYBRID = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 8}),
    "llama-one-key": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"num_key_value_heads": 4}),
    "qwen3": ("qwen3", {"num_key_value_heads": 8}),
    "mistral": ("mistral", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3_text", {}),
    "deepseek-v3": ("deepseek_v3", {}),
    "mixtral": ("mixtral", {}),
    "qwen3-moe": ("qwen3_moe", {}),
    "olmoe": ("olmoe", {}),
    "olmo2": ("olmo2", {}),
    "gpt-neox": ("gpt_neox", {}),
    "gpt2": ("gpt2", {}),
    "opt": ("opt", {"word_embed_proj_dim": 512}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {"sliding_window": 2047}),
    "cohere": ("cohere", {}),
    "glm4": ("glm4", {}),
    "granite": ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.22}),
    "smollm3": ("smollm3", {}),
    "starcoder2": ("starcoder2", {"sliding_window": 4096}),
    "granite-hybrid": (
        "granitemoehybrid",
        {"num_hidden_layers": 4, "layer_types": HYBRID, "num_local_experts": 0},
    ),
    "falcon-h1": ("falcon_h1", {"lm_head_multiplier": 0.5}),
    "bamba": ("bamba", {"attn_layer_indices": [9, 18, 27]}),
    "jamba": ("jamba", {}),
    "lfm2": ("lfm2", {"num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}),
    "qwen3-next": ("qwen3_next", {}),
}
"""By name, what AutoConfig calls the family and where its config differs from the defaults."""
EVERYWHERE = ("gemma2", "mixtral", "gpt2", "granite-hybrid", "phi")
"""Families that the default run tries."""


def family_config(name: str) -> Any:
    """The config of a family at the size of its makers."""
    kind, changes = FAMILIES[name]
    return AutoConfig.for_model(kind, **changes)


@functools.cache
def card_of(name: str) -> ModelCard:
    """An entry of the catalogue."""
    return Catalog().load_model(name)


def entry_config(name: str) -> Any:
    """The config of an entry; skips where it is in a package that was not fetched."""
    card = card_of(name)
    if not card.config and card.weights_dir is None:
        pytest.skip(f"{name} states no config: it lies in a package that is to be fetched")
    return config_of(card, None if card.config else Location(str(card.weights_dir)))


def config_named(name: str) -> Any:
    """The config of an entry (``models/<entry>``) or of a family."""
    entry = name.removeprefix("models/")
    return family_config(name) if entry == name else entry_config(entry)


def toy_named(name: str, seed: int = 0) -> Any:
    """A random model at toy size."""
    return toy(config_named(name), seed)


def subjects(entries_too: bool = True, fast: tuple[str, ...] = EVERYWHERE) -> list[Any]:
    """All names for parametrisation; what the default run leaves out is marked slow.

    The default run tries the families ``fast``, and the entries where ``entries_too``.
    """
    entries = [f"models/{name}" for name in Catalog().list("model")]
    at_once = {*fast, *(entries if entries_too else ())}
    return [
        name if name in at_once else pytest.param(name, marks=pytest.mark.slow)
        for name in (*entries, *FAMILIES)
    ]
