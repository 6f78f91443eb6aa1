"""The way of an agent through an episode: one timeline of tokens, cut into turns.

A trajectory may lie in one row or in several, whose order is that of the rows. A timeline puts its
valid tokens side by side, so what a formula says of a sequence holds across rows, and tokens of an
environment are no steps of it. Where every row is a trajectory, a timeline is the rows themselves
and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crlbench.algo.masked import select


@dataclass(frozen=True)
class Timeline:
    """The valid tokens of n trajectories, at most S of each."""

    mask: Tensor
    """(n, S) bool."""
    shape: torch.Size
    """(B, T) of the rows."""
    places: Tensor | None = None
    """(n, S) int64: the place of each token in the flattened rows. None where the rows are the
    trajectories."""
    last: Tensor | None = None
    """(n,) int64: the last row of each trajectory; None where the rows are the trajectories."""

    @classmethod
    def of(cls, mask: Tensor, trajectory: Tensor | None) -> Timeline:
        """The timelines of the valid tokens of rows.

        ``mask`` (B, T) bool; ``trajectory`` (B,) int64 names the trajectory of each row, None:
        each row is one.
        """
        if trajectory is None:
            return cls(mask, mask.shape)
        names, number = torch.unique(trajectory, return_inverse=True)
        rows, columns = mask.nonzero(as_tuple=True)
        order = number[rows].argsort(stable=True)
        owner = number[rows][order]
        counts = torch.bincount(owner, minlength=len(names))
        starts = counts.cumsum(0) - counts
        within = torch.arange(len(owner), device=mask.device) - starts[owner]
        size = (len(names), int(counts.max()) if len(names) else 0)
        places = torch.zeros(size, dtype=torch.int64, device=mask.device)
        places[owner, within] = (rows * mask.shape[1] + columns)[order]
        valid = torch.arange(size[1], device=mask.device) < counts[:, None]
        numbers = torch.arange(len(number), device=mask.device)
        last = numbers.new_zeros(len(names)).scatter_reduce(0, number, numbers, "amax")
        return cls(valid, mask.shape, places, last)

    def gather(self, x: Tensor) -> Tensor:
        """(n, S): the tokens' entries of ``x`` (B, T); 0 where there is none."""
        return x if self.places is None else select(self.mask, x.reshape(-1)[self.places])

    def scatter(self, x: Tensor) -> Tensor:
        """(B, T): the entries of ``x`` (n, S) at their tokens, 0 elsewhere."""
        if self.places is None:
            return x
        flat = x.new_zeros(self.shape.numel())
        flat[self.places[self.mask]] = x[self.mask]
        return flat.view(self.shape)

    def at_end(self, x: Tensor) -> Tensor:
        """(n,): the entry of ``x`` (B,) at the last row of each trajectory."""
        return x if self.last is None else x[self.last]


@dataclass(frozen=True)
class Turns:
    """The turns of n trajectories in their order, at most K of each."""

    timeline: Timeline
    index: Tensor
    """(n, S) int64: which turn of its trajectory a token of the timeline belongs to; 0 where there
    is no token."""
    starts: Tensor
    """(n, S) bool: the first token of each turn."""
    mask: Tensor
    """(n, K) bool; K is at least 1."""

    @classmethod
    def of(cls, timeline: Timeline, turn: Tensor | None) -> Turns:
        """The turns of timelines: a turn ends where the row or the number of the turn changes.

        ``turn`` (B, T) integer numbers the turn of each token; None: each row is one turn.
        """
        rows = torch.arange(timeline.shape[0], device=timeline.mask.device)
        row = _valid_entries(timeline, rows[:, None].expand(timeline.shape))
        changes = row != _before(row)
        if turn is not None:
            number = _valid_entries(timeline, turn.long())
            changes |= number != _before(number)
        starts = timeline.mask & changes
        index = select(timeline.mask, starts.long().cumsum(1) - 1)
        counts = starts.sum(1)
        most = max([1, *counts.tolist()])
        return cls(timeline, index, starts, torch.arange(most, device=row.device) < counts[:, None])

    def total(self, x: Tensor) -> Tensor:
        """(n, K): the sums of ``x`` (B, T) over the tokens of each turn."""
        entries = select(self.timeline.mask, self.timeline.gather(x))
        return entries.new_zeros(self.mask.shape).scatter_add(1, self.index, entries)

    def at_start(self, x: Tensor) -> Tensor:
        """(n, K): the entry of ``x`` (B, T) at the first token of each turn."""
        entries = select(self.starts, self.timeline.gather(x))
        return entries.new_zeros(self.mask.shape).scatter_add(1, self.index, entries)

    def spread(self, x: Tensor) -> Tensor:
        """(B, T): the entry of ``x`` (n, K) at every token of its turn, 0 elsewhere."""
        return self.timeline.scatter(select(self.timeline.mask, x.gather(1, self.index)))

    @property
    def start_tokens(self) -> Tensor:
        """(B, T) bool: the first token of each turn."""
        return self.timeline.scatter(self.starts)


def _valid_entries(timeline: Timeline, x: Tensor) -> Tensor:
    """(n, S): the entries of ``x`` (B, T); at a place without a token, that of the token before it,
    or -1 where there is none. So a token of an environment inside a turn ends no turn."""
    entries = torch.where(timeline.mask, timeline.gather(x), -1)
    places = torch.arange(entries.shape[1], device=entries.device).expand(entries.shape)
    latest = torch.where(timeline.mask, places, -1).cummax(1).values if entries.numel() else places
    return torch.where(latest >= 0, entries.gather(1, latest.clamp(min=0)), -1)


def _before(x: Tensor) -> Tensor:
    """(n, S): the entry one place to the left; -1 in the first column."""
    return torch.cat([torch.full_like(x[:, :1], -1), x[:, :-1]], 1)


def sum_over(x: Tensor, trajectory: Tensor | None) -> Tensor:
    """(B,): the sum of ``x`` (B,) over the rows of a trajectory, given to each of them.

    ``trajectory`` (B,) int64; None: each row is one, and ``x`` comes back as it is.
    """
    if trajectory is None:
        return x
    names, number = torch.unique(trajectory, return_inverse=True)
    return x.new_zeros(len(names)).index_add(0, number, x)[number]


def any_over(x: Tensor, trajectory: Tensor | None) -> Tensor:
    """(B,) bool: whether ``x`` (B,) bool holds in any row of the trajectory."""
    return x if trajectory is None else sum_over(x.long(), trajectory) > 0


def first_rows(trajectory: Tensor | None, like: Tensor) -> Tensor:
    """(B,) bool: one row of each trajectory, its first; ``like`` (B,) gives size and device."""
    first = torch.ones_like(like, dtype=torch.bool)
    if trajectory is None:
        return first
    names, number = torch.unique(trajectory, return_inverse=True)
    rows = torch.arange(len(number), device=like.device)
    earliest = rows.new_full((len(names),), len(rows)).scatter_reduce(0, number, rows, "amin")
    return rows == earliest[number]
