"""AdamW that remembers its last step, and the path of the weights: how far steps go and turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from crlbench.contract.sizes import PART_FLOATS, REMEMBERED


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
                    # The fused kernel writes past autograd: who keeps products must see it.
                    torch.autograd.graph.increment_version(part)
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


Weights = dict[str, Tensor]


class Displacement:
    """Norms of the steps of all trainable weights, and cosines between successive ones.

    Holds the last step that moved anything. Of a model of more than REMEMBERED weights it holds
    every k-th weight of every tensor, and the cosine is that of those weights.
    """

    def __init__(self) -> None:
        self.last: Weights | None = None

    def measure(self, step: Weights) -> dict[str, float]:
        """``update_norm`` and ``update_cosine`` of a step; weights that have none were not moved.

        The cosine is NaN for the first step, and for one that moved nothing, which is passed
        over: the next step is compared with the one before it.
        """
        squared = dot(step, step)
        figures = {"update_norm": math.sqrt(squared), "update_cosine": math.nan}
        if not 0.0 < squared < math.inf:
            return figures
        sample = thin(step)
        if self.last is not None:
            product = math.sqrt(dot(sample, sample) * dot(self.last, self.last))
            cosine = dot(sample, self.last) / product if product else math.nan
            figures["update_cosine"] = max(-1.0, min(1.0, cosine))
        self.last = sample
        return figures

    def load(self, last: Weights | None, device: torch.device | str) -> None:
        """Continue after ``last``."""
        self.last = None if last is None else {n: t.to(device) for n, t in last.items()}


def thin(step: Weights) -> Weights:
    """Every k-th entry of every tensor, with the smallest k that leaves at most REMEMBERED."""
    stride = math.ceil(sum(t.numel() for t in step.values()) / REMEMBERED)
    return {name: t.flatten()[::stride].clone() for name, t in step.items()}


def dot(a: Weights, b: Weights) -> float:
    """Inner product over the weights of both: float32 within a tensor, float64 across tensors."""
    parts = [torch.dot(a[n].flatten(), b[n].flatten()) for n in a if n in b]
    return float(torch.stack(parts).double().sum()) if parts else 0.0
