"""Normalisation of advantages over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from crlbench.algo.masked import masked_whiten, select
from crlbench.algo.part import Part
from crlbench.algo.signal import Signal


@dataclass(frozen=True)
class Normalizer(Part, ABC):
    """Axis ``normalize``."""

    @abstractmethod
    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        """(normalised advantages, counts), 0 where not ``mask``.

        ``advantages`` (B, T); ``mask`` (B, T) bool is ``signal.mask`` without the rows that
        the sample filter removed; ``signal`` holds raw rewards and groups for part-specific
        statistics.
        """


@dataclass(frozen=True)
class NoNorm(Normalizer):
    """Advantages as they are."""

    formula: ClassVar[str] = "A"

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        return select(mask, advantages), {}


@dataclass(frozen=True)
class Whiten(Normalizer):
    """Zero mean and unit variance over all valid tokens of the batch.

    Skipped and counted (``whitening_skipped``) where at most ``ddof`` tokens are valid.
    """

    ddof: int = 1
    eps: float = 1e-8
    shift_mean: bool = True

    formula: ClassVar[str] = "(A - mean) / sqrt(var + eps), over all valid tokens of the batch"
    source: ClassVar[str] = "Ziegler et al. 2019, arXiv 1909.08593; ddof 1 as in TRL and verl"

    def check(self) -> None:
        self.require(self.ddof in (0, 1), "ddof", "0 or 1")
        self.require(self.eps > 0.0, "eps", "above 0")

    def __call__(
        self, advantages: Tensor, mask: Tensor, signal: Signal
    ) -> tuple[Tensor, dict[str, float]]:
        whitened = masked_whiten(
            advantages, mask, ddof=self.ddof, eps=self.eps, shift_mean=self.shift_mean
        )
        return whitened, {"whitening_skipped": float(int(mask.sum()) <= self.ddof)}
