"""The rows that a decode loop still extends, and a key-value cache with room for whole completions.

No token copies the cache.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
)

from crlbench.policy.forward import extend, prefill
from crlbench.policy.head import at_least_float32
from crlbench.types import PromptBatch


class RoomyLayer(DynamicLayer):
    """A dynamic layer that writes new tokens into space that it holds already.

    ``keys`` and ``values`` (B, heads, length, width) are views of what is filled.
    """

    def __init__(self, capacity: int, **options: Any) -> None:
        super().__init__(**options)
        self.capacity = capacity
        """Tokens."""
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.key_store, self.value_store = (
            x.new_empty((*x.shape[:2], self.capacity, x.shape[3]), dtype=held_type(x))
            for x in (key_states, value_states)
        )

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append (B, heads, t, width) and return everything so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.key_store[:, :, self.length : end] = key_states
        self.value_store[:, :, self.length : end] = value_states
        self.length = end
        return self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows ``indices`` (b,), in that order; a row may be named repeatedly."""
        self.key_store, self.value_store = self.key_store[indices], self.value_store[indices]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys = self.key_store[:, :, : self.length]
        self.values = self.value_store[:, :, : self.length]
        return self.keys, self.values


def held_type(x: Tensor) -> torch.dtype:
    """The type in which a cache holds keys or values ``x``.

    It is that in which attention reads them (:mod:`crlbench.policy.attention`): cast when it is
    written, a token is cast once and not again for every token that follows it.
    """
    device = x.device.type
    if device == "cpu":
        return at_least_float32(x[:0]).dtype
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def roomy_cache(config: Any, capacity: int) -> DynamicCache:
    """A cache for ``capacity`` tokens; layers of another kind than plain attention keep theirs."""
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer(capacity) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


def select_rows(cache: DynamicCache, rows: Tensor) -> None:
    """Keep the rows ``rows`` (b,) of a cache, in that order; a row may be named repeatedly."""
    for layer in cache.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.reorder_cache(rows)  # type: ignore[arg-type]  # stub
        else:
            layer.batch_select_indices(rows)  # type: ignore[union-attr]  # stub


class Rows(Protocol):
    """Rows in decoding; b of them are still here."""

    states: Tensor
    """(b, H): the hidden state that predicts the next token of each row."""

    def keep(self, left: Tensor) -> None:
        """Let all rows go but those at the places ``left`` (n,), ascending.

        ``states`` is stale until the next :meth:`append`.
        """
        ...

    def append(self, taken: Tensor) -> None:
        """Extend every row by one token, ``taken`` (b,)."""
        ...


class GrowingRows:
    """Rows whose tensors shrink when rows leave and whose cache shows what is filled."""

    def __init__(self, backbone: Any, batch: PromptBatch, group: Tensor, max_tokens: int) -> None:
        """Run each prompt once and branch it into its rows; ``group`` (B,) names the prompts."""
        self.backbone = backbone
        self.length = batch.prompt_ids.shape[1]
        """Tokens of the prompts and all that were appended."""
        capacity = self.length + max_tokens
        cache = roomy_cache(backbone.config, capacity)
        states, self.cache = prefill(backbone, batch.prompt_ids, batch.prompt_mask, cache)
        select_rows(self.cache, group)
        self.states = states[group, -1]
        self.mask = batch.prompt_mask.new_ones((len(group), capacity))
        self.mask[:, : self.length] = batch.prompt_mask[group]
        self.places = batch.prompt_mask[group].sum(1, keepdim=True)

    def keep(self, left: Tensor) -> None:
        """See :class:`Rows`."""
        self.mask, self.places = self.mask[left], self.places[left]
        select_rows(self.cache, left)

    def append(self, taken: Tensor) -> None:
        """See :class:`Rows`."""
        self.length += 1
        mask = self.mask[:, : self.length]
        states = extend(self.backbone, taken.unsqueeze(1), mask, self.cache, self.places)
        self.states, self.places = states[:, -1], self.places + 1
