"""Prompts and their completions as a tree of tokens, each of which is run once.

Prompts of a task begin alike: what all of them begin with is the trunk. Beyond it they part, and
what some of them begin with is a node, run once for all of those. Completions hang on the last
node of their prompt. All tokens stand in one row: trunk, nodes, completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crlbench.policy.attention import attend_capped, attend_whole, score_cap, window_of
from crlbench.policy.forward import positions


@dataclass(frozen=True)
class TokenTree:
    """A trunk of C tokens, M nodes of P prompts with at most L tokens more, and P * G completions
    of t tokens."""

    trunk_ids: Tensor
    """(C,) int64; none where prompts have nothing in common."""
    node_ids: Tensor
    """(M,) int64: the tokens of nodes, those that come earlier in their prompts first."""
    nodes: Tensor
    """(P, L) int64: the node at each place of a prompt, left padded with any."""
    prompt_mask: Tensor
    """(P, L) bool; at least one token of each prompt is real."""
    ids: Tensor
    """(P * G, t) int64, right padded; t may be 0."""
    mask: Tensor
    """(P * G, t) bool."""

    @staticmethod
    def of(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> TokenTree:
        """The tree of left-padded prompts (P, L) and of completions (P * G, t) by prompt."""
        lengths = prompt_mask.sum(1)
        count, longest = len(lengths), int(lengths.max())
        # From left to right: row i begins with its own first token.
        columns = torch.arange(longest) + (prompt_ids.shape[1] - lengths)[:, None]
        rows = prompt_ids.gather(1, columns.clamp(max=prompt_ids.shape[1] - 1))
        trunk = _common(rows[:, : int(lengths.min()) - 1]) if count > 1 else 0
        node_ids, nodes = map(
            torch.from_numpy, _branch(rows[:, trunk:].numpy(), (lengths - trunk).numpy())
        )
        # From right to left: a row ends with its own last token.
        places = torch.arange(longest - trunk) - (longest - lengths)[:, None]
        nodes = nodes.gather(1, places.clamp(min=0))
        return TokenTree(rows[0, :trunk], node_ids, nodes, places >= 0, ids, mask)

    @property
    def trunk(self) -> int:
        """C."""
        return len(self.trunk_ids)

    @property
    def each(self) -> int:
        """G."""
        return len(self.ids) // len(self.nodes)

    @property
    def stem(self) -> int:
        """Tokens of the trunk and of all nodes; completions follow them."""
        return self.trunk + len(self.node_ids)

    @property
    def prompt_ids(self) -> Tensor:
        """(P, L) int64: what is left of each prompt, left padded with any token."""
        return self.node_ids[self.nodes]

    @cached_property
    def firsts(self) -> Tensor:
        """(M,) int64: of the places of prompts, row by row, one at which each node stands."""
        places = self.prompt_mask.flatten().nonzero().squeeze(1).flip(0)
        firsts = torch.empty_like(self.node_ids)
        firsts[self.nodes.flatten()[places]] = places
        return firsts

    @cached_property
    def paths(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whole prompts, (P, C + L) int64: where their tokens stand in the one row, left padded
        with any; which are real, bool; and (C + M,) int64, where in all paths, one after the
        other, each token of trunk and nodes stands first."""
        prompts, length = self.nodes.shape
        whole = self.trunk + length
        columns = torch.arange(whole)
        missing = length - self.prompt_mask.sum(1, keepdim=True)
        places = columns - missing
        own = self.trunk + self.nodes[:, (columns - self.trunk).clamp(min=0)]
        paths = torch.where(places < self.trunk, places.clamp(min=0), own)
        of_trunk = torch.arange(self.trunk) + missing[0]
        rows, columns = self.firsts // length, self.firsts % length
        of_nodes = rows * whole + self.trunk + columns
        return paths, places >= 0, torch.cat([of_trunk, of_nodes])

    @cached_property
    def ends(self) -> Tensor:
        """(P,) int64: where the last token of each prompt stands in the one row."""
        return self.trunk + self.nodes[:, -1]

    @cached_property
    def predictors(self) -> Tensor:
        """(P + P * G * t,) int64: where the tokens stand whose states predict others."""
        return torch.cat([self.ends, torch.arange(self.stem, self.stem + self.ids.numel())])

    @cached_property
    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions (C,), (M,) and (P * G, t) int64 of the tokens in their rows."""
        ends = self.trunk + self.prompt_mask.sum(1).repeat_interleave(self.each)[:, None]
        return (
            torch.arange(self.trunk),
            self.trunk + positions(self.prompt_mask).flatten()[self.firsts],
            ends + positions(self.mask),
        )

    def in_one_row(self, parts: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """(1, N) from what belongs to trunk, nodes and completions."""
        return torch.cat([part.reshape(-1) for part in parts]).unsqueeze(0)

    @property
    def row(self) -> Tensor:
        """(1, N) int64: the tokens."""
        return self.in_one_row((self.trunk_ids, self.node_ids, self.ids))

    @cached_property
    def sights(self) -> tuple[Tensor, Tensor, Tensor]:
        """What tokens see: (1, 1, C, C), (P, 1, L, C + L) and (P * G, 1, t, C + L + t) bool."""
        length, tokens = self.nodes.shape[1], self.ids.shape[1]
        causal = torch.ones((self.trunk, self.trunk), dtype=torch.bool).tril()
        itself = torch.eye(length, dtype=torch.bool)
        # Padding sees itself, because attention to nothing is no number.
        own = (torch.ones_like(itself).tril() & self.prompt_mask[:, None, :]) | itself
        of_prompts = torch.nn.functional.pad(own, (self.trunk, 0), value=True)
        prompts = self.prompt_mask.repeat_interleave(self.each, dim=0)[:, None, :]
        before = torch.nn.functional.pad(prompts, (self.trunk, 0), value=True)
        after = torch.ones((tokens, tokens), dtype=torch.bool).tril()
        shapes = before.expand(-1, tokens, -1), after.expand(len(self.ids), -1, -1)
        of_completions = torch.cat(shapes, dim=2)
        return causal[None, None], of_prompts[:, None], of_completions[:, None]

    @cached_property
    def _longest(self) -> int:
        """Tokens of the longest row."""
        return 1 + max(int(places.max()) for places in self.places if places.numel())

    @cached_property
    def _within(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """What :meth:`_sights_of` found, by window."""
        return {}

    def _sights_of(self, module: Any) -> tuple[Tensor, Tensor, Tensor]:
        """:attr:`sights`, of what is inside the window of an attention module."""
        window = window_of(module)
        if window is None or window >= self._longest:
            return self.sights
        if window not in self._within:
            of_trunk, _, of_rows = self.places
            of_prompts = self.trunk + positions(self.prompt_mask)
            keys = torch.cat([of_trunk.expand(len(self.nodes), -1), of_prompts], dim=1)
            keys_of_rows = torch.cat([keys.repeat_interleave(self.each, dim=0), of_rows], dim=1)
            pairs = (of_trunk[None],) * 2, (of_prompts, keys), (of_rows, keys_of_rows)
            near = [(key[:, None] > query[:, :, None] - window)[:, None] for query, key in pairs]
            one, other, third = (x & y for x, y in zip(self.sights, near, strict=True))
            self._within[window] = one, other, third
        return self._within[window]

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What every token reads (1, N, heads, width), from (1, heads, N, width)."""
        trunk, prompts, rows = self.split(query)
        trunks, stems, whole = self._seen(key, value)
        causal, of_prompts, _ = self._sights_of(module)
        reads = []
        if self.trunk:
            reads.append(_read(module, trunk, trunks, causal).flatten(0, 1))
        of_places = _read(module, prompts, stems, of_prompts).flatten(0, 1)
        reads.append(of_places if self._apart else of_places.index_select(0, self.firsts))
        return self._with_completions(module, reads, rows, whole)

    def attend_predictors(self, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The same of the tokens at :attr:`predictors` alone, from their queries
        (1, heads, n, width) and from all keys and values."""
        _, stems, whole = self._seen(key, value)
        _, of_prompts, _ = self._sights_of(module)
        count = len(self.nodes)
        last = query[0, :, :count].transpose(0, 1).unsqueeze(2)
        reads = [_read(module, last, stems, of_prompts[:, :, -1:]).flatten(0, 1)]
        return self._with_completions(module, reads, self._rows(query[0, :, count:]), whole)

    def _seen(self, key: Tensor, value: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Keys and values that the trunk, prompts and completions see; completions may be none."""
        trunks, prompts, rows = zip(*(self.split(x) for x in (key, value)), strict=True)
        shared = [x.expand(len(self.nodes), -1, -1, -1) for x in trunks]
        stems = [torch.cat(pair, dim=2) for pair in zip(shared, prompts, strict=True)]
        whole = []
        if self.ids.shape[1]:
            whole = [
                torch.cat([stem.repeat_interleave(self.each, dim=0), own], dim=2)
                for stem, own in zip(stems, rows, strict=True)
            ]
        return list(trunks), stems, whole

    def _with_completions(
        self, module: Any, reads: list[Tensor], rows: Tensor, whole: list[Tensor]
    ) -> Tensor:
        """What stems read, (n, heads, width), and completions after it, in one row."""
        if whole:
            reads.append(_read(module, rows, whole, self._sights_of(module)[2]).flatten(0, 1))
        return torch.cat(reads).unsqueeze(0)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1, heads, N, width) as (1, heads, C, width), (P, heads, L, width) and
        (P * G, heads, t, width)."""
        trunk, nodes, rows = x[0].split(
            [self.trunk, len(self.node_ids), self.ids.numel()], dim=1
        )
        if not self._apart:
            nodes = nodes.index_select(1, self.nodes.flatten())
        prompts = nodes.unflatten(1, tuple(self.nodes.shape)).transpose(0, 1)
        return trunk.unsqueeze(0), prompts, self._rows(rows)

    def _rows(self, x: Tensor) -> Tensor:
        """(heads, P * G * t, width) as (P * G, heads, t, width)."""
        return x.reshape(x.shape[0], *self.ids.shape, x.shape[2]).transpose(0, 1)

    @cached_property
    def _apart(self) -> bool:
        """Whether nodes are the places of prompts, one after the other."""
        return torch.equal(self.nodes.flatten(), torch.arange(len(self.node_ids)))

    def states_of_rows(self, states: Tensor) -> Tensor:
        """(P * G, t + 1, H): the states that predict the tokens of each row and one more, from
        the states at :attr:`predictors` (1, P + P * G * t, H)."""
        count = len(self.nodes)
        first = states[0, :count].unsqueeze(1).repeat_interleave(self.each, dim=0)
        rest = states[0, count:].reshape(len(self.ids), -1, states.shape[-1])
        return torch.cat([first, rest], dim=1)


def _read(module: Any, query: Tensor, pair: Sequence[Tensor], sight: Tensor) -> Tensor:
    """(rows, t, heads, width): what queries read of keys and values."""
    key, value = pair
    if (cap := score_cap(module)) is not None:
        return attend_capped(module, query, key, value, sight, cap)
    return attend_whole(module, query, key, value, sight, scaling=module.scaling)


def _common(rows: Tensor) -> int:
    """How many tokens rows (P, n) have in common at their beginning."""
    return int((rows == rows[0]).all(0).long().cumprod(0).sum())


def _branch(rows: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of rows (P, L) of which the first ``lengths`` (P,) tokens count.

    Their tokens (M,), and which stands at each place (P, L), any where none does.
    """
    places = np.zeros_like(rows)
    tokens: list[np.ndarray] = []
    count, words = 0, int(rows.max()) + 1
    for place in range(rows.shape[1]):
        here = np.flatnonzero(lengths > place)
        before = places[here, place - 1] if place else np.zeros_like(here)
        keys = before * words + rows[here, place]
        distinct, places[here, place] = np.unique(keys, return_inverse=True)
        places[here, place] += count
        count += len(distinct)
        tokens.append(distinct % words)
    return np.concatenate(tokens), places
