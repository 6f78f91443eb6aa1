"""Passes of a backbone over prompts and completions, by way of a transformers cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import get_layer_types_and_kwargs

from crlbench.policy.attention import NAME, Packing, use_float32_attention_on_cpu
from crlbench.policy.device import to_device

use_float32_attention_on_cpu()


def positions(mask: Tensor) -> Tensor:
    """(B, L) int64 position ids that count real tokens only; (B, L) bool ``mask``."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def prefill(
    backbone: Any, ids: Tensor, mask: Tensor, cache: DynamicCache | None = None
) -> tuple[Tensor, DynamicCache]:
    """Run prompts (P, L) once: hidden state of the last token (P, 1, H) and the cache."""
    cache = DynamicCache(config=backbone.config) if cache is None else cache
    return extend(backbone, ids, mask, cache, positions(mask))[:, -1:], cache


def extend(
    backbone: Any, ids: Tensor, mask: Tensor, cache: DynamicCache, position_ids: Tensor
) -> Tensor:
    """Run the next tokens (B, t) over the cache: their hidden states (B, t, H)."""
    output = backbone.get_decoder()(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
    )
    return output.last_hidden_state


@contextlib.contextmanager
def sparse_lookups(backbone: Any) -> Iterator[None]:
    """On the CPU, the gradient of looking tokens up in passes inside is rows, not a whole matrix.

    Where the head shares the embedding's weight alone: the gradient of the head is a whole
    matrix anyway, to which rows are added. Of itself it would stay sparse, which no optimizer
    expects.
    """
    table, head = backbone.get_input_embeddings(), backbone.get_output_embeddings()
    tied = isinstance(table, nn.Embedding) and table.weight is getattr(head, "weight", None)
    if not tied or table.weight.device.type != "cpu":
        yield
        return
    before, table.sparse = table.sparse, True
    try:
        yield
    finally:
        table.sparse = before


def branch(cache: DynamicCache, group: Tensor, each: int | None) -> None:
    """Give every row (B,) of ``group`` the cache of its prompt, with a gradient.

    ``each`` is the number of rows of every prompt where these are equally many, by prompt.
    """
    if each is not None:
        # Its gradient is a sum, not a scatter.
        cache.batch_repeat_interleave(each)
    else:
        cache.batch_select_indices(group)


STATEFUL = {"linear_attention", "conv", "hybrid", "hybrid_sliding"}
"""Kinds of layers that keep a state in place of tokens."""


def is_stateful(backbone: Any) -> bool:
    """Whether some layer sums up what it has read: a state space, a convolution, linear attention.

    Such a layer continues its state by one token at a time; it cannot see two rows apart in one.
    """
    kinds = get_layer_types_and_kwargs(backbone.config.get_text_config(decoder=True))[0]
    return bool(getattr(backbone, "_is_stateful", False)) or not STATEFUL.isdisjoint(kinds)


def states_packed(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor
) -> Tensor:
    """(B, T, H) as :func:`states_shared`: a row is a prompt, then its completions.

    One pass instead of two multiplies larger matrices, and adds up every weight's gradient once.
    """
    (prompts, length), each = prompt_ids.shape, len(ids) // len(prompt_ids)
    read = mask[:, :-1]
    ends = prompt_mask.sum(1).repeat_interleave(each)[:, None]
    places = torch.cat([positions(prompt_mask), _in_rows(ends + positions(read), prompts)], dim=1)
    states = backbone.get_decoder()(
        input_ids=torch.cat([prompt_ids, _in_rows(ids[:, :-1], prompts)], dim=1),
        # Taken for a finished mask, of a shape that fails in any attention that would read it.
        attention_mask=prompt_mask.new_ones((prompts, 1, 0, 0)),
        position_ids=places,
        use_cache=False,
        packing=_packing_of(prompt_mask, read),
    ).last_hidden_state
    first = states[:, length - 1 : length].repeat_interleave(each, dim=0)
    rest = states[:, length:].reshape(len(ids), -1, states.shape[-1])
    return torch.cat([first, rest], dim=1)


Packed = Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor]
"""A way to compute what :func:`states_packed` computes."""


