"""Decoder layers of the families that the fused passes serve, without the modules' own passes.

Their arithmetic is that of transformers' modules up to rounding. Weights stay where they are, so
that an adapter, a cast for decoding and an optimizer step count at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3DecoderLayer,
    DeepseekV3MLP,
)
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXLayer
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import (
    GraniteMoeHybridDecoderLayer,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.phi.modeling_phi import PhiDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from crlbench.policy.attention import NAME
from crlbench.policy.head import at_least_float32, product_dtype
from crlbench.policy.operations import rms_norm, rotate, swiglu
from crlbench.policy.state_space import gated_norm

Map = Callable[[int, str, Any, Tensor], Tensor]
"""From a layer's number, the name of one of its linear layers, that module and its input: what it
puts out."""
OF_ALL = (
    *("k_proj", "v_proj", "query_key_value"),
    *("in_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
)
"""The linear layers of the last decoder layer that run for every token: others may read them."""
GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh"}
"""The kind of ``torch``'s GELU by the name that a config gives the activation."""


class Past(Protocol):
    """What the tokens of a pass see of one another and of what came before."""

    def attend(
        self, number: int, module: Any, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """What every query of a layer reads, (rows, q, heads, width), from queries
        (rows, heads, q, width), keys and values (rows, key heads, t, width)."""
        ...

    def mix(self, number: int, module: Any, inputs: Tensor, step: Tensor) -> Tensor:
        """What the heads of a state-space mixer put out, (rows, q, inner), from the inputs of its
        convolution (rows, t, channels) and its steps (rows, t, heads)."""
        ...


@dataclass(frozen=True)
class Place:
    """A layer in a pass over tokens (rows, t)."""

    number: int
    map: Map
    past: Past
    angles: tuple[Tensor, ...]
    """Cosines and sines (rows, t, 1, width) of the tokens' positions; none where the model has no
    rotary positions."""
    predictors: Tensor | None
    """(q,) int64: tokens of a row that the layer runs for; it makes what they read of all. None
    where it runs for all."""

    def apply(self, name: str, module: Any, x: Tensor) -> Tensor:
        """What one of the layer's linear layers puts out."""
        return self.map(self.number, name, module, x)

    def some(self, x: Tensor) -> Tensor:
        """(rows, q, ...): what belongs to the tokens that the layer runs for."""
        return x if self.predictors is None else x.index_select(1, self.predictors)

    def turn(self, x: Tensor, some: bool = False) -> Tensor:
        """Heads (rows, t, heads, width) at their positions; ``some`` where there are q tokens."""
        if not self.angles:
            return x
        cos, sin = map(self.some, self.angles) if some else self.angles
        return rotate(x, cos, sin)

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(rows, q, heads, width): what tokens read, from (rows, tokens, heads, width)."""
        heads = (y.transpose(1, 2) for y in (query, key, value))
        return self.past.attend(self.number, module, *heads)


@dataclass(frozen=True)
class Family:
    """How the decoder layers of some models are run."""

    linear: Callable[[Any], dict[str, Any]]
    """The linear layers of a decoder layer by name."""
    run: Callable[[Any, Tensor, Place], Tensor]
    """(rows, q, H) after a layer, from (rows, t, H) before it."""
    embed: Callable[[Any, Tensor], Tensor]
    """(rows, t, H): the inputs of the first layer, from a decoder and tokens."""
    norm: Callable[[Any, Tensor], Tensor]
    """States after the last norm of a decoder."""
    fits: Callable[[Any, Any], bool]
    """Whether a config and a layer ask for nothing else than ``run`` does."""
    attention: str = NAME
    """What transformers calls the attention whose numbers are those of ``run``."""
    windows: bool = False
    """Whether layers may see a sliding window alone, as their attention modules say."""


def family_of(decoder: Any) -> Family | None:
    """The family of which all layers of a decoder are; None where these are of no one family."""
    kinds = {type(layer) for layer in getattr(decoder, "layers", ())}
    families = {FAMILIES.get(kind, None) for kind in kinds}
    return families.pop() if len(families) == 1 else None


def linear_modules(layer: Any) -> dict[str, Any]:
    """The linear layers of a decoder layer by name."""
    return FAMILIES[type(layer)].linear(layer)


def mixer_of(layer: Any) -> Any:
    """The state-space mixer that a layer has instead of attention; None where it attends."""
    return getattr(layer, "mamba", None)


def _named(module: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


def _rms(norm: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    return rms_norm(x, norm.weight, norm.variance_epsilon, dtype)


def _final_rms(decoder: Any, x: Tensor) -> Tensor:
    return _rms(decoder.norm, x, x.dtype)


def _separate_heads(attend: Any, h: Tensor, place: Place) -> Tensor:
    """What tokens (rows, q) read, (rows, q, heads * width), by three linear layers of ``h``."""

    def heads(name: str, x: Tensor) -> Tensor:
        module = getattr(attend, name)
        return place.apply(name, module, x).unflatten(-1, (-1, attend.head_dim))

    key, value = place.turn(heads("k_proj", h)), heads("v_proj", h)
    query = place.turn(heads("q_proj", place.some(h)), some=True)
    return place.attend(attend, query, key, value).flatten(2)


# Llama, Mistral and Qwen2: root mean square norm, rotary positions, SwiGLU.


def _llama_linear(layer: Any) -> dict[str, Any]:
    of_attention = _named(layer.self_attn, "q_proj", "k_proj", "v_proj", "o_proj")
    return of_attention | _named(layer.mlp, "gate_proj", "up_proj", "down_proj")


def _llama(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, attend, mlp = product_dtype(x), layer.self_attn, layer.mlp
    read = _separate_heads(attend, _rms(layer.input_layernorm, x, dtype), place)
    x = place.some(x) + place.apply("o_proj", attend.o_proj, read.to(dtype))
    h = _rms(layer.post_attention_layernorm, x, dtype)
    gate, up = (place.apply(name, getattr(mlp, name), h) for name in ("gate_proj", "up_proj"))
    return x + place.apply("down_proj", mlp.down_proj, swiglu(gate, up))


def _is_silu(config: Any, _: Any) -> bool:
    return config.hidden_act == "silu"


# GraniteMoeHybrid without experts: layers of attention and of state-space mixers.


def _hybrid_linear(layer: Any) -> dict[str, Any]:
    mixer = mixer_of(layer)
    if mixer is None:
        first = _named(layer.self_attn, "q_proj", "k_proj", "v_proj", "o_proj")
    else:
        first = _named(mixer, "in_proj", "out_proj")
    return first | _named(layer.shared_mlp, "input_linear", "output_linear")


def _hybrid(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, mixer, mlp = product_dtype(x), mixer_of(layer), layer.shared_mlp
    scale, h = layer.residual_multiplier, _rms(layer.input_layernorm, x, dtype)
    if mixer is None:
        read = _separate_heads(layer.self_attn, h, place).to(dtype)
        out = place.apply("o_proj", layer.self_attn.o_proj, read)
    else:
        widths = [mixer.intermediate_size, mixer.conv_dim, mixer.num_heads]
        gate, inputs, step = place.apply("in_proj", mixer.in_proj, h).split(widths, dim=-1)
        read = place.past.mix(place.number, mixer, inputs, step)
        normed = gated_norm(mixer.norm, read, place.some(gate), dtype)
        out = place.apply("out_proj", mixer.out_proj, normed)
    x = torch.add(place.some(x), out, alpha=scale)
    h = _rms(layer.post_attention_layernorm, x, dtype)
    gate, up = place.apply("input_linear", mlp.input_linear, h).chunk(2, dim=-1)
    out = place.apply("output_linear", mlp.output_linear, swiglu(gate, up))
    return torch.add(x, out, alpha=scale)


def _embed_hybrid(decoder: Any, ids: Tensor) -> Tensor:
    return decoder.embed_tokens(ids) * decoder.embedding_multiplier


def _fits_hybrid(config: Any, layer: Any) -> bool:
    return (
        config.hidden_act == "silu"
        and not layer.has_experts
        and not config.attention_dropout
        and tuple(map(float, config.time_step_limit)) == (0.0, float("inf"))
    )


# GPT-NeoX: layer norms, one linear layer for all heads, partly rotary positions.


def _gelu(config: Any, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate=GELU[config.hidden_act])


def _layer_norm(norm: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    return functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(
        dtype
    )


def _neox_linear(layer: Any) -> dict[str, Any]:
    of_attention = _named(layer.attention, "query_key_value", "dense")
    return of_attention | _named(layer.mlp, "dense_h_to_4h", "dense_4h_to_h")


def _neox(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, attend, mlp = product_dtype(x), layer.attention, layer.mlp
    h = _layer_norm(layer.input_layernorm, x, dtype)
    heads = place.apply("query_key_value", attend.query_key_value, h)
    query, key, value = heads.unflatten(-1, (-1, 3 * attend.head_size)).chunk(3, dim=-1)
    query = place.turn(place.some(query), some=True)
    read = place.attend(attend, query, place.turn(key), value).flatten(2)
    x = place.some(x)
    after = x + place.apply("dense", attend.dense, read.to(dtype))
    seen = x if layer.use_parallel_residual else after
    h = _layer_norm(layer.post_attention_layernorm, seen, dtype)
    h = _gelu(attend.config, place.apply("dense_h_to_4h", mlp.dense_h_to_4h, h))
    return after + place.apply("dense_4h_to_h", mlp.dense_4h_to_h, h)


def _fits_neox(config: Any, _: Any) -> bool:
    return config.hidden_act in GELU and not config.hidden_dropout and not config.attention_dropout


# Phi: one layer norm, attention and the feed-forward network side by side.


def _phi_linear(layer: Any) -> dict[str, Any]:
    of_attention = _named(layer.self_attn, "q_proj", "k_proj", "v_proj", "dense")
    return of_attention | _named(layer.mlp, "fc1", "fc2")


def _phi(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, attend, mlp = product_dtype(x), layer.self_attn, layer.mlp
    h = _layer_norm(layer.input_layernorm, x, dtype)
    read = _separate_heads(attend, h, place)
    after = place.some(x) + place.apply("dense", attend.dense, read.to(dtype))
    h = _gelu(attend.config, place.apply("fc1", mlp.fc1, place.some(h)))
    return after + place.apply("fc2", mlp.fc2, h)


def _fits_phi(config: Any, _: Any) -> bool:
    dropouts = (config.resid_pdrop, config.embd_pdrop, config.attention_dropout)
    return config.hidden_act in GELU and not any(dropouts) and not config.qk_layernorm


# Gemma 2: norms before and after each half, GELU in the gate, capped scores, sliding windows.


def _rms_from_1(norm: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """A norm whose weights are stored as what they differ from 1."""
    return rms_norm(x, 1 + at_least_float32(norm.weight), norm.eps, dtype)


def _gemma(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, attend, mlp = product_dtype(x), layer.self_attn, layer.mlp
    read = _separate_heads(attend, _rms_from_1(layer.input_layernorm, x, dtype), place)
    out = place.apply("o_proj", attend.o_proj, read.to(dtype))
    x = place.some(x) + _rms_from_1(layer.post_attention_layernorm, out, x.dtype)
    h = _rms_from_1(layer.pre_feedforward_layernorm, x, dtype)
    gate, up = (place.apply(name, getattr(mlp, name), h) for name in ("gate_proj", "up_proj"))
    out = place.apply("down_proj", mlp.down_proj, functional.gelu(gate, approximate="tanh") * up)
    return x + _rms_from_1(layer.post_feedforward_layernorm, out, x.dtype)


def _fits_gemma(config: Any, layer: Any) -> bool:
    return (
        config.hidden_activation == "gelu_pytorch_tanh"
        and layer.self_attn.is_causal
        and not config.attention_dropout
    )


# DeepSeek V3: keys and values from one short vector, and experts, whose modules run as they are.


def _latent_linear(layer: Any) -> dict[str, Any]:
    attend, mlp = layer.self_attn, layer.mlp
    queries = ("q_proj",) if attend.q_lora_rank is None else ("q_a_proj", "q_b_proj")
    of_attention = _named(attend, *queries, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    if type(mlp) is not DeepseekV3MLP:
        return of_attention
    return of_attention | _named(mlp, "gate_proj", "up_proj", "down_proj")


def _latent(layer: Any, x: Tensor, place: Place) -> Tensor:
    dtype, attend, mlp = product_dtype(x), layer.self_attn, layer.mlp
    read = _latent_attention(attend, _rms(layer.input_layernorm, x, dtype), place)
    x = place.some(x) + place.apply("o_proj", attend.o_proj, read.to(dtype))
    norm = layer.post_attention_layernorm
    if type(mlp) is not DeepseekV3MLP:
        return x + mlp(_rms(norm, x, x.dtype))
    h = _rms(norm, x, dtype)
    gate, up = (place.apply(name, getattr(mlp, name), h) for name in ("gate_proj", "up_proj"))
    return x + place.apply("down_proj", mlp.down_proj, swiglu(gate, up))


def _latent_attention(attend: Any, h: Tensor, place: Place) -> Tensor:
    """(rows, q, heads * width): what tokens read, from ``h`` (rows, t, H)."""
    widths = [attend.qk_nope_head_dim, attend.qk_rope_head_dim]
    some, dtype = place.some(h), h.dtype
    if attend.q_lora_rank is None:
        query = place.apply("q_proj", attend.q_proj, some)
    else:
        short = place.apply("q_a_proj", attend.q_a_proj, some)
        short = _rms(attend.q_a_layernorm, short, dtype)
        query = place.apply("q_b_proj", attend.q_b_proj, short)
    short = place.apply("kv_a_proj_with_mqa", attend.kv_a_proj_with_mqa, h)
    short, turning = short.split([attend.kv_lora_rank, widths[1]], dim=-1)
    pairs = place.apply("kv_b_proj", attend.kv_b_proj, _rms(attend.kv_a_layernorm, short, dtype))
    pairs = pairs.unflatten(-1, (attend.num_heads, -1))
    key, value = pairs.split([widths[0], attend.v_head_dim], dim=-1)
    pairwise = attend.config.rope_interleave
    turned = place.turn(_halves(turning.unsqueeze(2), pairwise))
    key = torch.cat([key, turned.expand(-1, -1, attend.num_heads, -1)], dim=-1)
    still, turning = query.unflatten(-1, (attend.num_heads, -1)).split(widths, dim=-1)
    query = torch.cat([still, place.turn(_halves(turning, pairwise), some=True)], dim=-1)
    # Values as wide as keys, which the fast kernels of attention ask for.
    wide = functional.pad(value, (0, key.shape[-1] - value.shape[-1]))
    return place.attend(attend, query, key, wide)[..., : value.shape[-1]].flatten(2)


def _halves(x: Tensor, pairwise: bool) -> Tensor:
    """Heads whose coordinates stand in two halves. Those of queries and of keys may be put into
    any other order, which is one for both."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if pairwise else x


def _fits_latent(config: Any, layer: Any) -> bool:
    attend = layer.self_attn
    return (
        config.hidden_act == "silu"
        and not config.attention_dropout
        and attend.v_head_dim <= attend.qk_head_dim
    )


LLAMA = Family(_llama_linear, _llama, lambda d, ids: d.embed_tokens(ids), _final_rms, _is_silu)
FAMILIES: Mapping[type, Family] = {
    LlamaDecoderLayer: LLAMA,
    MistralDecoderLayer: LLAMA,
    Qwen2DecoderLayer: LLAMA,
    Gemma2DecoderLayer: Family(
        _llama_linear,
        _gemma,
        lambda d, ids: d.embed_tokens(ids),
        lambda d, x: _rms_from_1(d.norm, x, x.dtype),
        _fits_gemma,
        attention="eager",
        windows=True,
    ),
    DeepseekV3DecoderLayer: Family(
        _latent_linear, _latent, lambda d, ids: d.embed_tokens(ids), _final_rms, _fits_latent
    ),
    GraniteMoeHybridDecoderLayer: Family(
        _hybrid_linear, _hybrid, _embed_hybrid, _final_rms, _fits_hybrid
    ),
    GPTNeoXLayer: Family(
        _neox_linear,
        _neox,
        lambda d, ids: d.embed_in(ids),
        lambda d, x: _layer_norm(d.final_layer_norm, x, x.dtype),
        _fits_neox,
    ),
    PhiDecoderLayer: Family(
        _phi_linear,
        _phi,
        lambda d, ids: d.embed_tokens(ids),
        lambda d, x: _layer_norm(d.final_layernorm, x, x.dtype),
        _fits_phi,
    ),
}
"""By the class of their decoder layers."""
