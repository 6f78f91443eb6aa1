"""What keeps the preferred answers likely while pairs are pulled apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.pairs.loss import PairLogprobs
from crlbench.algo.part import Part


@dataclass(frozen=True)
class Anchor(Part, ABC):
    """Axis ``anchor``."""

    @abstractmethod
    def __call__(self, pairs: PairLogprobs) -> Tensor:
        """(N,) what is added to the loss of each pair."""


@dataclass(frozen=True)
class NoAnchor(Anchor):
    """Nothing is added."""

    formula: ClassVar[str] = "0"

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        return torch.zeros_like(pairs.chosen)


@dataclass(frozen=True)
class Nll(Anchor):
    """The negative log-likelihood of the preferred answer, per token."""

    weight: float = 1.0

    formula: ClassVar[str] = "-weight l_c / n_c"
    source: ClassVar[str] = "Pang et al. 2024, arXiv 2404.19733, equation 1"

    def check(self) -> None:
        self.require(self.weight > 0.0, "weight", "above 0")

    def __call__(self, pairs: PairLogprobs) -> Tensor:
        return -self.weight * pairs.chosen / pairs.chosen_tokens.clamp(min=1)
