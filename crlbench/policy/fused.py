"""The decoder of a model of the Llama family, layer by layer, without the modules' own passes.

Llama, Mistral and Qwen2 share one layer: root mean square norm, rotary positions, heads that may
share keys, and SwiGLU. Its arithmetic is that of transformers' modules up to rounding. Weights
stay where they are, so that an adapter, a cast for decoding and an optimizer step count at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from crlbench.policy.attention import NAME
from crlbench.policy.head import at_least_float32, product_dtype
from crlbench.policy.operations import rms_norm, rotate, swiglu
from crlbench.policy.token_tree import TokenTree

LAYERS = (LlamaDecoderLayer, MistralDecoderLayer, Qwen2DecoderLayer)
ROPE = ("default", "linear", "llama3")
"""Kinds of positions whose angles do not depend on the longest row."""

Map = Callable[[int, str, Any, Tensor], Tensor]
"""From a layer's number, the name of one of its linear layers, that module and its input: what it
puts out."""
Attention = Callable[[int, Any, Tensor, Tensor, Tensor], Tensor]
"""From a layer's number, its attention module, queries (rows, heads, q, width), keys and values
(rows, key heads, t, width): what every query reads, (rows, q, heads, width)."""
OF_ALL = ("k_proj", "v_proj")
"""The linear layers of the last decoder layer that run for every token: others may read them."""


def serves(backbone: Any) -> bool:
    """Whether :func:`decoder_states` computes what a backbone computes.

    Its layers must be of the family, without a sliding window, on the CPU and not quantised; its
    linear layers must be plain ones, with an adapter of plain ones at most.
    """
    decoder = backbone.get_decoder()
    layers = getattr(decoder, "layers", ())
    config = backbone.config.get_text_config()
    return (
        len(layers) > 0
        and all(type(layer) in LAYERS for layer in layers)
        and config._attn_implementation == NAME
        and config.hidden_act == "silu"
        and getattr(config, "sliding_window", None) is None
        and decoder.rotary_emb.rope_type in ROPE
        and getattr(backbone, "hf_quantizer", None) is None
        and not any(hasattr(module, "unshard") for module in backbone.modules())  # FSDP2
        and all(p.device.type == "cpu" for p in backbone.parameters())
        and all(_is_plain(module) for layer in layers for module in linear_modules(layer).values())
    )


def linear_modules(layer: Any) -> dict[str, Any]:
    """The linear layers of a decoder layer by name."""
    of_attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    of_mlp = ("gate_proj", "up_proj", "down_proj")
    return {name: getattr(layer.self_attn, name) for name in of_attention} | {
        name: getattr(layer.mlp, name) for name in of_mlp
    }


def _is_plain(module: Any) -> bool:
    if type(module) is nn.Linear:
        return True
    if type(getattr(module, "base_layer", None)) is not nn.Linear:
        return False
    return (
        len(module.active_adapters) == 1
        and not module.merged
        and not module.lora_variant
        and not any(module.lora_bias.values())
        and all(type(dropout) is nn.Identity for dropout in module.lora_dropout.values())
    )


def apply_linear(_: int, _name: str, module: Any, x: Tensor) -> Tensor:
    """A linear layer, with its adapter if that is on: the change is added by the product."""
    if type(module) is nn.Linear:
        return module(x)
    out = module.base_layer(x)
    small = adapted(module, x)
    if small is None:
        return out
    wide = lora_out(module)
    return torch.addmm(out.flatten(0, -2), small.flatten(0, -2), wide.t()).view_as(out)


def adapted(module: Any, x: Tensor) -> Tensor | None:
    """(..., rank), scaled: what an adapter that is on makes of an input; None without one."""
    if type(module) is nn.Linear or module.disable_adapters:
        return None
    (name,) = module.active_adapters
    return module.lora_A[name](x) * module.scaling[name]


def lora_out(module: Any) -> Tensor:
    """(out, rank): the second matrix of an adapter."""
    (name,) = module.active_adapters
    return module.lora_B[name].weight


def decoder_states(
    backbone: Any,
    ids: Tensor,
    places: Tensor,
    attention: Attention,
    apply: Map = apply_linear,
    predictors: Tensor | None = None,
) -> Tensor:
    """(rows, n, H): the states of tokens (rows, t) at positions (rows, t), after the last norm.

    ``attention`` says what a token sees; ``apply`` runs the linear layers. States are those of the
    tokens at ``predictors`` (n,) of a row, or of all: the last layer runs for the others only as
    far as these read them.
    """
    decoder = backbone.get_decoder()
    x = decoder.embed_tokens(ids)
    # Angles are in the type of what they are made for: attention reads float32.
    angles = decoder.rotary_emb(at_least_float32(x[..., :1]), position_ids=places)
    cos, sin = (angle.unsqueeze(2) for angle in angles)
    last = len(decoder.layers) - 1
    for number, layer in enumerate(decoder.layers):
        by_number = partial(attention, number), partial(apply, number)
        x = _layer(layer, x, cos, sin, *by_number, predictors if number == last else None)
    norm = decoder.norm
    return rms_norm(x, norm.weight, norm.variance_epsilon, x.dtype)


def _layer(
    layer: Any,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    attention: Callable[..., Tensor],
    apply: Callable[..., Tensor],
    predictors: Tensor | None,
) -> Tensor:
    """(rows, n, H) after one layer, of the tokens at ``predictors``; angles (rows, t, 1, width)."""
    dtype = product_dtype(x)
    attend, norm = layer.self_attn, layer.input_layernorm
    h = rms_norm(x, norm.weight, norm.variance_epsilon, dtype)

    def heads(name: str) -> Tensor:
        return apply(name, getattr(attend, name), h).unflatten(-1, (-1, attend.head_dim))

    key, value = rotate(heads("k_proj"), cos, sin), heads("v_proj")
    if predictors is not None:
        x, h, cos, sin = (y.index_select(1, predictors) for y in (x, h, cos, sin))
    query = rotate(heads("q_proj"), cos, sin)
    read = attention(attend, *(y.transpose(1, 2) for y in (query, key, value)))
    x = x + apply("o_proj", attend.o_proj, read.flatten(2).to(dtype))
    norm, mlp = layer.post_attention_layernorm, layer.mlp
    h = rms_norm(x, norm.weight, norm.variance_epsilon, dtype)
    gate, up = (apply(name, getattr(mlp, name), h) for name in ("gate_proj", "up_proj"))
    return x + apply("down_proj", mlp.down_proj, swiglu(gate, up))


def tree_states(
    backbone: Any,
    tree: TokenTree,
    apply: Map = apply_linear,
    look: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """(1, n, H): the states of a tree's tokens at :attr:`TokenTree.predictors`; ``apply`` runs the
    linear layers.

    ``look`` is shown each layer's keys and values, (1, key heads, N, width).
    """
    last = backbone.config.get_text_config().num_hidden_layers - 1

    def attention(number: int, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if look is not None:
            look(number, key, value)
        read = tree.attend_predictors if number == last else tree.attend
        return read(module, query, key, value)

    places = tree.in_one_row(tree.places)
    return decoder_states(backbone, tree.row, places, attention, apply, tree.predictors)


def tree_of(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> TokenTree:
    """What is run of prompts (P, L) and completions (P * G, T): all but their last tokens, which
    count as padding in shorter rows."""
    run = torch.arange(ids.shape[1] - 1) < mask.sum(1, keepdim=True) - 1
    return TokenTree.of(prompt_ids, prompt_mask, ids[:, :-1], run)


def fused_states(backbone: Any, *batch: Tensor) -> Tensor:
    """As :func:`crlbench.policy.forward.states_packed`."""
    tree = tree_of(*batch)
    return tree.states_of_rows(tree_states(backbone, tree))
