"""All pairs of the designs of a board, for tiers and for the false-discovery line.

Tiers of designs need one variance from all of them: with a variance for each pair of crossed
designs, eight equal ones would be separated falsely in 13 to 29 % of boards. So every standard
error here is pooled over the designs with the same crossing
(:func:`crlbench.stats.designs.design_difference`), and the bar of the tiers is that of a common
variance::

    pairs = design_pairs(designs)
    minimum_effect_tiers(pairs.values, pairs.errors, pairs.df, margin, has_one_variance=True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from crlbench.stats.design_pool import Pool, check_board, make_pool
from crlbench.stats.designs import Design, design_difference, pooled_difference


@dataclass(frozen=True)
class DesignPairs:
    """The differences of D designs."""

    values: np.ndarray
    """(D,) means over checkpoints and tasks."""
    errors: np.ndarray
    """(D, D) standard errors of the differences; NaN for a pair that is refused, 0 on the
    diagonal."""
    df: np.ndarray
    """(D, D) their degrees of freedom; NaN as the errors are, and on the diagonal."""
    reasons: Mapping[tuple[int, int], str]
    """Why a pair, the lower position first, is refused."""
    warnings: Mapping[tuple[int, int], str]
    """Which designs of a pair vary more than the others."""


def design_pairs(designs: Sequence[Design]) -> DesignPairs:
    """Standard errors of all differences, pooled over the designs.

    Raises:
        ValidationError: a name occurs twice, or the tasks are not the same in the same order.
    """
    check_board(designs)
    count = len(designs)
    errors, df = np.full((count, count), np.nan), np.full((count, count), np.nan)
    np.fill_diagonal(errors, 0.0)
    reasons, warnings = {}, {}
    pools = _pools(designs)
    for i, j in combinations(range(count), 2):
        base, design = designs[i], designs[j]
        pool = pools.get(base.layout.crossing)
        if pool is not None and {base.name, design.name} <= set(pool.names):
            found = pooled_difference(pool, base, design)
        else:
            found = design_difference(base, design)
        if found.error is None or found.df is None:
            reasons[i, j] = str(found.reason)
            continue
        if found.warning is not None:
            warnings[i, j] = found.warning
        errors[i, j] = errors[j, i] = found.error
        df[i, j] = df[j, i] = found.df
    return DesignPairs(np.array([one.value for one in designs]), errors, df, reasons, warnings)


def _pools(designs: Sequence[Design]) -> dict[tuple[str, int, tuple[int, ...]], Pool]:
    """By crossing, where there is a pool of two designs or more."""
    groups: dict[tuple[str, int, tuple[int, ...]], list[Design]] = {}
    for one in designs:
        if one.layout.plan != "one" and one.layout.refusal is None:
            groups.setdefault(one.layout.crossing, []).append(one)
    pools = {key: make_pool(group) for key, group in groups.items() if len(group) > 1}
    return {key: pool for key, pool in pools.items() if isinstance(pool, Pool)}
