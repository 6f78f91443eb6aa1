"""What becomes of completions that are cut off by the length limit, or come near it."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part


@dataclass(frozen=True)
class OverlongRule(Part, ABC):
    """Axis ``overlong``."""

    def shaped(self, rewards: Tensor, lengths: Tensor, max_length: int | None) -> Tensor:
        """(B,): outcome rewards after shaping; ``lengths`` (B,) int64 tokens."""
        return rewards

    def keep(self, truncated: Tensor) -> Tensor:
        """(B,) bool: rows that may teach; ``truncated`` (B,) bool, stopped by the limit."""
        return torch.ones_like(truncated)


@dataclass(frozen=True)
class CountTruncated(OverlongRule):
    """A completion that is cut off counts as any other."""

    formula: ClassVar[str] = "all rows, R as paid"


@dataclass(frozen=True)
class MaskTruncated(OverlongRule):
    """Overlong filtering: completions that are cut off do not teach.

    Their rewards still take part in the statistics of their group.
    """

    formula: ClassVar[str] = "rows that ended by themselves"
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.4"

    def keep(self, truncated: Tensor) -> Tensor:
        return ~truncated


@dataclass(frozen=True)
class SoftPunishment(OverlongRule):
    """A growing penalty on the last stretch before the limit.

    ``cache`` is that stretch as a share of the limit; ``factor`` scales the penalty.
    """

    cache: float = 0.2
    factor: float = 1.0

    formula: ClassVar[str] = (
        "R <- R + factor clip((cap - cache cap - n) / (cache cap), -1, 0)   (n tokens, at most cap)"
    )
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.4"

    def check(self) -> None:
        self.require(0.0 < self.cache <= 1.0, "cache", "above 0 and at most 1")
        self.require(self.factor > 0.0, "factor", "above 0")

    def shaped(self, rewards: Tensor, lengths: Tensor, max_length: int | None) -> Tensor:
        if max_length is None:
            raise ValueError("SoftPunishment needs the length limit of completions")
        return rewards + soft_overlong(lengths, max_length, self.cache * max_length, self.factor)


def soft_overlong(
    lengths: Tensor, max_length: float, cache: float, factor: float = 1.0, floored: bool = True
) -> Tensor:
    """(B,) float64 penalty, 0 to ``-factor``; ``cache`` in tokens.

    ``floored = False`` goes on growing beyond ``max_length``, as verl and NeMo-RL have it.
    """
    penalty = ((max_length - cache - lengths.double()) / cache).clamp(max=0.0)
    return factor * (penalty.clamp(min=-1.0) if floored else penalty)
