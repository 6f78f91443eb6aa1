"""Sample filters: which completions may teach."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part
from crlbench.algo.signal import Signal


@dataclass(frozen=True)
class SampleFilter(Part, ABC):
    """Axis ``select``."""

    @abstractmethod
    def __call__(self, signal: Signal) -> Tensor:
        """(B,) bool: rows to keep. Rows with non-finite numbers are dropped whatever it says."""


@dataclass(frozen=True)
class KeepAll(SampleFilter):
    """Every completion teaches."""

    formula: ClassVar[str] = "all rows"

    def __call__(self, signal: Signal) -> Tensor:
        return torch.ones_like(signal.valid)
