"""Differences of the rows of a board of protocol CRL-2, and what stays of their verdicts.

Rows with two checkpoints or more are compared as designs
(:func:`crlbench.stats.designs.design_difference`). Where no row has two, checkpoints are compared
as entries are (:mod:`crlbench.verdict.pairs`), and the verdict is about these checkpoints alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from crlbench.stats.designs import Design, design_difference
from crlbench.stats.intervals import MOST_DF, Interval, student_quantile
from crlbench.stats.minimum_effect import pair_degrees, pair_errors
from crlbench.stats.paired import (
    EQUIVALENCE_LEVEL,
    LEVELS,
    Verdict,
    verdict,
)
from crlbench.verdict.axes import LIMITS, MARGIN, Axis
from crlbench.verdict.design_rows import Group, common_tasks, counting, design_of, within
from crlbench.verdict.pairs import paired_axis

MOST_PAIRED = 25
"""Checkpoints that are compared one pair at a time, with the verdict of ``compare``. Of more, the
spread of their replicates gives all differences at once."""


@dataclass(frozen=True)
class DesignPair:
    """Two rows; a difference is that of ``second`` minus ``first``."""

    first: str
    second: str
    value: float | None
    """None with a ``reason``."""
    interval: Interval | None
    """95 %, over checkpoints, seeds and items, on these tasks."""
    inner: Interval | None
    """90 %, which decides on equivalence."""
    wider: Interval | None
    """95 % over other tasks as well."""
    call: Verdict | None
    """Of the second; None where the two were not compared."""
    error: float | None
    """Standard error on these tasks."""
    df: float | None
    """Its degrees of freedom."""
    q: float | None
    """Smallest false-discovery rate at which the verdict stays; None for an undecided pair."""
    stays: bool
    """Whether it stays at the rate of the page."""
    reason: str | None
    """Why the two were not compared."""


Kind = Literal["designs", "checkpoints"]
"""What the rows of a ranking are."""


def compare_rows(axis: Axis, groups: Sequence[Group], kind: Kind) -> list[DesignPair]:
    """Every pair of rows, without the false-discovery line."""
    if kind == "designs":
        return _compare_designs(axis, groups)
    if len(groups) > MOST_PAIRED:
        return _compare_at_once(axis, groups)
    return _compare_checkpoints(axis, groups)


def _compare_designs(axis: Axis, groups: Sequence[Group]) -> list[DesignPair]:
    tasks = {
        group.name: common_tasks([entry.axes[axis] for entry in counting(axis, group)])
        for group in groups
    }
    boards: dict[tuple[str, ...], dict[str, Design]] = {}
    pairs = []
    for a, b in combinations(groups, 2):
        names = tuple(sorted({*tasks[a.name]} & {*tasks[b.name]}))
        if not names:
            pairs.append(_uncompared(a, b, "The two have no task in common."))
            continue
        if names not in boards:
            boards[names] = {
                group.name: design
                for group in groups
                if {*names} <= {*tasks[group.name]}
                and (design := design_of(axis, group, names)) is not None
            }
        board = boards[names]
        others = [one for name, one in board.items() if name not in (a.name, b.name)]
        pairs.append(_of_designs(axis, board[a.name], board[b.name], others))
    return pairs


def _of_designs(axis: Axis, first: Design, second: Design, others: Sequence[Design]) -> DesignPair:
    found = design_difference(first, second, others)
    inner = design_difference(first, second, others, EQUIVALENCE_LEVEL).interval
    low, high = LIMITS[axis]
    bounds = (low - high, high - low)
    return DesignPair(
        first=first.name,
        second=second.name,
        value=found.value,
        interval=None if found.interval is None else within(found.interval, bounds),
        inner=inner,
        wider=None if found.wider is None else within(found.wider, bounds),
        call=None if found.interval is None else verdict(found.interval, inner, MARGIN),
        error=found.error,
        df=found.df,
        q=None,
        stays=False,
        reason=None if found.reason is None else f"{found.reason}.",
    )


def _compare_checkpoints(axis: Axis, groups: Sequence[Group]) -> list[DesignPair]:
    pairs = []
    for a, b in combinations(groups, 2):
        (first, *_), (second, *_) = counting(axis, a), counting(axis, b)
        found = paired_axis(axis, first, second)
        if found.effect is None:
            pairs.append(_uncompared(a, b, found.reason or "The two were not compared."))
            continue
        pairs.append(
            DesignPair(
                first=a.name,
                second=b.name,
                value=found.effect.value,
                interval=found.effect.interval,
                inner=found.effect.inner,
                wider=found.wider,
                call=found.effect.verdict,
                error=found.error,
                df=found.df,
                q=None,
                stays=False,
                reason=None,
            )
        )
    return pairs


def _compare_at_once(axis: Axis, groups: Sequence[Group]) -> list[DesignPair]:
    """Of many checkpoints: from the replicates of their headlines, by Student's t."""
    scores = [counting(axis, group)[0].axes[axis] for group in groups]
    n = min(score.n for score in scores)
    values = [score.value for score in scores]
    errors = pair_errors(np.stack([score.spread for score in scores]), n)
    degrees = _degrees(axis, groups, errors, n)
    pairs = []
    for i, j in combinations(range(len(groups)), 2):
        tasks = common_tasks([scores[i], scores[j]])
        if len(tasks) < max(len(scores[i].by_task), len(scores[j].by_task)):
            pairs += _compare_checkpoints(axis, [groups[i], groups[j]])
            continue
        value, error, df = values[j] - values[i], float(errors[i, j]), float(degrees[i, j])
        outer, inner = (
            Interval(value - half, value + half, level)
            for level in LEVELS
            for half in [student_quantile(0.5 + level / 2, df) * error]
        )
        call = verdict(outer, inner, MARGIN)
        names = (groups[i].name, groups[j].name)
        pairs.append(
            DesignPair(*names, value, outer, inner, None, call, error, df, None, False, None)
        )
    return pairs


def _degrees(axis: Axis, groups: Sequence[Group], errors: np.ndarray, n: int) -> np.ndarray:
    """(M, M) degrees of freedom of the errors; those of all tasks together for stability, which has
    no number of a seed."""
    entries = [counting(axis, group)[0] for group in groups]
    tasks = common_tasks([entry.axes[axis] for entry in entries])
    if axis == "stability" or not tasks:
        return np.full(errors.shape, max(1.0, len(tasks) * (n - 1.0)))
    seeds = [[entry.evidence.seeds(axis, task)[:n] for task in tasks] for entry in entries]
    return np.minimum(pair_degrees(np.array(seeds), errors), MOST_DF)


def _uncompared(a: Group, b: Group, reason: str) -> DesignPair:
    nothing = (None,) * 8
    return DesignPair(a.name, b.name, *nothing, False, reason)  # type: ignore[arg-type]
