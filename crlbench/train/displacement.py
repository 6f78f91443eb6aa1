"""The path of the weights: how far each optimizer step goes, and whether it turns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]


class Displacement:
    """Norms of the steps of all trainable weights, and cosines between successive ones.

    Holds the last step that moved anything: with the copy taken before a step, two more copies
    of the trainable weights in memory.
    """

    def __init__(self) -> None:
        self.last: Weights | None = None

    def measure(self, before: Weights, after: Weights) -> dict[str, float]:
        """``update_norm`` and ``update_cosine`` of the step from ``before`` to ``after``.

        ``before`` is overwritten. The cosine is NaN for the first step, and for one that moved
        nothing, which is passed over: the next step is compared with the one before it.
        """
        step = {name: torch.sub(after[name].detach(), old, out=old) for name, old in before.items()}
        squared = dot(step, step)
        figures = {"update_norm": math.sqrt(squared), "update_cosine": math.nan}
        if not 0.0 < squared < math.inf:
            return figures
        if self.last is not None:
            product = math.sqrt(squared * dot(self.last, self.last))
            figures["update_cosine"] = max(-1.0, min(1.0, dot(step, self.last) / product))
        self.last = step
        return figures

    def load(self, last: Weights | None, device: torch.device | str) -> None:
        """Continue after ``last``."""
        self.last = None if last is None else {n: t.to(device) for n, t in last.items()}


def copied(weights: Weights) -> Weights:
    """The weights as they are now."""
    return {name: weight.detach().clone() for name, weight in weights.items()}


def dot(a: Weights, b: Weights) -> float:
    """Inner product over all weights: float32 within a tensor, float64 across tensors."""
    parts = [torch.dot(a[name].flatten(), b[name].flatten()) for name in a]
    return float(torch.stack(parts).double().sum())
