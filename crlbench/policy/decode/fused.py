"""The rows of a decode loop by the fused passes of :mod:`crlbench.policy.fused`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from crlbench.policy.attention import attend_capped, score_cap, window_of
from crlbench.policy.decode.state_rows import StateRows
from crlbench.policy.fused import apply_linear, decoder_states, tree_states
from crlbench.policy.fused_layers import Map, mixer_of
from crlbench.policy.recording import Recording
from crlbench.policy.token_tree import TokenTree
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
        nothing = torch.empty((len(group), 0), dtype=torch.int64)
        stem = batch.prompt_ids, batch.prompt_mask, nothing, nothing.bool()
        tree = TokenTree.of(*stem)
        width = tree.nodes.shape[1]
        self.length = tree.trunk + width
        """Tokens of the prompts and all that were appended."""
        self.capacity = self.length + max_tokens
        layers = backbone.get_decoder().layers
        attending = [i for i, layer in enumerate(layers) if mixer_of(layer) is None]
        self.shelves = {number: shelf for shelf, number in enumerate(attending)}
        """Where in the store each layer of attention has its keys and values."""
        self.store: Tensor
        """Keys and values of every such layer, row and token."""
        self.mixers: dict[int, StateRows] = {}
        """The states of the other layers, by number."""
        self.slots = torch.arange(len(group))
        """Where each row that is still here lies in the store."""
        self.inhabitants = torch.arange(len(group))
        """Which row lies at each place of the store."""
        self.mask = torch.ones((len(group), self.capacity), dtype=torch.bool)
        self.mask[:, tree.trunk : self.length] = tree.prompt_mask[group]
        self.padded = not bool(tree.prompt_mask.all())
        self.places = batch.prompt_mask[group].sum(1, keepdim=True)

        def look(number: int, *pair: Tensor) -> None:
            shelf = self.shelves[number]
            if not shelf:
                _, heads, _, head = pair[0].shape
                shape = len(self.shelves), 2, len(group), heads, self.capacity, head
                self.store = torch.empty(shape)
            for kind, some in enumerate(pair):
                trunk, prompts, _ = tree.split(some)
                self.store[shelf, kind, :, :, : tree.trunk] = trunk
                rows = prompts if len(group) == len(prompts) else prompts[group]
                self.store[shelf, kind, :, :, tree.trunk : self.length] = rows

        def look_at_state(number: int, state: Tensor, tail: Tensor) -> None:
            module = mixer_of(layers[number])
            self.mixers[number] = StateRows(module, state, tail, group, max_tokens)

        apply: Map = apply_linear
        if recording is not None:
            recording.begin(tree, max_tokens - 1)
            apply = recording.of_stem
        states = tree_states(backbone, tree, apply, look, look_at_state)
        self.states = tree.states_of_rows(states)[:, 0]

    def keep(self, left: Tensor) -> None:
        """See :class:`crlbench.policy.decode.rows.Rows`."""
        count, kept = len(left), self.slots[left]
        free = torch.ones(count, dtype=torch.bool)
        free[kept[kept < count]] = False
        holes, late = free.nonzero().squeeze(1), kept >= count
        movers = kept[late]
        if len(movers):
            if self.shelves:
                filled = self.store[..., : self.length, :]
                filled[:, :, holes] = filled[:, :, movers]
            for mixer in self.mixers.values():
                mixer.move(holes, movers)
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
        states = decoder_states(self.backbone, ids.unsqueeze(1), self.places, self, apply)
        self.states, self.places = states[self.slots, -1], self.places + 1

    def attend(
        self, number: int, module: Any, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """What one new token of every row reads: heads that share keys are tokens of one head."""
        (rows, _, _, width), heads = query.shape, key.shape[1]
        layer = self.store[self.shelves[number], :, :rows, :, : self.length]
        layer[0, :, :, -1:], layer[1, :, :, -1:] = key, value
        sight = self._sight(rows, window_of(module))
        if (cap := score_cap(module)) is not None:
            return attend_capped(module, query, layer[0], layer[1], sight, cap)
        with torch.autocast("cpu", enabled=False):
            read = scaled_dot_product_attention(
                query.reshape(rows, heads, -1, width),
                layer[0],
                layer[1],
                attn_mask=sight,
                scale=module.scaling,
            )
        return read.reshape(rows, 1, -1, width)

    def _sight(self, rows: int, window: int | None) -> Tensor | None:
        """(rows, 1, 1, length) bool: what the new tokens see; None where they see everything."""
        seen = self.mask[:rows, : self.length]
        if window is not None and window < self.length:
            seen = seen & (seen.cumsum(1) > self.places + 1 - window)
        elif not self.padded:
            return None
        return seen[:, None, None]

    def mix(self, number: int, module: Any, inputs: Tensor, step: Tensor) -> Tensor:
        """What the heads of a mixer put out for one new token of every row."""
        return self.mixers[number].mix(module, inputs, step, self.inhabitants)
