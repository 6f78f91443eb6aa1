"""The critic's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part


@dataclass(frozen=True)
class Critic(Part):
    """Axis ``critic``: a value head with the clipped squared error.

    ``coefficient`` weighs the value loss in the total; ``clip`` None is the plain squared
    error.
    """

    coefficient: float = 0.1
    clip: float | None = 0.2

    formula: ClassVar[str] = (
        "1/2 max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2), aggregated as the policy"
    )
    source: ClassVar[str] = "Huang et al. 2024, arXiv 2403.17031; Ziegler et al. 2019"

    def check(self) -> None:
        self.require(self.coefficient > 0.0, "coefficient", "above 0")
        self.require(self.clip is None or self.clip > 0.0, "clip", "above 0, or none")

    def __call__(self, values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        """Loss per token, (b, T), differentiable in ``values``; all arguments (b, T)."""
        error = (values - returns).square()
        if self.clip is not None:
            near = torch.clamp(values, old_values - self.clip, old_values + self.clip)
            error = torch.maximum(error, (near - returns).square())
        return 0.5 * error
