"""The path of the weights: how far each optimizer step goes, and whether it turns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]

REMEMBERED = 1 << 24
"""Most weights whose last step is remembered (64 MiB)."""


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
        kept = thinned(step)
        if self.last is not None:
            product = math.sqrt(dot(kept, kept) * dot(self.last, self.last))
            cosine = dot(kept, self.last) / product if product else math.nan
            figures["update_cosine"] = max(-1.0, min(1.0, cosine))
        self.last = kept
        return figures

    def load(self, last: Weights | None, device: torch.device | str) -> None:
        """Continue after ``last``."""
        self.last = None if last is None else {n: t.to(device) for n, t in last.items()}


def thinned(step: Weights) -> Weights:
    """Every k-th entry of every tensor, with the smallest k that leaves at most REMEMBERED."""
    stride = math.ceil(sum(t.numel() for t in step.values()) / REMEMBERED)
    return {name: t.flatten()[::stride].clone() for name, t in step.items()}


def dot(a: Weights, b: Weights) -> float:
    """Inner product over the weights of both: float32 within a tensor, float64 across tensors."""
    parts = [torch.dot(a[n].flatten(), b[n].flatten()) for n in a if n in b]
    return float(torch.stack(parts).double().sum()) if parts else 0.0
