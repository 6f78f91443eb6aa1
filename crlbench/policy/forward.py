"""Passes of a backbone over prompts and completions, by way of a transformers cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from crlbench.policy.attention import use_float32_attention_on_cpu

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


def branch(cache: DynamicCache, group: Tensor, prompts: int) -> None:
    """Give every row (B,) of ``group`` the cache of its prompt, with a gradient."""
    each = len(group) // prompts
    if torch.equal(group, torch.arange(prompts, device=group.device).repeat_interleave(each)):
        cache.batch_repeat_interleave(each)  # its gradient is a sum, not a scatter
    else:
        cache.batch_select_indices(group)


def states_shared(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H): the state that predicts each completion token; each prompt is run once."""
    last, cache = prefill(backbone, prompt_ids, prompt_mask)
    first = last.index_select(0, group)
    if ids.shape[1] == 1:
        return first
    branch(cache, group, len(prompt_ids))
    whole = torch.cat([prompt_mask[group], mask], dim=1)[:, :-1]
    places = positions(whole)[:, prompt_ids.shape[1] :]
    return torch.cat([first, extend(backbone, ids[:, :-1], whole, cache, places)], dim=1)


def states_plain(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H) as :func:`states_shared`, by one pass over whole rows."""
    whole = torch.cat([prompt_mask[group], mask], dim=1)
    output = backbone.get_decoder()(
        input_ids=torch.cat([prompt_ids[group], ids], dim=1),
        attention_mask=whole,
        position_ids=positions(whole),
        use_cache=False,
    )
    # A slice would make the head copy its weight matrix once per row.
    return output.last_hidden_state[:, prompt_ids.shape[1] - 1 : -1].contiguous()
