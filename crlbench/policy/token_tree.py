"""Prompts and their completions as a tree of tokens, each of which is run once.

Prompts of a task begin alike: what all of them begin with is the trunk. What is left of each
prompt hangs on it, and on that hang its completions. All tokens stand in one row, trunk first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from crlbench.policy.attention import attend_whole
from crlbench.policy.forward import positions


@dataclass(frozen=True)
class TokenTree:
    """A trunk of C tokens, P prompts of at most L more, and P * G completions of t tokens."""

    trunk_ids: Tensor
    """(C,) int64; none where prompts have nothing in common."""
    prompt_ids: Tensor
    """(P, L) int64, left padded; at least one token of each prompt is real."""
    prompt_mask: Tensor
    """(P, L) bool."""
    ids: Tensor
    """(P * G, t) int64, right padded; t may be 0."""
    mask: Tensor
    """(P * G, t) bool."""

    @staticmethod
    def of(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> TokenTree:
        """The tree of left-padded prompts (P, L) and of completions (P * G, t) by prompt."""
        lengths = prompt_mask.sum(1)
        trunk = _common(prompt_ids, prompt_mask) if len(prompt_ids) > 1 else 0
        width = int(lengths.max()) - trunk
        rest = prompt_mask & (positions(prompt_mask) >= trunk)
        first = prompt_ids[0, prompt_mask[0]][:trunk]
        return TokenTree(first, prompt_ids[:, -width:], rest[:, -width:], ids, mask)

    @property
    def trunk(self) -> int:
        """C."""
        return len(self.trunk_ids)

    @property
    def each(self) -> int:
        """G."""
        return len(self.ids) // len(self.prompt_ids)

    @property
    def stem(self) -> int:
        """Tokens of the trunk and of all prompts, padding included; completions follow them."""
        return self.trunk + self.prompt_ids.numel()

    @cached_property
    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions (C,), (P, L) and (P * G, t) int64 of the tokens in their rows."""
        ends = self.trunk + self.prompt_mask.sum(1).repeat_interleave(self.each)[:, None]
        return (
            torch.arange(self.trunk),
            self.trunk + positions(self.prompt_mask),
            ends + positions(self.mask),
        )

    def in_one_row(self, parts: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """(1, N) from what belongs to trunk, prompts and completions."""
        return torch.cat([part.reshape(-1) for part in parts]).unsqueeze(0)

    @property
    def row(self) -> Tensor:
        """(1, N) int64: the tokens."""
        return self.in_one_row((self.trunk_ids, self.prompt_ids, self.ids))

    @cached_property
    def sights(self) -> tuple[Tensor, Tensor, Tensor]:
        """What tokens see: (1, 1, C, C), (P, 1, L, C + L) and (P * G, 1, t, C + L + t) bool."""
        length, tokens = self.prompt_ids.shape[1], self.ids.shape[1]
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

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What every token reads (1, N, heads, width), from (1, heads, N, width)."""
        trunks, prompts, rows = zip(*(self.split(x) for x in (query, key, value)), strict=True)
        causal, of_prompts, of_completions = self.sights
        shared = [x.expand(len(self.prompt_ids), -1, -1, -1) for x in trunks[1:]]
        stems = [torch.cat(pair, dim=2) for pair in zip(shared, prompts[1:], strict=True)]
        reads = []
        if self.trunk:
            reads.append(_read(module, trunks[0], trunks[1:], causal))
        reads.append(_read(module, prompts[0], stems, of_prompts))
        if self.ids.shape[1]:
            whole = [
                torch.cat([stem.repeat_interleave(self.each, dim=0), own], dim=2)
                for stem, own in zip(stems, rows[1:], strict=True)
            ]
            reads.append(_read(module, rows[0], whole, of_completions))
        return torch.cat([read.flatten(0, 1) for read in reads]).unsqueeze(0)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1, heads, N, width) as (1, heads, C, width), (P, heads, L, width) and
        (P * G, heads, t, width)."""
        heads, width = x.shape[1], x.shape[3]
        trunk, prompts, rows = x[0].split(
            [self.trunk, self.prompt_ids.numel(), self.ids.numel()], dim=1
        )
        return (
            trunk.unsqueeze(0),
            prompts.view(heads, len(self.prompt_ids), -1, width).transpose(0, 1),
            rows.reshape(heads, len(self.ids), self.ids.shape[1], width).transpose(0, 1),
        )

    def states_of_rows(self, states: Tensor) -> Tensor:
        """(P * G, t + 1, H): the states that predict the tokens of each row and one more, from
        all states (1, N, H)."""
        prompts = states[0, self.trunk : self.stem].unflatten(0, (len(self.prompt_ids), -1))
        first = prompts[:, -1:].repeat_interleave(self.each, dim=0)
        rest = states[0, self.stem :].reshape(len(self.ids), -1, states.shape[-1])
        return torch.cat([first, rest], dim=1)


def _read(module: Any, query: Tensor, pair: Sequence[Tensor], sight: Tensor) -> Tensor:
    """(rows, t, heads, width): what queries read of keys and values."""
    key, value = pair
    return attend_whole(module, query, key, value, sight, scaling=module.scaling)


def _common(ids: Tensor, mask: Tensor) -> int:
    """How many tokens left-padded prompts have in common at their beginning; each has more."""
    rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    count = 0
    for column in zip(*(row[:-1] for row in rows), strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count
