"""How the checkpoints of a design vary, and how sure their mean is.

A design is pretrained several times: three initialisations by two corpus orders, or a few
independent pretrainings. A label says which: ``i2o0`` is initialisation 2 on corpus order 0. On
fixed tasks all that is known of a checkpoint is one number, its mean over tasks and seeds; what
tasks and seeds do to single checkpoints is in the spread of these numbers already.

*Independent* checkpoints (no label shares its initialisation or its order with another) have the
variance of a mean of R numbers, with R - 1 degrees of freedom. *Crossed* checkpoints are I
initialisations by J orders, each once.

A corpus order is the same documents for every design, an initialisation is not: shapes differ. So
a board of D designs on the same orders has four mean squares: of the orders (MO, what an order does
to all designs), of initialisations inside designs (MI), of design x order (MJ) and of what is left
(ME). What an order does to all designs is no part of a difference of two, and of the rest::

    variance of a mean, what orders do to all designs apart = E[MI + MJ - ME] / (I J)

The variance is pooled over the designs, and is the larger of MI + MJ - ME (Satterthwaite's degrees
of freedom, from the two that add) and of the plain variance of all checkpoints (all their degrees
of freedom): Satterthwaite's approximation (1946) alone fails where a mean square has few. Coverage
is simulated (``python benchmarks/simulations.py --part designs``). Independent checkpoints are a
board with one initialisation an order, those on one order a board with J = 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import fdtrc

from crlbench.errors import ValidationError

LABEL = re.compile(r"i(\d+)o(\d+)")
THE_DESIGN = "the design"
"""What a statement is about where initialisations and orders both vary."""

Plan = Literal["one", "independent", "one order", "one initialisation", "crossed", "irregular"]
"""How the checkpoints of a design hang together."""


@dataclass(frozen=True)
class Layout:
    """The labels of a design's checkpoints."""

    labels: tuple[str, ...]
    initialisations: tuple[int, ...]
    """(R,) of each checkpoint."""
    orders: tuple[int, ...]
    """(R,) corpus order of each checkpoint."""
    plan: Plan

    @property
    def about(self) -> str:
        """What a statement on these checkpoints is about."""
        if self.plan == "one":
            return f"one checkpoint ({self.labels[0]})"
        if self.plan == "one order":
            return f"the design on corpus order {self.orders[0]}"
        if self.plan == "one initialisation":
            return f"the design from initialisation {self.initialisations[0]}"
        return THE_DESIGN

    @property
    def is_of_design(self) -> bool:
        """Whether both initialisations and orders vary, so that a statement is on the design."""
        return self.plan in ("independent", "crossed")

    @property
    def crossing(self) -> tuple[str, int, tuple[int, ...]]:
        """What designs that are pooled must share: the plan, how many initialisations, and which
        orders."""
        return self.plan, len(set(self.initialisations)), tuple(sorted(set(self.orders)))

    @property
    def refusal(self) -> str | None:
        """Why no interval can be given; None where one can."""
        if self.plan != "irregular":
            return None
        return (
            f"checkpoints {', '.join(self.labels)} are neither independent (every initialisation "
            "and every order once) nor crossed (every initialisation with every order)"
        )


def read_layout(labels: Sequence[str]) -> Layout:
    """How checkpoints hang together.

    Raises:
        ValidationError: no label, one twice, or one that is not like ``i0o1``.
    """
    pairs = []
    for label in labels:
        match = LABEL.fullmatch(label)
        if match is None:
            raise ValidationError(
                f"checkpoint '{label}': a label names an initialisation and a corpus order, "
                "as in i0o1"
            )
        pairs.append((int(match[1]), int(match[2])))
    if not pairs or len(set(pairs)) < len(pairs):
        raise ValidationError(f"checkpoints {list(labels)}: name at least one, and each once")
    first, second = (tuple(side) for side in zip(*pairs, strict=True))
    return Layout(tuple(labels), first, second, _plan(first, second))


def _plan(first: tuple[int, ...], second: tuple[int, ...]) -> Plan:
    count, rows, columns = len(first), len(set(first)), len(set(second))
    if count == 1:
        return "one"
    if rows == columns == count:
        return "independent"
    if columns == 1:
        return "one order"
    if rows == 1:
        return "one initialisation"
    return "crossed" if rows * columns == count else "irregular"


MOST_TRIED = 12
"""Checkpoints whose subsets are tried; of more the first ones."""


