"""What is known of an architecture without its weights: the config, and a model without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from crlbench.base.wording import one_line
from crlbench.contract.model_card import ModelCard
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.policy.weights.load import Location, check_bounds, read_config

ROUTED = (".experts.", "block_sparse_moe.input_linear", "block_sparse_moe.output_linear")
"""What the names of weights hold that stand for all experts of a layer together."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""How configs call the number of experts of a layer."""
SHAPING = (
    *("vocab_size", "hidden_size", "n_embd", "intermediate_size", "n_inner", "ffn_dim"),
    *("shared_intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"),
    *("block_ff_dim", "block_auto_adjust_ff_dim", "block_multiple_of", "block_ffn_dim_multiplier"),
    *("num_hidden_layers", "n_layer", "num_attention_heads", "n_head", "num_key_value_heads"),
    *("head_dim", "partial_rotary_factor", "rotary_pct", "rotary_dim"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *(*EXPERTS, "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group"),
    *("first_k_dense_replace", "mlp_only_layers", "decoder_sparse_step"),
    *("mamba_d_ssm", "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups"),
    *("mamba_d_conv", "mamba_expand", "mamba_rms_norm", "conv_L_cache", "conv_bias"),
    *("layer_types", "full_attn_idxs", "attn_layer_indices", "sliding_window"),
    *("use_sliding_window", "position_embedding_type", "attention_bias", "mlp_bias"),
    *("max_position_embeddings", "n_positions", "tie_word_embeddings"),
)
"""Fields of a ``config.json`` that an entry states where the file has them, in this order."""
UNSHAPING = {
    *("architectures", "auto_map", "dtype", "torch_dtype", "model_type", "transformers_version"),
    *("use_cache", "bos_token_id", "eos_token_id", "initializer_range", "quantization_config"),
}
"""Fields that an entry never states."""


def config_of(card: ModelCard, location: Location | None) -> Any:
    """The transformers config of a model: that of its entry, else that of its checkpoint.

    ``location`` may be None where the entry states its config.

    Raises:
        ValidationError: the installed transformers does not know the architecture, or a field.
    """
    try:
        if card.config:
            check_bounds(card.config, f"model '{card.slug}': field config")
            return _made(card.config)
        if location is None:
            raise ValueError("neither the entry nor a checkpoint says what it is")
        return read_config(card, location)
    except CrlbenchError:
        raise
    except Exception as error:  # readers of configs raise whatever they trip over
        raise ValidationError(
            f"model '{card.slug}': its architecture cannot be read: {one_line(error)}"
        ) from error


def skeleton(config: Any) -> nn.Module:
    """The model of a config on the device ``meta``: every shape, no memory, no numbers."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def parameter_totals(config: Any) -> tuple[int, int]:
    """Parameters of a model, and how many of them one token uses: all but idle experts."""
    sizes = {name: p.numel() for name, p in skeleton(config).named_parameters()}
    total = sum(sizes.values())
    routed = sum(size for name, size in sizes.items() if any(part in name for part in ROUTED))
    text = config.get_text_config()
    experts = next((n for name in EXPERTS if (n := getattr(text, name, None))), 0)
    if not experts:
        return total, total
    idle = 1 - text.num_experts_per_tok / experts
    return total, total - round(routed * idle)


def shaping_fields(config: Any, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a ``config.json`` (``raw``) that an entry states under ``[config]``.

    These are the fields of :data:`SHAPING`; if a model made of them alone would have other weights
    or other kinds of layers than that of ``config``, all others too that are not the defaults.

    Raises:
        ValidationError: not even those make the same model.
    """
    kind = {"model_type": raw["model_type"]}
    usual = AutoConfig.for_model(raw["model_type"]).to_dict()
    possible = {
        name: "none" if value is None else value
        for name, value in raw.items()
        if _can_be_stated(value) or (value is None and usual.get(name) is not None)
    }
    chosen = {name: possible[name] for name in SHAPING if name in possible}
    rest = {n: v for n, v in possible.items() if n not in UNSHAPING and not n.startswith("_")}
    structure = _structure(config)
    for fields in (chosen, chosen | rest):
        if _structure_of(kind | fields) == structure:
            return kind | _without_defaults(kind, fields, structure)
    raise ValidationError(
        f"the architecture '{raw['model_type']}': its config.json has fields that decide shapes"
        " and that TOML cannot hold; write the table [config] by hand"
    )


def _made(stated: Mapping[str, Any]) -> Any:
    """The config of stated fields; the word ``none`` stands for null, which TOML lacks."""
    fields: dict[str, Any] = {
        name: None if value == "none" else value for name, value in stated.items()
    }
    return AutoConfig.for_model(fields.pop("model_type"), **fields)


def _without_defaults(kind: dict[str, Any], fields: dict[str, Any], shape: Any) -> dict[str, Any]:
    """The fields without lists and switches that say what the architecture does anyway."""
    for name, value in list(fields.items()):
        if isinstance(value, list) or (value is False and name != "tie_word_embeddings"):
            fewer = {other: fields[other] for other in fields if other != name}
            if _structure_of(kind | fewer) == shape:
                fields = fewer
    return fields


def same_structure(one: Any, other: Any) -> bool:
    """Whether models of two configs have the same weights and the same kinds of layers."""
    return _structure(one) == _structure(other)


def _can_be_stated(value: Any) -> bool:
    """Whether TOML has it: no null, no list of tables."""
    if isinstance(value, list):
        return all(isinstance(inner, bool | int | float | str) for inner in value)
    if isinstance(value, dict):
        return all(map(_can_be_stated, value.values()))
    return isinstance(value, bool | int | float | str)


def _structure_of(fields: Mapping[str, Any]) -> Any:
    try:
        return _structure(_made(fields))
    except Exception:  # configs raise whatever they trip over; the others may make them whole
        return None


def _structure(config: Any) -> Any:
    """What two configs share whose models run the same code on the same shapes."""
    text = config.get_text_config()
    shapes = {name: tuple(p.shape) for name, p in skeleton(config).named_parameters()}
    return shapes, getattr(text, "layer_types", None), getattr(text, "sliding_window", None)
