"""Every architecture at toy size: those of all entries, and families that have none."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import pytest
from transformers import AutoConfig

from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard
from crlbench.policy.weights.load import Location
from crlbench.policy.weights.served import toy
from crlbench.policy.weights.shape import config_of

FULL = bool(os.environ.get("CRLBENCH_FULL"))
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
    """Names for parametrisation; what the default run leaves out is marked slow.

    The default run tries the families ``fast``, and all entries where ``entries_too``. The slow one
    tries one entry of each kind, all with full counts: most sizes of a design have one toy.
    """
    entries = Catalog().list("model")
    tried = entries if entries_too or FULL else one_of_each(entries)
    names = [*(f"models/{name}" for name in tried), *FAMILIES]
    at_once = {*fast, *(names[: len(tried)] if entries_too else ())}
    return [n if n in at_once else pytest.param(n, marks=pytest.mark.slow) for n in names]


def one_of_each(entries: list[str]) -> list[str]:
    """The first entry of each kind of config; its sizes are no part of a kind."""
    first: dict[Any, str] = {}
    for name in entries:
        card = card_of(name)
        config = card.config or json.loads((card.weights_dir / "config.json").read_text())
        heads, shared = (config.get(f"num_{n}_heads") for n in ("attention", "key_value"))
        kind = (
            *(config["model_type"], config.get("tie_word_embeddings"), shared in (None, heads)),
            *(shared == 1, "head_dim" in config, bool(config.get("sliding_window"))),
        )
        first.setdefault(kind, name)
    return [*first.values()]
