"""Importance ratios between the policy that learns and the policy that sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part


@dataclass(frozen=True)
class ImportanceRatio(Part, ABC):
    """Axis ``ratio``."""

    @abstractmethod
    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        """What an advantage is multiplied by, (b, T), differentiable in ``new``.

        ``new`` and ``old`` are log-probabilities (b, T), ``mask`` (b, T) bool.
        """

    def over_turns(self, new: Tensor, old: Tensor, mask: Tensor, turn: Tensor | None) -> Tensor:
        """The same of rows of several turns, for parts that tell turns apart.

        ``turn`` (b, T) integer is the turn of each valid token; None: each row is one.
        """
        return self(new, old, mask)


@dataclass(frozen=True)
class TokenRatio(ImportanceRatio):
    """One ratio per token; the log-ratio is clamped so that exp cannot overflow."""

    log_ratio_clamp: float | None = 20.0

    formula: ClassVar[str] = "rho_t = exp(clip(l_t - l_old_t, -log_ratio_clamp, log_ratio_clamp))"
    source: ClassVar[str] = "Schulman et al. 2017, arXiv 1707.06347, section 3"

    def check(self) -> None:
        limit = self.log_ratio_clamp
        self.require(limit is None or limit > 0.0, "log_ratio_clamp", "above 0, or none")

    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        log_ratio = select(mask, new - old)
        if self.log_ratio_clamp is not None:
            log_ratio = log_ratio.clamp(-self.log_ratio_clamp, self.log_ratio_clamp)
        return log_ratio.exp()


@dataclass(frozen=True)
class SequenceRatio(ImportanceRatio):
    """One ratio per completion, given to all of its tokens.

    ``geometric`` is GSPO's mean of log-ratios; its gradient is that of GSPO-token, which equals
    GSPO's where the advantage is constant within a completion. ``product`` is the probability
    ratio of the whole completion, as in TRL's RLOO.
    """

    mean: Literal["geometric", "product"] = "geometric"
    log_ratio_max: float | None = 10.0

    formula: ClassVar[str] = (
        "rho_t = s_i = exp((1/n_i) sum_t (l_it - l_old_it))   (product: without 1/n_i)"
    )
    source: ClassVar[str] = "GSPO and GSPO-token (Zheng et al. 2025, arXiv 2507.18071)"

    def check(self) -> None:
        limit = self.log_ratio_max
        self.require(limit is None or limit > 0.0, "log_ratio_max", "above 0, or none")

    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        log_ratio = select(mask, new - old)
        total = log_ratio.sum(1, keepdim=True)
        if self.mean == "product":
            return self._bounded(total).exp().expand(mask.shape)
        mean = total / mask.sum(1, keepdim=True).clamp(min=1)
        # The value of the sequence's ratio, the gradient of each token's own probability.
        own = select(mask, new)
        return self._bounded(mean.detach() + (own - own.detach())).exp()

    def _bounded(self, log_ratio: Tensor) -> Tensor:
        return log_ratio if self.log_ratio_max is None else log_ratio.clamp(max=self.log_ratio_max)


@dataclass(frozen=True)
class TurnRatio(SequenceRatio):
    """One ratio per turn, given to all of its tokens: the sequence is what was said in a turn."""

    formula: ClassVar[str] = (
        "rho_t = s_k = exp((1/n_k) sum_{t in turn k} (l_t - l_old_t))   (product: without 1/n_k)"
    )
    source: ClassVar[str] = (
        "PSPO (PaperScout, arXiv 2601.10029): GSPO's ratio (arXiv 2507.18071) of each turn"
    )

    def over_turns(self, new: Tensor, old: Tensor, mask: Tensor, turn: Tensor | None) -> Tensor:
        if turn is None:
            return self(new, old, mask)
        ratio = torch.zeros_like(new)
        for number in turn[mask].unique().tolist():
            own = mask & (turn == number)
            ratio = torch.where(own, self(new, old, own), ratio)
        return ratio


@dataclass(frozen=True)
class NoRatio(ImportanceRatio):
    """The log-probability itself: the policy gradient without a correction for old samples."""

    formula: ClassVar[str] = "rho_t = l_t   (the log-probability itself)"
    source: ClassVar[str] = "Williams 1992, doi 10.1007/BF00992696"

    def __call__(self, new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        return select(mask, new)
