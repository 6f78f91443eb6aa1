"""Sample filters: which prompts may teach, judged by the scores of their completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo.part import Part
from crlbench.algo.signal import GroupStats, Signal


@dataclass(frozen=True)
class SampleFilter(Part, ABC):
    """Axis ``select``."""

    resamples: ClassVar[bool] = False
    """Whether what is filtered out is replaced by further sampling, at the budget's cost."""
    needs_group: ClassVar[bool] = False
    """Whether a single completion per prompt would teach nothing."""
    credits_steps: ClassVar[bool] = False
    """Whether a completion with right steps and a wrong outcome can be kept for them."""

    @abstractmethod
    def __call__(self, signal: Signal) -> Tensor:
        """(B,) bool: rows to keep. Rows with non-finite numbers are dropped whatever it says."""


@dataclass(frozen=True)
class KeepAll(SampleFilter):
    """Every completion teaches."""

    credits_steps: ClassVar[bool] = True
    formula: ClassVar[str] = "all rows"

    def __call__(self, signal: Signal) -> Tensor:
        return torch.ones_like(signal.valid)


@dataclass(frozen=True)
class DropUniformGroups(SampleFilter):
    """Only prompts whose completions do not all score the same.

    The test looks at the outcome before any shaping by length.
    """

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = "rows with min_{group} score < max_{group} score"
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.2, without refill"

    def __call__(self, signal: Signal) -> Tensor:
        return ~GroupStats.of(signal.raw, signal.counted, signal.group).uniform


@dataclass(frozen=True)
class DynamicSampling(DropUniformGroups):
    """The same, and sampling goes on until as many prompts are kept as an iteration holds.

    Every completion is charged to the budget. At the end of an interval of the budget's grid
    an update is made of the prompts that there are.
    """

    resamples: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "rows with min_{group} score < max_{group} score; sample on until P prompts are kept"
    )
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.2"
