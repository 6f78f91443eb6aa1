"""The rows of a decode loop by the fused passes of :mod:`crlbench.policy.fused`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from crlbench.policy.attention import attend
from crlbench.policy.forward import positions, prompt_sight
from crlbench.policy.fused import Map, apply_linear, decoder_states
from crlbench.policy.recording import Recording
from crlbench.types import PromptBatch


class FusedRows:
    """:class:`crlbench.policy.decode.rows.Rows` whose caches are one tensor.

    A row that leaves is overwritten by the last row, so that no other row moves.
    """

    def __init__(
        self,
        backbone: Any,
        batch: PromptBatch,
        group: Tensor,
        max_tokens: int,
        recording: Recording | None = None,
    ) -> None:
        """Run each prompt once and branch it into its rows; ``group`` (B,) names the prompts.

        What linear layers put out goes into a ``recording``, if one is given.
        """
        self.backbone = backbone
        self.recording = recording
        if recording is not None:
            prompts = batch.prompt_ids, batch.prompt_mask
            recording.begin(*prompts, group, max_tokens - 1)
        self.length = batch.prompt_ids.shape[1]
        """Tokens of the prompts and all that were appended."""
        config = backbone.config.get_text_config()
        heads = config.num_key_value_heads
        width = backbone.get_decoder().layers[0].self_attn.head_dim
        capacity = self.length + max_tokens
        self.store = torch.empty(
            (config.num_hidden_layers, 2, len(group), heads, capacity, width), dtype=torch.float32
        )
        """Keys and values of every layer, row and token."""
        self.slots = torch.arange(len(group))
        """Where each row that is still here lies in the store."""
        self.inhabitants = torch.arange(len(group))
        """Which row lies at each place of the store."""
        self.mask = batch.prompt_mask.new_ones((len(group), capacity))
        self.mask[:, : self.length] = batch.prompt_mask[group]
        self.padded = not bool(batch.prompt_mask.all())
        self.places = batch.prompt_mask[group].sum(1, keepdim=True)
        sight = prompt_sight(batch.prompt_mask)

        def attention(
            number: int, module: Any, query: Tensor, key: Tensor, value: Tensor
        ) -> Tensor:
            for kind, some in enumerate((key, value)):
                self.store[number, kind, :, :, : self.length] = some[group]
            return attend(module, query, key, value, sight, scaling=module.scaling)[0]

        ids, places = batch.prompt_ids, positions(batch.prompt_mask)
        apply: Map = apply_linear if recording is None else recording.of_prompts
        self.states = decoder_states(backbone, ids, places, attention, apply)[group, -1]

    def keep(self, left: Tensor) -> None:
        """See :class:`crlbench.policy.decode.rows.Rows`."""
        count, kept = len(left), self.slots[left]
        free = torch.ones(count, dtype=torch.bool)
        free[kept[kept < count]] = False
        holes, late = free.nonzero().squeeze(1), kept >= count
        movers = kept[late]
        if len(movers):
            filled = self.store[..., : self.length, :]
            filled[:, :, holes] = filled[:, :, movers]
            for of_row in (self.mask, self.places, self.inhabitants):
                of_row[holes] = of_row[movers]
        self.slots = kept.clone()
        self.slots[late] = holes
        self.places, self.inhabitants = self.places[:count], self.inhabitants[:count]

    def append(self, taken: Tensor) -> None:
        """See :class:`crlbench.policy.decode.rows.Rows`."""
        ids = torch.empty_like(taken)
        ids[self.slots] = taken
        apply: Map = apply_linear
        if self.recording is not None:
            apply = self.recording.of_tokens(self.inhabitants, ids)
        self.length += 1
        states = decoder_states(self.backbone, ids.unsqueeze(1), self.places, self._attend, apply)
        self.states, self.places = states[self.slots, -1], self.places + 1

    def _attend(
        self, number: int, module: Any, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """What one new token of every row reads: heads that share keys are tokens of one head."""
        (rows, _, _, width), heads = query.shape, key.shape[1]
        layer = self.store[number, :, :rows, :, : self.length]
        layer[0, :, :, -1:], layer[1, :, :, -1:] = key, value
        sight = self.mask[:rows, None, None, : self.length] if self.padded else None
        with torch.autocast("cpu", enabled=False):
            read = scaled_dot_product_attention(
                query.reshape(rows, heads, -1, width),
                layer[0],
                layer[1],
                attn_mask=sight,
                scale=module.scaling,
            )
        return read.reshape(rows, 1, -1, width)
