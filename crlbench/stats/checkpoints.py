"""How the checkpoints of a design vary, and how sure their mean is.

A design is pretrained several times: three initialisations by two corpus orders, or a few
independent pretrainings. A label says which: ``i2o0`` is initialisation 2 on corpus order 0. On
fixed tasks all that is known of a checkpoint is one number, its mean over tasks and seeds; what
tasks and seeds do to single checkpoints is in the spread of these numbers already.

*Independent* checkpoints (no label shares its initialisation or its order with another) have the
variance of a mean of R numbers, with R - 1 degrees of freedom.

*Crossed* checkpoints (I initialisations by J orders, each once) have three mean squares, of the
initialisations MI, of the orders MJ and of what is left ME, and::

    variance of the mean = E[MI + MJ - ME] / (I J)

Two orders have one degree of freedom, so that Satterthwaite's approximation (1946) fails for one
design: if its three by two checkpoints are in truth independent, it covers less than 80 %. So mean
squares are pooled over two designs or more, and the variance is the larger of MI + MJ - ME
(Satterthwaite's degrees of freedom, from the two that add) and of the plain variance of all
checkpoints (all their degrees of freedom). Its coverage is 93.5 to 98 %, however the variance is
shared out (``python benchmarks/simulations.py --part designs``). For one design alone the interval
is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crlbench.errors import ValidationError

LABEL = re.compile(r"i(\d+)o(\d+)")

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
        return "the design"

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


def crossed_table(values: np.ndarray, layout: Layout) -> np.ndarray:
    """(..., I, J) of (..., R) numbers of crossed checkpoints."""
    rows, columns = sorted(set(layout.initialisations)), sorted(set(layout.orders))
    at = np.empty((len(rows), len(columns)), dtype=int)
    for place, (i, o) in enumerate(zip(layout.initialisations, layout.orders, strict=True)):
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


def mean_squares(table: np.ndarray) -> np.ndarray:
    """(..., 3) mean squares of initialisations, orders and what is left of (..., I, J) numbers."""
    rows, columns = table.shape[-2:]
    by_row, by_column = table.mean(axis=-1, keepdims=True), table.mean(axis=-2, keepdims=True)
    mean = table.mean(axis=(-2, -1), keepdims=True)
    remainder = table - by_row - by_column + mean
    sums = (
        columns * ((by_row - mean) ** 2).sum(axis=(-2, -1)) / (rows - 1),
        rows * ((by_column - mean) ** 2).sum(axis=(-2, -1)) / (columns - 1),
        (remainder**2).sum(axis=(-2, -1)) / ((rows - 1) * (columns - 1)),
    )
    return np.stack(sums, axis=-1)


def crossed_variance(tables: np.ndarray) -> MeanVariance:
    """Of the mean of one design's crossed checkpoints, pooled over the designs.

    Args:
        tables: (..., D, I, J) numbers of D designs, two or more.

    Raises:
        ValidationError: one design.
    """
    designs, rows, columns = tables.shape[-3:]
    if designs < 2:
        raise ValidationError("the variance of crossed checkpoints needs two designs")
    square = mean_squares(tables).mean(axis=-2)
    df = designs * np.array([rows - 1, columns - 1, (rows - 1) * (columns - 1)])
    adding = square[..., 0] + square[..., 1]
    split = adding - square[..., 2]
    by_two = square[..., 0] ** 2 / df[0] + square[..., 1] ** 2 / df[1]
    safe = np.where(by_two > 0, by_two, 1.0)
    satterthwaite = np.where(by_two > 0, np.maximum(split, 0.0) ** 2 / safe, df[:2].sum())
    plain = (square * df).sum(axis=-1) / df.sum()
    larger = split > plain
    count = rows * columns
    return MeanVariance(
        np.where(larger, split, plain) / count,
        np.where(larger, np.maximum(1.0, satterthwaite), df.sum()),
    )
