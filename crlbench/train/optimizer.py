"""AdamW that remembers where its last step went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

PART_FLOATS = 1 << 25
"""Weights that are copied at once to see where a step goes (128 MiB in float32)."""


class TracedAdamW(torch.optim.AdamW):
    """AdamW that leaves the step of every weight in the place of its gradient.

    A step needs a copy of the weights before it; only a part of them is copied at a time, and
    the gradient, which is of no use any more, gives its memory to the step.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; afterwards ``grad`` of every weight is new - old."""
        loss = None if closure is None else closure()
        groups = self.param_groups
        try:
            for group in groups:
                for part in _parts(group["params"]):
                    before = [p.detach().clone() for p in part]
                    self.param_groups = [{**group, "params": part}]
                    super().step()
                    for parameter, old in zip(part, before, strict=True):
                        torch.sub(parameter.detach(), old, out=parameter.grad)
        finally:
            self.param_groups = groups
        return loss


def _parts(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters with a gradient, in parts of at most PART_FLOATS or of one parameter."""
    part: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if part and size + parameter.numel() > PART_FLOATS:
            yield part
            part, size = [], 0
        part.append(parameter)
        size += parameter.numel()
    if part:
        yield part
