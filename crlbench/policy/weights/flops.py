"""What a token costs a model: coefficients of its forward pass, found without its weights.

torch's FlopCounterMode counts the products of the model of a config on the device ``meta``, at a
few lengths that separate what grows with tokens from what grows with their contexts. The counter
misses grouped products, so a mixture of experts is charged by its active weights. Products of
quantised weights count as those of the matrices that they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from crlbench.contract.charges import Coefficients
from crlbench.errors import ValidationError
from crlbench.policy.adapters import lora_config
from crlbench.policy.forward import is_stateful
from crlbench.policy.weights.shape import EXPERTS, parameter_totals, skeleton

LENGTHS = (1, 2, 4)
"""Row lengths that are counted."""
CHUNKS = ("mamba_chunk_size", "chunk_size")
"""How configs call the tokens that a layer with a state works on at once."""


_measured: dict[tuple[type, str, str], Coefficients] = {}
"""What was found in this process: by class and fields of a config, and by adapter."""


def measure_flops(config: Any, adapter: Mapping[str, Any] | None = None) -> Coefficients:
    """The coefficients of a model's forward pass, counted once for equal configs.

    Stages of a chain and the checks of a stored run ask for those of one model again and again.

    Args:
        config: of transformers, as :func:`~crlbench.policy.weights.shape.config_of` gives.
        adapter: rank and targets of the LoRA that it is trained by.

    Raises:
        ValidationError: the counts at three lengths are of no such form.
    """
    fields = config.to_json_string(use_diff=False)
    key = (type(config), fields, json.dumps(adapter and dict(adapter), sort_keys=True))
    if key not in _measured:
        _measured[key] = _measure(config, adapter)
    return _measured[key]


def _measure(config: Any, adapter: Mapping[str, Any] | None) -> Coefficients:
    model: Any = skeleton(config)
    text = config.get_text_config(decoder=True)
    head, states = model.get_output_embeddings(), is_stateful(model)
    chunk = _chunk(text) if states else 1
    experts = any(getattr(text, name, None) for name in EXPERTS)
    if experts and not states:
        token, context, fixed = _by_formula(model, config), _attention(text), 0
    else:
        token, context, fixed = _separated([_count(model, text, n) for n in LENGTHS])
    return Coefficients(
        token=token,
        context=context,
        head=2 * head.weight.numel(),
        value=2 * head.weight.shape[1],
        padded=round(fixed / chunk),
        chunk=chunk,
        adapter=0 if adapter is None else _adapter(model, dict(adapter)),
        shares=not states,
        source="formula" if experts and not states else "counter",
    )


def _count(model: Any, text: Any, length: int) -> int:
    """FLOPs of the layers over one row of tokens."""
    with torch.device("meta"), torch.no_grad():
        ids = torch.zeros(1, length, dtype=torch.int64)
        # A finished mask: making one reads numbers, which tensors without memory have not.
        seen = torch.ones(1, 1, length, length, dtype=torch.bool)
        kinds = set(getattr(text, "layer_types", None) or ())
        masks: Any = {kind: seen for kind in kinds} if len(kinds) > 1 else seen
        options = {} if is_stateful(model) else {"attention_mask": masks}
        with FlopCounterMode(display=False) as counter:
            model.get_decoder()(input_ids=ids, position_ids=ids, use_cache=False, **options)
    return counter.get_total_flops()


def _separated(counts: list[int]) -> tuple[int, int, int]:
    """FLOPs a token, a token and context token, and a row, from rows of 1, 2 and 4 tokens."""
    one, two, four = counts
    context = (four - 3 * two + 2 * one) / 6
    token = two - one - 3 * context
    fixed = one - token - context
    if token <= 0 or context < 0 or fixed < 0:
        raise ValidationError(
            f"rows of {', '.join(map(str, LENGTHS))} tokens cost {counts} FLOPs, which is no sum "
            "of tokens, contexts and rows: this architecture cannot be charged."
        )
    return round(token), round(context), round(fixed)


def _chunk(text: Any) -> int:
    return next((int(n) for name in CHUNKS if (n := getattr(text, name, None))), 1)


def _by_formula(model: Any, config: Any) -> int:
    """Two for every active weight that multiplies: all but looked-up and output embeddings."""
    _, active = parameter_totals(config)
    tables = {id(m.weight): m.weight.numel() for m in _tables(model)}
    return 2 * (active - sum(tables.values()))


def _tables(model: Any) -> list[Any]:
    looked_up = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return [*looked_up, model.get_output_embeddings()]


def _attention(text: Any) -> int:
    """Four times layers and width: queries with keys, weights with values, multiply and add."""
    heads = text.num_attention_heads
    if (value := getattr(text, "v_head_dim", None)) is not None:
        width = text.qk_nope_head_dim + text.qk_rope_head_dim + value
        return 2 * text.num_hidden_layers * heads * width
    each = getattr(text, "head_dim", None) or text.hidden_size // heads
    return 4 * text.num_hidden_layers * heads * each


def _adapter(model: nn.Module, adapter: dict[str, Any]) -> int:
    """Two for every weight of the low-rank matrices beside the layers that have them."""
    wanted = lora_config(model, {"alpha": 1, **adapter}).target_modules
    names = {wanted} if isinstance(wanted, str) else set(wanted or ())
    total = 0
    for name, module in model.named_modules():
        if name in names or any(name.endswith(f".{one}") for one in names):
            weight: Any = module.weight
            total += 2 * adapter["rank"] * sum(weight.shape)
    return total
