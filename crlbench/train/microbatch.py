"""Micro-batches: how many tokens a pass may hold, and which rows go together.

The numbers of an optimizer step do not depend on it: the denominators are the whole step's,
so losses and gradients of the parts add up. Only rounding differs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crlbench.types import Rollout

ACTIVATION_BYTES = {"cpu": 1024 * 1024 * 1024, "cuda": 8 * 1024 * 1024 * 1024}
"""What a backward pass may keep of its forward pass, by device."""
VECTORS = 12
"""Vectors of the width of the model that a layer keeps of a token."""
WIDE_VECTORS = 4
"""Vectors of the width of the feed-forward network that a layer keeps of a token."""


def token_budget(config: Any, device: str) -> int:
    """Tokens, prompts and padding included, of which a pass may keep the activations.

    An estimate from the width and depth of the model, in float32; never below 64.
    """
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    wide = max(wide) if isinstance(wide, (list, tuple)) else wide
    floats = config.num_hidden_layers * (VECTORS * config.hidden_size + WIDE_VECTORS * wide)
    return max(64, ACTIVATION_BYTES[device] // (4 * floats))


def divided(rollout: Rollout, rows: Tensor, budget: int) -> list[Tensor]:
    """Partition ``rows`` (n,) int64 of a rollout into micro-batches of at most ``budget`` tokens.

    A micro-batch runs each of its prompts once and pads its completions to the longest, so rows
    of one prompt belong together, and so do rows of one length. Of two orders, whole prompts by
    their longest completion or rows by their own, the one that runs fewer tokens is taken. A
    row that exceeds the budget alone is a micro-batch of its own.
    """
    lengths = rollout.completion_mask.sum(1)[rows].tolist()
    prompts = rollout.prompts[rows].tolist()
    count = _Count(lengths, prompts, rollout.prompt_ids.shape[1])
    plans = [count.filled(units, budget) for units in (count.groups(budget), count.rows())]
    best = min(plans, key=lambda plan: sum(map(count.tokens, plan)))
    return [rows[torch.tensor(sorted(part), device=rows.device)] for part in best]


class _Count:
    """What parts of a list of rows cost."""

    def __init__(self, lengths: list[int], prompts: list[int], prompt_length: int) -> None:
        self.lengths = lengths
        self.prompts = prompts
        self.prompt_length = prompt_length

    def tokens(self, part: list[int]) -> int:
        """Tokens that a pass over some rows runs, padding included."""
        width = max(self.lengths[i] for i in part)
        return len({self.prompts[i] for i in part}) * self.prompt_length + len(part) * width

    def rows(self) -> list[list[int]]:
        """Every row by itself, short ones first."""
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], i))
        return [[i] for i in order]

    def groups(self, budget: int) -> list[list[int]]:
        """The rows of every prompt, in halves of halves where they exceed the budget."""
        of: dict[int, list[int]] = {}
        for i in self.rows():
            of.setdefault(self.prompts[i[0]], []).append(i[0])
        units, waiting = [], list(of.values())
        while waiting:
            unit = waiting.pop()
            if len(unit) > 1 and self.tokens(unit) > budget:
                middle = len(unit) // 2
                waiting += [unit[:middle], unit[middle:]]
            else:
                units.append(unit)
        return sorted(units, key=lambda unit: (max(self.lengths[i] for i in unit), unit))

    def filled(self, units: list[list[int]], budget: int) -> list[list[int]]:
        """Units in their order, as many together as the budget admits."""
        parts: list[list[int]] = []
        for unit in units:
            if parts and self.tokens(parts[-1] + unit) <= budget:
                parts[-1] = parts[-1] + unit
            else:
                parts.append(unit)
        return parts
