"""From a loss per token to a scalar, with the denominators of the whole optimiser step.

Because the denominators are global, the micro-batches of a step simply add up: the loss is
the same for any split. Under data-parallel training, where gradients are averaged over
ranks, the caller multiplies by the number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from crlbench.algo.masked import masked_sum, select
from crlbench.algo.part import Part
from crlbench.types import Experience, as_bool


@dataclass(frozen=True)
class Totals:
    """Counts over one optimiser step: all its micro-batches and ranks."""

    tokens: float
    """N: valid tokens of kept rows."""
    rows: float
    """B': kept rows with at least one valid token."""
    completions: float
    """B: every sampled completion, kept or not, empty or not."""
    length_cap: int | None = None
    """Most tokens that a completion may have."""
    group_tokens: dict[int, float] = field(default_factory=dict)
    """Valid tokens of kept rows by prompt, for prompts that have any."""

    @classmethod
    def of(cls, minibatch: Experience, length_cap: int | None = None) -> Totals:
        """The totals of a step that consists of this one minibatch."""
        mask = as_bool(minibatch.rollout.action_mask) & minibatch.keep[:, None]
        lengths = mask.sum(1).tolist()
        by_group: dict[int, float] = {}
        for group, length in zip(minibatch.rollout.group.tolist(), lengths, strict=True):
            if length:
                by_group[group] = by_group.get(group, 0.0) + length
        rows = sum(length > 0 for length in lengths)
        return cls(float(sum(lengths)), float(rows), float(len(lengths)), length_cap, by_group)


@dataclass(frozen=True)
class Aggregation(Part, ABC):
    """Axis ``aggregate``."""

    @abstractmethod
    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        """Scalar, 0 where no token is valid.

        ``token_losses`` (b, T), ``mask`` (b, T) bool; ``group`` (b,) int64 is the prompt of
        each row, wanted by :class:`GroupTokenMean` alone.
        """


@dataclass(frozen=True)
class TokenMean(Aggregation):
    """Every token weighs the same."""

    formula: ClassVar[str] = "sum_it m_it loss_it / N"
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), over the whole step"

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        return masked_sum(token_losses, mask) / max(totals.tokens, 1.0)


@dataclass(frozen=True)
class SequenceMean(Aggregation):
    """Every completion weighs the same, by the mean or by the sum of its tokens.

    ``count_empty`` divides by every sampled completion instead of those with a valid token;
    ``row_eps`` is added to n_i, as verl and OpenRLHF do.
    """

    row: Literal["mean", "sum"] = "mean"
    count_empty: bool = False
    row_eps: float = 1e-8

    formula: ClassVar[str] = "(1/B') sum_i (1/n_i) sum_t m_it loss_it   (row = sum: without 1/n_i)"
    source: ClassVar[str] = "GRPO (Shao et al. 2024, arXiv 2402.03300)"

    def check(self) -> None:
        self.require(0.0 <= self.row_eps < 1.0, "row_eps", "from 0 to below 1")

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        rows = select(mask, token_losses).sum(1)
        if self.row == "mean":
            lengths = mask.sum(1).clamp(min=1).to(rows.dtype)
            rows = rows / (lengths + self.row_eps)
        count = totals.completions if self.count_empty else totals.rows
        return rows.sum() / max(count, 1.0)


@dataclass(frozen=True)
class FixedLength(Aggregation):
    """A constant number of tokens per completion, so that length never rescales the loss.

    ``length`` None is the run's own cap on completions. ``per_completion=False`` leaves out the
    division by the number of completions.
    """

    length: int | None = None
    per_completion: bool = True

    formula: ClassVar[str] = "sum_it m_it loss_it / (B cap)   (cap: length, or the run's own)"
    source: ClassVar[str] = "Dr. GRPO (Liu et al. 2025, arXiv 2503.20783)"

    def check(self) -> None:
        self.require(self.length is None or self.length > 0, "length", "above 0, or none")

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        length = self.length or totals.length_cap
        if not length:
            raise ValueError("FixedLength() needs the totals' length_cap")
        count = totals.completions if self.per_completion else 1.0
        return masked_sum(token_losses, mask) / (length * max(count, 1.0))


@dataclass(frozen=True)
class GroupTokenMean(Aggregation):
    """Every token of a prompt weighs the same, and every prompt: DAPO's formula to the letter."""

    formula: ClassVar[str] = "(1/P) sum_p sum_{i in p, t} m_it loss_it / N_p"
    source: ClassVar[str] = "DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.3"

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        if group is None:
            raise ValueError("GroupTokenMean needs the prompt of each row")
        tokens = [totals.group_tokens.get(g, 1.0) for g in group.tolist()]
        rows = select(mask, token_losses).sum(1)
        return (rows / rows.new_tensor(tokens)).sum() / max(len(totals.group_tokens), 1)
