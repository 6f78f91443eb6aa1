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
    def __call__(self, ratio: Tensor, advantages: Tensor, logprobs: Tensor) -> Tensor:
        """Loss per token to minimise; all (b, T). ``logprobs`` are those that learn."""

    @abstractmethod
    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """(low, high), (b, T) bool: tokens held back at the lower and at the upper bound."""


@dataclass(frozen=True)
class NoClip(ClipRule):
    """The plain surrogate."""

    formula: ClassVar[str] = "-rho A"

    def __call__(self, ratio: Tensor, advantages: Tensor, logprobs: Tensor) -> Tensor:
        return -ratio * advantages

    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros_like(advantages, dtype=torch.bool)
        return nothing, nothing


@dataclass(frozen=True)
class PpoClip(ClipRule):
    """The clipped surrogate of PPO; ``high > low`` is DAPO's clip-higher.

    ``dual`` (c > 1) also bounds the loss of a token with negative advantage by c |A|.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    formula: ClassVar[str] = (
        "-min(rho A, clip(rho, 1 - low, 1 + high) A);  if A < 0: at most -dual A"
    )
    source: ClassVar[str] = (
        "Schulman et al. 2017, arXiv 1707.06347, eq. 7; dual clip: Ye et al. 2019, "
        "arXiv 1912.09729; clip-higher: Yu et al. 2025, arXiv 2503.14476"
    )

    def check(self) -> None:
        self.require(0.0 < self.low <= 1.0, "low", "above 0 and at most 1")
        self.require(self.high > 0.0, "high", "above 0")
        self.require(self.dual is None or self.dual > 1.0, "dual", "above 1, or none")

    def __call__(self, ratio: Tensor, advantages: Tensor, logprobs: Tensor) -> Tensor:
        bounded = ratio.clamp(1.0 - self.low, 1.0 + self.high)
        loss = torch.maximum(-ratio * advantages, -bounded * advantages)
        if self.dual is None:
            return loss
        return torch.where(advantages < 0, torch.minimum(loss, -self.dual * advantages), loss)

    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        low = (advantages < 0) & (ratio < 1.0 - self.low)
        high = (advantages > 0) & (ratio > 1.0 + self.high)
        return low, high


@dataclass(frozen=True)
class Cispo(ClipRule):
    """The ratio bounded and held constant, so that no token loses its gradient.

    ``low`` None bounds from above only.
    """

    low: float | None = None
    high: float = 0.28

    formula: ClassVar[str] = "-sg(clip(rho, 1 - low, 1 + high)) A l"
    source: ClassVar[str] = "CISPO (MiniMax 2025, arXiv 2506.13585)"

    def check(self) -> None:
        self.require(self.low is None or 0.0 < self.low <= 1.0, "low", "above 0 and at most 1")
        self.require(self.high > 0.0, "high", "above 0")

    def __call__(self, ratio: Tensor, advantages: Tensor, logprobs: Tensor) -> Tensor:
        lowest = None if self.low is None else 1.0 - self.low
        return -ratio.detach().clamp(lowest, 1.0 + self.high) * advantages * logprobs

    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        low = torch.zeros_like(ratio, dtype=torch.bool)
        if self.low is not None:
            low = (advantages != 0) & (ratio < 1.0 - self.low)
        return low, (advantages != 0) & (ratio > 1.0 + self.high)


@dataclass(frozen=True)
class Sapo(ClipRule):
    """A soft gate in place of the clip: a sigmoid around ratio 1, by the sign of A."""

    tau_positive: float = 1.0
    tau_negative: float = 1.05

    formula: ClassVar[str] = "-(4 / tau) sigmoid(tau (rho - 1)) A,  tau by the sign of A"
    source: ClassVar[str] = "SAPO (Gao et al. 2025, arXiv 2511.20347)"

    def check(self) -> None:
        for name in ("tau_positive", "tau_negative"):
            self.require(getattr(self, name) > 0.0, name, "above 0")

    def __call__(self, ratio: Tensor, advantages: Tensor, logprobs: Tensor) -> Tensor:
        positive, negative = ratio.new_tensor([self.tau_positive, self.tau_negative])
        tau = torch.where(advantages > 0, positive, negative)
        return -(4.0 / tau) * torch.sigmoid(tau * (ratio - 1.0)) * advantages

    def clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros_like(advantages, dtype=torch.bool)
        return nothing, nothing
