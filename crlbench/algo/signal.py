"""What an advantage estimator, a normaliser or a sample filter may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from crlbench.algo.masked import select
from crlbench.algo.steps import Timeline, Turns, any_over, first_rows, sum_over


@dataclass(frozen=True)
class Signal:
    """The training signal of one whole batch, before any split into minibatches.

    B completions of at most T tokens; statistics are meant to be taken in float64. Rows of one
    trajectory have equal rewards, groups, verdicts and flags: those of the trajectory.
    """

    rewards: Tensor
    """(B,) float64, the outcome reward; NaN where undefined."""
    token_rewards: Tensor
    """(B, T) float64: outcome, step rewards and KL penalty; 0 where ``mask`` is False."""
    mask: Tensor
    """(B, T) bool: tokens that the policy chose, in rows whose numbers are all finite."""
    group: Tensor
    """(B,) int64: the prompt of the row, in any order."""
    truncated: Tensor
    """(B,) bool: stopped by the length limit."""
    valid: Tensor
    """(B,) bool: every number of the row is finite. An empty completion can be valid."""
    values: Tensor | None = None
    """(B, T) float64 critic estimates of the state before each token."""
    final_values: Tensor | None = None
    """(B,) float64 critic estimates of the state after the last token."""
    correctness: Tensor | None = None
    """(B,) float64, the outcome before any shaping by length; ``rewards`` where not given."""
    trajectory: Tensor | None = None
    """(B,) int64: the trajectory of each row, whose rows stand in order. None: each row is one."""
    turn: Tensor | None = None
    """(B, T) integer: the turn of each token. None: each row is one turn."""
    state: Tensor | None = None
    """(B, T) int64: the state in which the turn of each token was said; below 0 where nobody knows
    it. None: nobody knows any."""

    @property
    def raw(self) -> Tensor:
        """(B,) float64: what decides whether a group is uniform."""
        return self.rewards if self.correctness is None else self.correctness

    @property
    def totals(self) -> Tensor:
        """(B,) float64: everything a trajectory earned, the outcome of an empty one included."""
        earned = sum_over(self.token_rewards.sum(1), self.trajectory)
        return torch.where(any_over(self.mask.any(1), self.trajectory), earned, self.rewards)

    @cached_property
    def timeline(self) -> Timeline:
        """The valid tokens of each trajectory, side by side."""
        return Timeline.of(self.mask, self.trajectory)

    @cached_property
    def turns(self) -> Turns:
        """The turns of each trajectory."""
        return Turns.of(self.timeline, self.turn)

    @property
    def counted(self) -> Tensor:
        """(B,) bool: one valid row of each trajectory, which stands for it in statistics."""
        return self.valid & first_rows(self.trajectory, self.valid)


@dataclass(frozen=True)
class GroupStats:
    """Statistics of ``x`` (B,) over the valid rows of each group, each given per row (B,)."""

    count: Tensor
    mean: Tensor
    var: Tensor
    """With ddof 1, or what was asked; 0 where a group is too small for it."""
    uniform: Tensor
    """bool: all valid rows of the group have the same value, or there is only one."""

    @classmethod
    def of(cls, x: Tensor, valid: Tensor, group: Tensor, ddof: int = 1) -> GroupStats:
        _, compact = torch.unique(group, return_inverse=True)
        size = int(compact.max()) + 1 if len(compact) else 0
        clean = select(valid, x)

        def total(values: Tensor) -> Tensor:
            return values.new_zeros(size).index_add(0, compact, values)[compact]

        def extreme(values: Tensor, reduce: str) -> Tensor:
            empty = values.new_zeros(size)
            kept = empty.scatter_reduce(0, compact, values, reduce, include_self=False)
            return kept[compact]

        count = total(valid.to(clean.dtype))
        mean = total(clean) / count.clamp(min=1)
        var = total(select(valid, clean - mean).square()) / (count - ddof).clamp(min=1)
        highest = extreme(torch.where(valid, clean, -torch.inf), "amax")
        lowest = extreme(torch.where(valid, clean, torch.inf), "amin")
        uniform = highest <= lowest
        return cls(count, mean, select((count > ddof) & ~uniform, var), uniform)


def centred(x: Tensor, valid: Tensor, group: Tensor, counted: Tensor | None = None) -> Tensor:
    """(B,) ``x`` minus the mean of its group; exactly 0 in uniform groups and invalid rows.

    ``counted`` (B,) bool are the rows that the mean is taken over; None: all valid ones.
    """
    stats = GroupStats.of(x, valid if counted is None else counted, group)
    return select(valid & ~stats.uniform, x - stats.mean)


def left_out(x: Tensor, valid: Tensor, group: Tensor, counted: Tensor | None = None) -> Tensor:
    """(B,) ``x`` minus the mean of the others of its group; 0 where there are no others.

    ``counted`` as for :func:`centred`.
    """
    n = GroupStats.of(x, valid if counted is None else counted, group).count
    return centred(x, valid, group, counted) * n / (n - 1).clamp(min=1)
