"""One variance of checkpoints from several designs, and whether the designs allow it.

Two orders have one degree of freedom, so that crossed checkpoints of one design do not say how sure
its mean is. A pool of designs does, if they vary alike (:mod:`crlbench.stats.checkpoints`). Two
things guard against designs that do not:

- The variance of a design whose checkpoints vary more than the pool's is its own; that of a
  difference is at least the mean of the two designs' own.
- A design that varies so much more that Cochran's test (1941) rejects at 5 % has no pooled
  interval.

Both see large differences only: a design has few checkpoints. ``python benchmarks/simulations.py
--part designs`` has rows with designs that vary unequally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import (
    BoardSquares,
    Layout,
    MeanVariance,
    board_squares,
    design_table,
)

LEAST_CROSSED = 4
"""Fewest designs of a pool of crossed checkpoints. With fewer, design x order has one or two
degrees of freedom if there are two orders."""
SPREAD_ALPHA = 0.05
"""Probability that some design of a pool is refused though all vary alike."""


class Checkpoints(Protocol):
    """What of a design is pooled."""

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def checkpoint_means(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Pool:
    """D designs with the same crossing."""

    names: tuple[str, ...]
    squares: BoardSquares

    def of_mean(self, name: str) -> MeanVariance:
        """Of the mean of one design, what orders do to all designs apart."""
        spread, ratio = self.squares.of_mean, self.squares.ratios[self.names.index(name)]
        return MeanVariance(spread.variance * np.maximum(1.0, ratio), spread.df)

    def of_difference(self, one: str, other: str) -> MeanVariance:
        """Of the difference of the means of two designs."""
        at = [self.names.index(name) for name in (one, other)]
        spread, ratio = self.squares.of_mean, self.squares.ratios[at].mean()
        return MeanVariance(2.0 * spread.variance * np.maximum(1.0, ratio), spread.df)

    @property
    def of_orders(self) -> MeanVariance:
        """Of the mean of what the orders do to all designs."""
        return self.squares.of_orders

    @property
    def shared_by_orders(self) -> MeanVariance:
        """The same, without what is design x order's share of it."""
        whole, squares = self.squares.of_orders, self.squares
        count = squares.shape[0] * squares.shape[1] * squares.shape[2]
        return MeanVariance(
            np.maximum(0.0, whole.variance - squares.parts[..., 1] / count), whole.df
        )

    def refuse(self, names: Sequence[str]) -> str | None:
        """Why these designs have no pooled interval; None where they have one."""
        chance = self.squares.spread_p * len(self.names)
        far = [name for name in names if chance[self.names.index(name)] < SPREAD_ALPHA]
        if not far:
            return None
        return (
            f"{' and '.join(far)}: the checkpoints vary more than those of the other designs "
            f"(Cochran's test at {SPREAD_ALPHA:.0%}), so that one variance for all would be too "
            "small"
        )


def make_pool(designs: Sequence[Checkpoints]) -> Pool | str:
    """The pool of designs of one crossing; a text says why there is none."""
    layout = designs[0].layout
    if layout.plan == "crossed" and len(designs) < LEAST_CROSSED:
        starts, orders = layout.crossing[1], len(layout.crossing[2])
        return (
            f"{designs[0].name}: {len(designs)} designs with {starts} x {orders} checkpoints; "
            f"their variance is known from {LEAST_CROSSED} designs with the same crossing on"
        )
    tables = [design_table(one.checkpoint_means, one.layout) for one in designs]
    return Pool(tuple(one.name for one in designs), board_squares(np.stack(tables)))


def check_board(designs: Sequence[Checkpoints]) -> None:
    """Whether designs are of one board.

    Raises:
        ValidationError: two have one name, or they have other tasks.
    """
    names = [one.name for one in designs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValidationError(
            f"designs {', '.join(twice)}: named twice; a pool counts each design once"
        )
    for one in designs[1:]:
        if one.tasks != designs[0].tasks:
            raise ValidationError(
                f"designs {designs[0].name} and {one.name}: their tasks are not the same in the "
                f"same order ({', '.join(designs[0].tasks)}; {', '.join(one.tasks)}); leave out "
                "what one of them lacks"
            )
