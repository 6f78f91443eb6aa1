"""The rows that a decode loop still extends, and the key-value cache behind them."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from crlbench.policy.cache import roomy_cache, select_rows
from crlbench.policy.forward import extend, prefill
from crlbench.types import PromptBatch


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
        """Of the prompts and all tokens appended."""
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
        seen = self.mask[:, : self.length]
        states = extend(self.backbone, taken.unsqueeze(1), seen, self.cache, self.places)
        self.states, self.places = states[:, -1], self.places + 1
