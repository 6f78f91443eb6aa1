"""Importance ratios between the policy that learns and the policy that sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part


@dataclass(frozen=True)
class ImportanceRatio(Part, ABC):
    """Axis ``ratio``."""

    @abstractmethod
    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        """Ratio per token, (b, T), differentiable in ``new``; 1 where not ``mask``.

        ``new`` and ``old`` are log-probabilities (b, T), ``mask`` (b, T) bool.
        """


@dataclass(frozen=True)
class TokenRatio(ImportanceRatio):
    """One ratio per token; the log-ratio is clamped so that exp cannot overflow."""

    log_ratio_clamp: float | None = 20.0

    formula: ClassVar[str] = "rho_t = exp(clip(l_t - l_old_t, -c, c))"
    source: ClassVar[str] = "Schulman et al. 2017, arXiv 1707.06347, section 3"

    def check(self) -> None:
        limit = self.log_ratio_clamp
        self.require(limit is None or limit > 0.0, "log_ratio_clamp", "above 0, or none")

    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        log_ratio = select(mask, new - old)
        if self.log_ratio_clamp is not None:
            log_ratio = log_ratio.clamp(-self.log_ratio_clamp, self.log_ratio_clamp)
        return log_ratio.exp()
