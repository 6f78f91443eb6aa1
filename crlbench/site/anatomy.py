"""What a model is built of, as the config of its checkpoint states it.

Only the config is read, never the name of a model; its ``model_type`` says what a class of
transformers always has and no field states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crlbench.base.wording import listed
from crlbench.contract.model_card import ModelCard
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import ValidationError

CONFIG = "config.json"
MAX_BYTES = 1 << 20
STATELESS = (
    *("architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *("classifier_dropout", "is_decoder", "output_router_logits", "pretraining_tp"),
)
"""Fields that say nothing about shape."""
HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head")
PARALLEL = ("phi",)
"""Model types whose attention and feed-forward read the same input, without a field for it."""
BIASED = ("phi", "qwen2")
"""Model types whose queries, keys and values have biases, without a field for it."""


@dataclass(frozen=True)
class Anatomy:
    """A design in words; empty where the config is silent."""

    kind: str
    """``LlamaForCausalLM``: the class that it is loaded as."""
    attention: str
    positions: str
    norm: str
    feed_forward: str
    kv_heads: int | None
    layers: int | None
    width: int | None
    config: Mapping[str, Any]


def anatomy(card: ModelCard) -> Anatomy | None:
    """The design of an entry of the catalogue; None where no config of it is at hand.

    Raises:
        ValidationError: a bundled config is damaged.
    """
    config = _config(card)
    return None if config is None else describe(config)


def _config(card: ModelCard) -> Mapping[str, Any] | None:
    path = None if card.weights_dir is None else card.weights_dir / CONFIG
    if path is None or not path.is_file():
        return card.config or None
    try:
        config = json_value(read_bytes(path, MAX_BYTES))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise ValidationError(f"{path}: is no table of fields")
    return config


def describe(config: Mapping[str, Any]) -> Anatomy:
    """The words for a config."""
    classes = config.get("architectures")
    kind = classes[0] if isinstance(classes, list) and classes else config.get("model_type", "")
    heads = _number(config, HEADS)
    return Anatomy(
        kind=str(kind),
        attention=_attention(config, heads),
        positions=_positions(config),
        norm=_norm(config),
        feed_forward=_feed_forward(config),
        kv_heads=config.get("num_key_value_heads", heads),
        layers=_number(config, LAYERS),
        width=_number(config, HIDDEN),
        config={name: value for name, value in config.items() if name not in STATELESS},
    )


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def _attention(config: Mapping[str, Any], heads: int | None) -> str:
    key_heads = config.get("num_key_value_heads", heads)
    if config.get("kv_lora_rank"):
        numbers = config["kv_lora_rank"] + config.get("qk_rope_head_dim", 0)
        words = [f"latent: {heads} heads on {numbers} cached numbers"]
    elif heads is None:
        words = []
    elif key_heads == heads:
        words = [f"{heads} heads, each with its own keys"]
    else:
        name = "multi-query" if key_heads == 1 and heads > 3 else "grouped-query"
        words = [f"{name}: {heads} heads on {key_heads}"]
    words += _windows(config)
    if config.get("attn_logit_softcapping"):
        words.append("soft-capped")
    if config.get("attention_bias") or config.get("model_type") in BIASED:
        words.append("with biases")
    return ", ".join(words)


def _windows(config: Mapping[str, Any]) -> list[str]:
    """Layers that see less than everything, or that do not attend."""
    kinds = config.get("layer_types")
    kinds = kinds if isinstance(kinds, list) else []
    states = [str(i) for i, kind in enumerate(kinds, 1) if kind in ("linear_attention", "mamba")]
    words = []
    if states:
        what = "state space" if config.get("mamba_d_state") else "linear attention"
        words.append(f"{_layers(states)} {what} instead")
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window") is not False:
        local = [str(i) for i, kind in enumerate(kinds, 1) if kind == "sliding_attention"]
        if local and len(local) < len(kinds):
            words.append(f"{_layers(local)} the last {window} positions")
        elif local or not kinds:
            words.append(f"the last {window} positions")
    return words


def _layers(numbers: list[str]) -> str:
    return f"layer{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _positions(config: Mapping[str, Any]) -> str:
    if config.get("position_embedding_type") == "nope":
        return "none"
    rope = config.get("rope_parameters")
    rope = rope if isinstance(rope, Mapping) else {}
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if config.get("qk_rope_head_dim"):
        whole = config["qk_rope_head_dim"] + config.get("qk_nope_head_dim", 0)
        return f"rotary on {config['qk_rope_head_dim']} of {whole}"
    if rope or "rope_theta" in config:
        heads, width = _number(config, HEADS), _number(config, HIDDEN)
        size = config.get("head_dim") or (width // heads if heads and width else None)
        return f"rotary on {round(size * share)} of {size}" if share < 1 and size else "rotary"
    return "learned" if "n_positions" in config else ""


def _norm(config: Mapping[str, Any]) -> str:
    words = []
    if "rms_norm_eps" in config:
        words.append("RMSNorm")
    elif {"layer_norm_eps", "layer_norm_epsilon"} & config.keys():
        words.append("LayerNorm")
    if config.get("use_parallel_residual") or config.get("model_type") in PARALLEL:
        words.append("attention beside feed-forward")
    if config.get("final_logit_softcapping"):
        words.append("capped logits")
    return ", ".join(words)


def _feed_forward(config: Mapping[str, Any]) -> str:
    act = config.get("hidden_activation") or config.get("hidden_act") or ""
    experts = config.get("n_routed_experts") or config.get("num_local_experts")
    if experts:
        width = config.get("moe_intermediate_size") or config.get("intermediate_size")
        common = config.get("n_shared_experts")
        more = f" and {common} shared" if common else ""
        active = config.get("num_experts_per_tok")
        return f"{act}, {active} of {experts} experts{more}, {width} wide"
    width = config.get("shared_intermediate_size") or config.get("intermediate_size")
    return f"{act}, {width} wide" if width else str(act)
