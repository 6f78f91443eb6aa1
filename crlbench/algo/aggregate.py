"""From a loss per token to a scalar, with the denominators of the whole optimiser step.

Because the denominators are global, the micro-batches of a step simply add up: the loss is
the same for any split. Under data-parallel training, where gradients are averaged over
ranks, the caller multiplies by the number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from crlbench.algo.masked import masked_sum, select
from crlbench.algo.part import Part
from crlbench.types import Experience, Rollout, as_bool


@dataclass(frozen=True)
class Totals:
    """Counts over one optimiser step: all its micro-batches and ranks."""

    tokens: float
    """N: valid tokens of kept rows."""
    rows: float
    """B': trajectories with at least one valid token of a kept row. A row is one, unless the
    rollout says otherwise."""
    completions: float
    """B: every sampled trajectory, kept or not, empty or not."""
    length_cap: int | None = None
    """Most tokens that a completion may have."""
    group_tokens: dict[int, float] = field(default_factory=dict)
    """Valid tokens of kept rows by prompt, for prompts that have any."""
    trajectory_tokens: dict[int, float] = field(default_factory=dict)
    """The same by trajectory; empty where every row is one."""
    turns: float | None = None
    """Turns of kept rows with at least one valid token; None: as many as ``rows``."""
    critic: Totals | None = None
    """The same counts of the tokens at which the critic learns; None: of all tokens."""

    @classmethod
    def of(cls, minibatch: Experience, length_cap: int | None = None) -> Totals:
        """The totals of a step that consists of this one minibatch."""
        rollout = minibatch.rollout
        kept = as_bool(rollout.action_mask) & minibatch.keep[:, None]
        totals = cls._of_tokens(kept, rollout, length_cap)
        if minibatch.value_mask is None:
            return totals
        critic = cls._of_tokens(kept & minibatch.value_mask, rollout, length_cap)
        return replace(totals, critic=critic)

    @classmethod
    def _of_tokens(cls, mask: Tensor, rollout: Rollout, length_cap: int | None) -> Totals:
        """The counts of the tokens in ``mask`` (b, T) bool."""
        lengths = mask.sum(1).tolist()
        by_group = _sums(rollout.group.tolist(), lengths)
        rows, completions = sum(length > 0 for length in lengths), len(lengths)
        by_trajectory: dict[int, float] = {}
        turns: float | None = None
        if rollout.trajectory is not None:
            trajectory = rollout.trajectory.tolist()
            by_trajectory = _sums(trajectory, lengths)
            turns, rows, completions = float(rows), len(by_trajectory), len(set(trajectory))
        if rollout.turn is not None:
            pairs = torch.stack([mask.nonzero()[:, 0], rollout.turn[mask].long()])
            turns = float(pairs.unique(dim=1).shape[1])
        return cls(
            float(sum(lengths)),
            float(rows),
            float(completions),
            length_cap,
            by_group,
            by_trajectory,
            turns,
        )


def _sums(names: Iterable[int], lengths: Iterable[int]) -> dict[int, float]:
    """The sum of lengths by name, of names that have any."""
    sums: dict[int, float] = {}
    for name, length in zip(names, lengths, strict=True):
        if length:
            sums[name] = sums.get(name, 0.0) + length
    return sums


@dataclass(frozen=True)
class Aggregation(Part, ABC):
    """Axis ``aggregate``."""

    by: ClassVar[Literal["group", "trajectory", "turn"]] = "group"
    """The field of the rollout that is given as a fourth argument; None where it is not stated."""

    @abstractmethod
    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        """Scalar, 0 where no token is valid.

        ``token_losses`` (b, T), ``mask`` (b, T) bool; ``group`` is what :attr:`by` names: the
        prompt or the trajectory of each row, (b,) int64, or the turn of each token, (b, T).
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
    """Every row weighs the same, by the mean or by the sum of its tokens.

    B' counts trajectories: one that lies in several rows weighs as many times as much.

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


@dataclass(frozen=True)
class TrajectoryMean(Aggregation):
    """Every trajectory weighs the same, and so does every token of it, in whatever rows it lies."""

    by: ClassVar[Literal["group", "trajectory", "turn"]] = "trajectory"
    formula: ClassVar[str] = "(1/B') sum_j (1/n_j) sum_{i in j, t} m_it loss_it   (j a trajectory)"
    source: ClassVar[str] = "Agent Lightning (arXiv 2508.03680), per_rollout_mean of its repository"

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        rows = select(mask, token_losses).sum(1)
        tokens = mask.sum(1).clamp(min=1).to(rows.dtype)
        if group is not None:
            whole = [totals.trajectory_tokens.get(j, 1.0) for j in group.tolist()]
            tokens = rows.new_tensor(whole)
        return (rows / tokens).sum() / max(totals.rows, 1.0)


@dataclass(frozen=True)
class TurnMean(Aggregation):
    """Every turn weighs the same, by the mean of its tokens."""

    by: ClassVar[Literal["group", "trajectory", "turn"]] = "turn"
    formula: ClassVar[str] = "(1/K) sum_k (1/n_k) sum_{t in turn k} m_t loss_t   (K turns)"
    source: ClassVar[str] = "PaperScout (arXiv 2601.10029): a mean over rows of one turn each"

    def __call__(
        self, token_losses: Tensor, mask: Tensor, totals: Totals, group: Tensor | None = None
    ) -> Tensor:
        turns = [mask]
        if group is not None:
            turns = [mask & (group == number) for number in group[mask].unique().tolist()]
        means = torch.zeros_like(token_losses[:, 0])
        for own in turns:
            lengths = own.sum(1).clamp(min=1).to(token_losses.dtype)
            means = means + select(own, token_losses).sum(1) / lengths
        count = totals.rows if totals.turns is None else totals.turns
        return means.sum() / max(count, 1.0)
