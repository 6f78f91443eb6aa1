"""The difference of two arms that share tasks, seeds and items, and its verdict.

It is resampled with the same draws on both sides (protocol CRL-1, A.6 points 2 and 6), and named
better, equivalent, worse or undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from crlbench.stats.intervals import (
    LEVEL,
    MIN_SEEDS,
    Interval,
    Replicates,
    common_rule,
    enough_seeds,
    expanded_at,
    half_width,
    least_seeds,
    mean_of_rows,
    satterthwaite,
    seed_shares,
    shrunk,
    student_around,
    student_quantile,
    variance_parts,
)
from crlbench.stats.paired_error import Apart, differences

EQUIVALENCE_LEVEL = 0.90
"""Level of the interval that must lie inside the margin: two one-sided tests at 5 %."""
LEVELS = (LEVEL, EQUIVALENCE_LEVEL)
POWER = 0.80
"""How likely the seeds of :func:`seeds_to_settle` would settle, were the estimate the truth."""
MOST_SEEDS = 200
"""No larger number of further seeds is looked for."""

Verdict = Literal["better", "equivalent", "worse", "undecided"]


@dataclass(frozen=True)
class Paired:
    """Arm minus base over the same tasks, seeds and items."""

    value: float
    """Difference of the two task-balanced locations."""
    interval: Interval | None
    """95 %; None where seeds are too few for one."""
    inner: Interval | None
    """90 %, which decides on equivalence."""
    verdict: Verdict
    correlation: float | None
    """Achieved correlation of the pairs inside tasks; None where it is undefined."""
    more_seeds: int | None
    """Further seeds that would likely settle an undecided verdict; None where it is settled."""
    n: int
    """Seeds (the smallest number over the tasks)."""


def paired(
    base: Sequence[Replicates],
    arm: Sequence[Replicates],
    margin: float,
    apart: Sequence[Apart] | None = None,
) -> Paired:
    """The paired difference of two arms and its verdict, by the rule of their replicates.

    Args:
        base, arm: replicates of the same tasks in the same order; position i of their values
            is the same seed index in both.
        margin: half-width of the equivalence region, in units of the values.
        apart: what :func:`crlbench.stats.paired_error.differences` gives for them, where it is
            known.
    """
    return paired_with_replicates(base, arm, margin, apart)[0]


def paired_with_replicates(
    base: Sequence[Replicates],
    arm: Sequence[Replicates],
    margin: float,
    apart: Sequence[Apart] | None = None,
) -> tuple[Paired, np.ndarray]:
    """The same, and (R,) replicates of the difference, the noise of single answers counted once."""
    pairs = list(zip(base, arm, strict=True))
    sizes = [len(b.values) for b, _ in pairs]
    value = float(np.mean([a.location - b.location for b, a in pairs]))
    apart = differences(base, arm) if apart is None else apart
    drawn = by_seed = mean_of_rows([part.drawn for part in apart])
    if not all(part.drawn is part.seeds for part in apart):
        by_seed = mean_of_rows([part.seeds for part in apart])
    by_item = mean_of_rows([part.items for part in apart])
    total, seeds, items = variance_parts(drawn, by_seed, by_item)
    whole = shrunk(value, drawn, total, seeds + items)
    outer = inner = None
    rule = common_rule([*base, *arm]) if enough_seeds(sizes) else None
    if rule == "shares":
        variances = [float(np.var(part.drawn)) for part in apart]
        worth = [min(b.size, a.size) for b, a in pairs]
        outer, inner = (around(value, variances, worth, level) for level in LEVELS)
    elif rule == "variance":
        shares = seed_shares([part.seeds for part in apart], sizes, len(apart))
        spread = satterthwaite(shares, sizes, items)
        outer, inner = (student_around(value, *spread, level) for level in LEVELS)
    elif rule == "percentile":
        outer, inner = expanded_at(whole, sizes, LEVELS)
    call, n, more = verdict(outer, inner, margin), min(sizes), None
    if call == "undecided":
        # The bootstrap variance of a mean of n is (n - 1) / n of the unbiased one.
        more = seeds_to_settle(value, seeds * n * n / max(1, n - 1), items, sizes, margin)
    return Paired(value, outer, inner, call, pair_correlation(pairs), more, n), whole


def around(
    value: float, variances: Sequence[float], seeds: Sequence[float], level: float = LEVEL
) -> Interval:
    """Student's interval of a difference of shares, which lies in [-1, 1]."""
    width = half_width(variances, seeds, level)
    return Interval(max(-1.0, value - width), min(1.0, value + width), level)


def verdict(outer: Interval | None, inner: Interval | None, margin: float) -> Verdict:
    """Equivalent if the 90 % interval lies inside ±margin, else by the 95 % interval and 0.

    Equivalence is asked first: a difference that is real and smaller than the margin is one
    that does not matter. Without an interval nothing is decided.
    """
    if outer is None or inner is None:
        return "undecided"
    if -margin <= inner.low and inner.high <= margin:
        return "equivalent"
    if outer.low > 0:
        return "better"
    return "worse" if outer.high < 0 else "undecided"


def pair_correlation(pairs: Sequence[tuple[Replicates, Replicates]]) -> float | None:
    """Pearson correlation of the seeds' values, pooled over tasks after centring each task."""
    x, y = (
        np.concatenate([pair[side].values - pair[side].values.mean() for pair in pairs])
        for side in (0, 1)
    )
    scale = math.sqrt(float(x @ x) * float(y @ y))
    if sum(len(b.values) - 1 for b, _ in pairs) < 2 or scale < 1e-15:
        return None
    return max(-1.0, min(1.0, float(x @ y) / scale))


def seeds_to_settle(
    value: float, per_seed: float, constant: float, sizes: Sequence[int], margin: float
) -> int:
    """Further seeds that would likely settle an undecided difference.

    The smallest number of seeds at which, were ``value`` the truth, the 95 % interval would
    exclude 0 or the 90 % interval lie inside ±margin with probability :data:`POWER` (normal
    theory, Student's t; protocol A.6 points 2 and 6). Where one seed cannot say how much seeds
    differ, the seeds that an interval needs at all.

    Args:
        per_seed: variance of the difference at one seed; it shrinks with 1 / n.
        constant: variance from the choice of items; it stays.
        sizes: per task the number of seeds so far.

    Returns:
        :data:`MOST_SEEDS` where that many would not be enough.
    """
    n, tasks = min(sizes), len(sizes)
    least = max(n + 1, least_seeds(tasks))
    if n < MIN_SEEDS:
        return least - n
    below = NormalDist().cdf

    def settles(count: int) -> bool:
        error, df = math.sqrt(per_seed / count + constant), tasks * (count - 1)
        if error == 0.0:
            return True
        size = abs(value) / error
        excluded = below(size - student_quantile(0.5 + LEVEL / 2, df))
        # Both ends of the inner interval must lie inside the margin.
        room, reach = margin / error, student_quantile(0.5 + EQUIVALENCE_LEVEL / 2, df)
        inside = below(room - size - reach) + below(room + size - reach) - 1.0
        return max(excluded, inside) >= POWER

    low, high = least, n + MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle + 1, high)
    return high - n
