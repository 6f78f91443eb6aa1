"""One variance of checkpoints from several designs, and whether the designs allow it.

Two orders have one degree of freedom, so that crossed checkpoints of one design do not say how sure
its mean is. A pool of designs does, if they vary alike (:mod:`crlbench.stats.checkpoints`). Two
things guard against designs that do not:

- The variance of a design whose checkpoints vary more than the pool's is its own; that of a
  difference is at least the mean of the two designs' own.
- Where an F test at 30 % says that a design varies more, the degrees of freedom are its own as well
  (Welch and Satterthwaite of two). At 5 % a warning says so.

A design has few checkpoints, so that the test must be lenient to see designs that vary twice as
much. ``python benchmarks/simulations.py
--part designs`` has rows with designs that vary unequally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import stdtrit

from crlbench.errors import ValidationError
from crlbench.stats.checkpoints import (
    BoardSquares,
    Layout,
    MeanVariance,
    board_squares,
    design_table,
)
from crlbench.stats.intervals import LEVEL

LEAST_CROSSED = 4
"""Fewest designs of a pool of crossed checkpoints. With fewer, design x order has one or two
degrees of freedom if there are two orders."""
OWN_ALPHA, WARN_ALPHA = 0.30, 0.05
"""Probability that a design has its own degrees of freedom, and that it is warned of, though it
varies as the others do."""


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
        return self._of([name])

    def of_difference(self, one: str, other: str) -> MeanVariance:
        """Of the difference of the means of two designs."""
        found = self._of([one, other])
        return MeanVariance(2.0 * found.variance, found.df)

    def _of(self, names: Sequence[str]) -> MeanVariance:
        """The mean over designs of the variance of their means."""
        common, ratios = self.squares.of_mean, self.squares.ratios[..., self._at(names)]
        own, squared = ratios.mean(axis=-1), (ratios**2).sum(axis=-1)
        larger = np.maximum(1.0, own)
        welch = ratios.sum(axis=-1) ** 2 / np.where(squared > 0, squared, 1.0)
        own_df = np.maximum(1.0, welch * self.squares.own_df)
        quantiles = [stdtrit(df, 0.5 + LEVEL / 2) for df in (own_df, common.df)]
        alone = self._far(names, OWN_ALPHA).any(axis=-1)
        alone &= quantiles[0] ** 2 * own > quantiles[1] ** 2 * larger
        variance = common.variance * np.where(alone, own, larger)
        return MeanVariance(variance, np.where(alone, own_df, common.df))

    def _far(self, names: Sequence[str], alpha: float) -> np.ndarray:
        """(..., names) which of these vary more than the others by the F test."""
        return self.squares.spread_p[..., self._at(names)] < alpha

    def _at(self, names: Sequence[str]) -> list[int]:
        return [self.names.index(name) for name in names]

    @property
    def of_orders(self) -> MeanVariance:
        """Of the mean of what the orders do to all designs, design x order's share of it apart."""
        whole, (designs, starts, orders) = self.squares.of_orders, self.squares.shape
        share = self.squares.parts[..., 1] / (designs * starts * orders)
        return MeanVariance(np.maximum(0.0, whole.variance - share), whole.df)

    def warn(self, names: Sequence[str]) -> str | None:
        """Which of these designs vary more than the others; None where none does."""
        is_far = self._far(names, WARN_ALPHA)
        far = [name for name, flag in zip(names, is_far, strict=True) if flag]
        if not far:
            return None
        return (
            f"{' and '.join(far)}: checkpoints vary more than those of the other designs (F test "
            f"at {WARN_ALPHA:.0%}), so that the interval takes their own variance"
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


def check_names(designs: Sequence[Checkpoints]) -> None:
    """
    Raises:
        ValidationError: two designs have one name.
    """
    names = [one.name for one in designs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValidationError(
            f"designs {', '.join(twice)}: named twice; a pool counts each design once"
        )


def check_board(designs: Sequence[Checkpoints]) -> None:
    """Whether designs are of one board.

    Raises:
        ValidationError: two have one name, or they have other tasks.
    """
    check_names(designs)
    for one in designs[1:]:
        if one.tasks != designs[0].tasks:
            raise ValidationError(
                f"designs {designs[0].name} and {one.name}: their tasks are not the same in the "
                f"same order ({', '.join(designs[0].tasks)}; {', '.join(one.tasks)}); leave out "
                "what one of them lacks"
            )