@lru_cache(maxsize=256)
def most_regular(labels: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of the checkpoints that hang together; all of them where all do.

    Where they do not, most of them that are about the design, and otherwise most of any plan. Of
    equally many the first are taken, so that one that comes later displaces none.

    Args:
        labels: in the order in which the checkpoints were run.
    """
    if len(labels) < 2 or read_layout(labels).refusal is None:
        return tuple(range(len(labels)))
    tried = range(min(len(labels), MOST_TRIED))
    regular, of_design = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for size in range(1, len(tried) + 1):
        for chosen in combinations(tried, size):
            layout = read_layout([labels[at] for at in chosen])
            if layout.refusal is None:
                (of_design if layout.is_of_design else regular).append(chosen)
    return max(of_design or regular, key=lambda chosen: (len(chosen), [-at for at in chosen]))


def design_table(values: np.ndarray, layout: Layout) -> np.ndarray:
    """(..., I, J) of (..., R) numbers of a design's checkpoints, initialisations by orders.

    Independent checkpoints have an initialisation of their own on every order: I is 1.

    Raises:
        ValidationError: checkpoints that are no such table.
    """
    if layout.refusal is not None:
        raise ValidationError(layout.refusal)
    apart = layout.plan == "independent"
    starts = [0] * len(layout.labels) if apart else layout.initialisations
    rows, columns = sorted(set(starts)), sorted(set(layout.orders))
    at = np.empty((len(rows), len(columns)), dtype=int)
    for place, (i, o) in enumerate(zip(starts, layout.orders, strict=True)):
        at[rows.index(i), columns.index(o)] = place
    return values[..., at]


@dataclass(frozen=True)
class MeanVariance:
    """The variance of a mean of checkpoints."""

    variance: np.ndarray
    """(...)"""
    df: np.ndarray
    """(...)"""


def independent_variance(values: np.ndarray) -> MeanVariance:
    """Of the mean of (..., R) independent checkpoints."""
    count = values.shape[-1]
    variance = values.var(axis=-1, ddof=1) / count
    return MeanVariance(variance, np.full(variance.shape, count - 1.0))


@dataclass(frozen=True)
class BoardSquares:
    """The mean squares of D designs with I initialisations by J common corpus orders."""

    order: np.ndarray
    """(...) of the orders over all designs; 0 where J is 1."""
    parts: np.ndarray
    """(..., 3) of initialisations inside designs, of design x order, and of what is left."""
    df: np.ndarray
    """(3,) degrees of freedom of the parts; 0 where there is no such part."""
    own: np.ndarray
    """(..., D) sum of squares of each design, what orders do to all of them apart."""
    shape: tuple[int, int, int]
    """D, I, J."""

    @cached_property
    def of_mean(self) -> MeanVariance:
        """Of the mean of one design, what orders do to all designs apart."""
        _, starts, orders = self.shape
        total = (self.parts * self.df).sum(axis=-1)
        plain, count = total / self.df.sum(), starts * orders
        if min(starts, orders) == 1:
            return MeanVariance(plain / count, np.full(plain.shape, self.df.sum()))
        adding = self.parts[..., :2]
        split = adding.sum(axis=-1) - self.parts[..., 2]
        by_two = (adding**2 / self.df[:2]).sum(axis=-1)
        safe = np.where(by_two > 0, by_two, 1.0)
        satterthwaite = np.where(by_two > 0, np.maximum(split, 0.0) ** 2 / safe, self.df[:2].sum())
        larger = split > plain
        return MeanVariance(
            np.where(larger, split, plain) / count,
            np.where(larger, np.maximum(1.0, satterthwaite), self.df.sum()),
        )

    @cached_property
    def of_orders(self) -> MeanVariance:
        """Of the mean over the orders of what they do to all designs."""
        designs, starts, orders = self.shape
        df = np.full(self.order.shape, orders - 1.0)
        return MeanVariance(self.order / (designs * starts * orders), df)

    @cached_property
    def ratios(self) -> np.ndarray:
        """(..., D) variance of each design over that of all; 1 where none varies."""
        mean = self.own.mean(axis=-1, keepdims=True)
        return np.divide(self.own, mean, out=np.ones_like(self.own), where=mean > 0)

    @cached_property
    def own_df(self) -> np.ndarray:
        """(...) degrees of freedom of the variance of one design (Satterthwaite)."""
        sums = self.parts * self.df
        whole, by_part = sums.sum(axis=-1), (sums * self.parts).sum(axis=-1)
        safe = np.where(by_part > 0, by_part, 1.0)
        df = np.where(by_part > 0, whole**2 / safe, self.df.sum())
        return df / self.shape[0]

    @cached_property
    def spread_p(self) -> np.ndarray:
        """(..., D) p-values of "this design varies no more than the others", by F against them."""
        designs, df = self.shape[0], self.own_df[..., None]
        rest = designs - self.ratios
        f = np.divide(
            (designs - 1) * self.ratios, rest, out=np.full(rest.shape, np.inf), where=rest > 0
        )
        return fdtrc(df, (designs - 1) * df, f)


def board_squares(tables: np.ndarray) -> BoardSquares:
    """Mean squares of a board.

    Args:
        tables: (..., D, I, J) means of the checkpoints of D designs on the same J orders.

    Raises:
        ValidationError: fewer than two designs, or one checkpoint each.
    """
    designs, starts, orders = tables.shape[-3:]
    if designs < 2 or starts * orders < 2:
        raise ValidationError(
            "a pooled variance of checkpoints needs two designs with two checkpoints each"
        )
    whole = tables.mean(axis=(-3, -2, -1), keepdims=True)
    by_design = tables.mean(axis=(-2, -1), keepdims=True)
    shared = tables.mean(axis=(-3, -2), keepdims=True) - whole
    by_start = tables.mean(axis=-1, keepdims=True) - by_design
    by_order = tables.mean(axis=-2, keepdims=True) - by_design - shared
    alone = tables - by_design - shared
    left = alone - by_start - by_order
    sums = np.stack(
        [
            orders * (by_start**2).sum(axis=(-3, -2, -1)),
            starts * (by_order**2).sum(axis=(-3, -2, -1)),
            (left**2).sum(axis=(-3, -2, -1)),
        ],
        axis=-1,
    )
    df = np.array(
        [
            designs * (starts - 1.0),
            (designs - 1.0) * (orders - 1.0),
            designs * (starts - 1.0) * (orders - 1.0),
        ]
    )
    return BoardSquares(
        order=designs * starts * (shared**2).sum(axis=(-3, -2, -1)) / max(1, orders - 1),
        parts=np.where(df > 0, sums / np.maximum(1.0, df), 0.0),
        df=df,
        own=(alone**2).sum(axis=(-2, -1)),
        shape=(designs, starts, orders),
    )
