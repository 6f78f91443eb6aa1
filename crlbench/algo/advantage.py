"""Advantage estimators: how credit reaches tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.part import Part
from crlbench.algo.signal import Signal


@dataclass(frozen=True)
class AdvantageEstimator(Part, ABC):
    """Axis ``advantage``."""

    needs_critic: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, signal: Signal) -> tuple[Tensor, Tensor | None]:
        """(advantages (B, T), value targets (B, T) or None); 0 where ``signal.mask`` is False."""


@dataclass(frozen=True)
class Gae(AdvantageEstimator):
    """Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438).

    The recursion runs over valid tokens only, so tokens of others inside a completion are
    skipped. A cut-off completion counts as ended unless ``bootstrap_truncated``, which needs
    the critic's value of the state after the last token.
    """

    gamma: float = 1.0
    lam: float = 0.95
    bootstrap_truncated: bool = False

    needs_critic: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  "
        "return_t = A_t + V_t   (t+1: the next valid token; 0 after the last)"
    )
    source: ClassVar[str] = "Schulman et al. 2015, arXiv 1506.02438, eq. 16"

    def check(self) -> None:
        self.require(0.0 <= self.gamma <= 1.0, "gamma", "between 0 and 1")
        self.require(0.0 <= self.lam <= 1.0, "lam", "between 0 and 1")

    def __call__(self, signal: Signal) -> tuple[Tensor, Tensor]:
        if signal.values is None:
            raise ValueError("Gae needs the critic's values")
        after = None
        if self.bootstrap_truncated:
            if signal.final_values is None:
                raise ValueError("Gae(bootstrap_truncated=True) needs final_values")
            after = select(signal.truncated & signal.valid, signal.final_values)
        return gae(signal.token_rewards, signal.values, signal.mask, self.gamma, self.lam, after)


def gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    after: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both (B, T) in the dtype of ``values``, 0 where not ``mask``.

    ``token_rewards`` and ``values`` are (B, T), ``mask`` (B, T) bool; ``after`` (B,) is the
    value of the state after the last token, 0 if None. Computed in float64.
    """
    rewards, v = select(mask, token_rewards).double(), select(mask, values).double()
    next_value = torch.zeros_like(v[:, :1]).squeeze(1) if after is None else after.double()
    next_advantage = torch.zeros_like(next_value)
    advantages = torch.zeros_like(v)
    for t in reversed(range(v.shape[1])):
        delta = rewards[:, t] + gamma * next_value - v[:, t]
        advantage = delta + gamma * lam * next_advantage
        advantages[:, t] = select(mask[:, t], advantage)
        next_value = torch.where(mask[:, t], v[:, t], next_value)
        next_advantage = torch.where(mask[:, t], advantage, next_advantage)
    return advantages.to(values.dtype), (advantages + v).to(values.dtype)