def states_shared(
    backbone: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    ids: Tensor,
    mask: Tensor,
    group: Tensor,
    packed: Packed = states_packed,
) -> Tensor:
    """(B, T, H): the state that predicts each completion token; each prompt is run once.

    ``packed`` runs rows that stand by prompt, equally many of each. :func:`states_packed` cannot
    continue a state space by many tokens at once, so that with it such rows are run whole.
    """
    # Asked before they are moved: on the host it needs no wait.
    even, own = in_groups(group, len(prompt_ids)), packed is not states_packed
    if (stateful := is_stateful(backbone)) and not (own and even):
        return states_plain(backbone, prompt_ids, prompt_mask, ids, mask, group)
    prompt_ids, prompt_mask, ids, mask, group = on_device_of(
        backbone, prompt_ids, prompt_mask, ids, mask, group
    )
    several = ids.shape[1] > 1 or stateful
    length = prompt_ids.shape[1] + ids.shape[1]
    if several and even and (own or can_pack(backbone, length)):
        return packed(backbone, prompt_ids, prompt_mask, ids, mask)
    last, cache = prefill(backbone, prompt_ids, prompt_mask)
    first = last.index_select(0, group)
    if ids.shape[1] == 1:
        return first
    branch(cache, group, len(group) // len(prompt_ids) if even else None)
    whole = torch.cat([prompt_mask[group], mask], dim=1)[:, :-1]
    places = positions(whole)[:, prompt_ids.shape[1] :]
    return torch.cat([first, extend(backbone, ids[:, :-1], whole, cache, places)], dim=1)


def on_device_of(backbone: Any, *tensors: Tensor) -> list[Tensor]:
    """The tensors where a backbone reads them."""
    device = backbone.get_input_embeddings().weight.device
    return [to_device(x, device) for x in tensors]


def can_pack(backbone: Any, length: int) -> bool:
    """Whether a pass over ``length`` tokens may hold a prompt and its completions in one row.

    Only where tokens meet in attention alone, by way of transformers' ``sdpa``, and every token
    sees all before it.
    """
    config = backbone.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    window = getattr(config, "sliding_window", None)
    return (
        config._attn_implementation == NAME
        and backbone._supports_attention_backend
        and kinds <= {"full_attention"}
        and (window is None or window >= length)
    )


def _packing_of(prompt_mask: Tensor, mask: Tensor) -> Packing:
    """What sees what, from (P, L) and (B, t) bool masks of real tokens."""
    each, length = len(mask) // len(prompt_mask), prompt_mask.shape[1]
    itself = torch.eye(length, dtype=torch.bool, device=mask.device)
    earlier = torch.ones_like(itself).tril()
    # Padding sees itself, because attention to nothing is no number.
    prompts = (earlier & prompt_mask[:, None, :]) | itself
    causal = mask.new_ones((mask.shape[1], mask.shape[1])).tril()
    shared = prompt_mask.repeat_interleave(each, dim=0)[:, None, :].expand(-1, len(causal), -1)
    rows = torch.cat([shared, causal.expand(len(mask), -1, -1)], dim=2)
    return Packing(length, each, prompts[:, None], rows[:, None])


def _in_rows(x: Tensor, prompts: int) -> Tensor:
    """(P * G, t) as (P, G * t)."""
    return x.reshape(prompts, -1)


def in_groups(group: Tensor, prompts: int) -> bool:
    """Whether rows stand by prompt, equally many of each."""
    even = torch.arange(prompts, device=group.device).repeat_interleave(len(group) // prompts)
    return torch.equal(group, even)


def states_plain(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H) as :func:`states_shared`, by one pass over whole rows."""
    prompt_ids, prompt_mask, ids, mask, group = on_device_of(
        backbone, prompt_ids, prompt_mask, ids, mask, group
    )
    whole = torch.cat([prompt_mask[group], mask], dim=1)
    output = backbone.get_decoder()(
        input_ids=torch.cat([prompt_ids[group], ids], dim=1),
        attention_mask=whole,
        position_ids=positions(whole),
        use_cache=False,
    )
    # A slice would make the head copy its weight matrix once per row.
    return output.last_hidden_state[:, prompt_ids.shape[1] - 1 : -1].contiguous()
