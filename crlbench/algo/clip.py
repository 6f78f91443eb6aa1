"""Clip rules: how far one update may follow an advantage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part


@dataclass(frozen=True)
class ClipRule(Part, ABC):
    """Axis ``clip``."""

    @abstractmethod
    def __call__(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """Loss per token to minimise; all (b, T)."""

    @abstractmethod
    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """(low, high), (b, T) bool: tokens held back at the lower and at the upper bound."""


@dataclass(frozen=True)
class PpoClip(ClipRule):
    """The clipped surrogate of PPO; ``high > low`` is DAPO's clip-higher.

    ``dual`` (c > 1) also bounds the loss of a token with negative advantage by c |A|.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    formula: ClassVar[str] = (
        "-min(rho A, clip(rho, 1 - low, 1 + high) A);  with dual c and A < 0: at most -c A"
    )
    source: ClassVar[str] = (
        "Schulman et al. 2017, arXiv 1707.06347, eq. 7; dual clip: Ye et al. 2019, "
        "arXiv 1912.09729; clip-higher: Yu et al. 2025, arXiv 2503.14476"
    )

    def check(self) -> None:
        self.require(0.0 < self.low <= 1.0, "low", "above 0 and at most 1")
        self.require(self.high > 0.0, "high", "above 0")
        self.require(self.dual is None or self.dual > 1.0, "dual", "above 1, or none")

    def __call__(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        bounded = ratio.clamp(1.0 - self.low, 1.0 + self.high)
        loss = torch.maximum(-ratio * advantages, -bounded * advantages)
        if self.dual is None:
            return loss
        return torch.where(advantages < 0, torch.minimum(loss, -self.dual * advantages), loss)

    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        low = (advantages < 0) & (ratio < 1.0 - self.low)
        high = (advantages > 0) & (ratio > 1.0 + self.high)
        return low, high
