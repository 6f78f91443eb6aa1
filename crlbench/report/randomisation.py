"""Which models differ: an all-pairs label-swap randomisation test (protocol CRL-1, A.6 point 4).

If two models learn alike, nobody could tell their results of one task and seed apart: each
such *block* may be swapped between them. The difference of their headlines, computed anew
under many swaps, is therefore the distribution that the real difference is held against. For
one pair this is exact at any number of seeds; no normality is assumed.

For all pairs together every replicate uses one coin per block, the same for every pair, so
that the replicates keep how the pairs depend on one another. Each difference is divided by its
own root mean square over the swaps. That scale is the same whichever swap is taken for the
data, so it leaves the test of one pair as it is; and it gives every pair the same spread, or
else one noisy or very distant model would set the bar for all. The step-down of Westfall and
Young (1993) then adjusts for the number of pairs: the family-wise error over pairs is
controlled approximately, because a pair that differs still takes part in the maxima.

Seeds are paired by index, and a pair is compared on the tasks that are rated for both.

Swaps of seeds are blind to what all seeds of a model share: its start, measured once, and the
choice of items. Bootstrap replicates of the items carry that into the test (``spread``); without
them the family-wise error grows with the number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.errors import ValidationError
from crlbench.report.intervals import (
    MIN_SEEDS,
    TRIM,
    Location,
    plain_mean,
    split_variance,
    trimmed_mean,
)
from crlbench.report.sorting import gaps
from crlbench.seeding import derive

REPLICATES = 10_000
SWAP_SEED = derive(0, "report", "randomisation")
"""Root of the swaps; those of a task depend on its name and its number of seeds besides."""

Differences = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Two models' (n, ...) seeds and (2n, S) ownership, see :class:`_Patterns`, to (S,) differences."""

TIE = 1e-9
"""Replicates this near to the observed |t| count as equal to it: rounding decides nothing."""
NOTHING = 1e-12
"""A difference below this share of the values is none."""


@dataclass(frozen=True, eq=False)
class Randomisation:
    """All pairs of M models; row minus column, NaN where a pair cannot be compared."""

    difference: np.ndarray
    """(M, M) mean over the common tasks of the difference of locations, antisymmetric."""
    t: np.ndarray
    """(M, M) the difference over its root mean square under swaps, antisymmetric."""
    raw: np.ndarray
    """(M, M) two-sided p-values of the pairs one by one, symmetric, 1 on the diagonal."""
    adjusted: np.ndarray
    """(M, M) the same, adjusted for all pairs by the step-down; never below ``raw``."""
    tasks: np.ndarray
    """(M, M) on how many tasks a pair was compared."""
    replicates: int
    """Swaps that were looked at, the observed data among them."""
    exact: bool
    """Whether these were all swaps that there are."""
    smallest: float
    """No p-value can be smaller than this, whatever the data."""
    reason: str | None = None
    """Why no pair could be tested; None where one could."""
    critical: float = np.nan
    """A pair of |t| above this is significant at the ``alpha`` that was asked for: the bar of the
    last step of the step-down. NaN where no pair could be tested."""


def randomise(
    strata: Sequence[np.ndarray],
    names: Sequence[str],
    location: Location = trimmed_mean,
    replicates: int = REPLICATES,
    seed: int = SWAP_SEED,
    differences: Differences | None = None,
    alpha: float = 0.05,
    spread: np.ndarray | None = None,
) -> Randomisation:
    """Test every pair of models.

    All 2^blocks swaps are enumerated where these are at most ``replicates`` and no ``spread`` is
    given; else as many are drawn and the observed data counted among them,
    p = (1 + hits) / (1 + replicates).

    Args:
        strata: per task (M, n) numbers, one per model and seed index, or (M, n, q) where a
            seed is described by q numbers. NaN from some seed on: the model has no more
            seeds; pairs are compared on the seeds of both. All NaN: not rated on the task.
        names: of the tasks, each once; with the numbers of seeds they name the draws.
        location: (S, n[, q]) to (S,), finite for every mixture of two models' seeds.
        differences: the same for all swaps of two models at once, where there is a faster way.
        alpha: of ``critical``.
        spread: (M, 3, replicates) of :func:`crlbench.report.replicates.spread`. The start of a
            model is measured once for all its seeds, and all seeds answer the same items: what
            that does to a difference no swap of seeds can show. Every replicate therefore moves
            as an item resample of the pair does, with the noise of single answers, which is in
            the seeds already, taken out.

    Raises:
        ValidationError: shapes that do not fit, a task named twice, a value that is infinite
            or missing between others, a location that is not finite.
    """
    values = _checked(strata, names)
    models = len(values[0]) if values else 0
    first, second = np.triu_indices(models, 1)
    sizes = [v.shape[1] for v in values]
    swaps, exact = draw_swaps(names, sizes, replicates, seed, spread is None)
    columns = len(swaps[0]) if swaps else 1
    total, square, shared = _accumulate(
        values, names, swaps, (first, second), location, differences
    )
    if spread is not None:
        _move_items(total, square, shared, spread, (first, second))
    known = np.flatnonzero(shared)
    size = max((float(np.nanmax(np.abs(v), initial=0.0)) for v in values), default=0.0)
    difference = np.where(shared > 0, total[:, 0] / np.maximum(shared, 1), np.nan)
    # The number of tasks stands in the difference and in its root mean square, and cancels.
    scale = np.sqrt(square)
    total *= np.divide(1.0, scale, out=np.zeros(len(scale)), where=scale > NOTHING * size)[:, None]
    p_raw, p_adjusted = (np.full(len(first), np.nan) for _ in range(2))
    p_raw[known], p_adjusted[known], critical = step_down(total[known], alpha)

    def square_form(pairs: np.ndarray, mirrored: float, diagonal: float) -> np.ndarray:
        full = np.full((models, models), diagonal)
        full[first, second], full[second, first] = pairs, mirrored * pairs
        return full

    return Randomisation(
        difference=square_form(difference, -1.0, 0.0),
        t=square_form(np.where(shared > 0, total[:, 0], np.nan), -1.0, 0.0),
        raw=square_form(p_raw, 1.0, 1.0),
        adjusted=square_form(p_adjusted, 1.0, 1.0),
        tasks=square_form(shared, 1.0, 0.0).astype(int),
        replicates=columns,
        exact=exact,
        smallest=_smallest(columns, exact),
        critical=critical,
        reason=_reason(values, models, bool(len(known))),
    )


def draw_swaps(
    names: Sequence[str],
    sizes: Sequence[int],
    replicates: int,
    seed: int = SWAP_SEED,
    enumerate_few: bool = True,
) -> tuple[list[np.ndarray], bool]:
    """Per task (C, n) True where a block is swapped; row 0 swaps nothing. And: are these all?"""
    blocks = sum(sizes)
    if enumerate_few and 2**blocks <= replicates:
        bits = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
        ends = np.cumsum(sizes, dtype=int)
        parts = [bits[:, end - n : end] for n, end in zip(sizes, ends, strict=True)]
        return [part.astype(bool) for part in parts], True
    drawn = []
    for name, n in zip(names, sizes, strict=True):
        generator = np.random.Generator(np.random.PCG64(derive(seed, name, "swaps", n)))
        rows = generator.integers(0, 2, size=(replicates + 1, n)).astype(bool)
        rows[0] = False
        drawn.append(rows)
    return drawn, False


def _move_items(
    total: np.ndarray,
    square: np.ndarray,
    shared: np.ndarray,
    spread: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
) -> None:
    """Add to every replicate, and to the mean square, what the choice of items does to a pair."""
    if spread.shape != (len(spread), 3, total.shape[1] - 1):
        raise ValidationError(
            f"item replicates of shape {spread.shape} for {total.shape[1] - 1} swaps; one of each "
            "kind is needed for every swap"
        )
    first, second = pairs
    centred = spread - spread.mean(axis=2, keepdims=True)
    variances = [_pair_variances(centred[:, kind], pairs) for kind in range(3)]
    both, (_, fixed) = variances[2], split_variance(*variances)
    moving = np.flatnonzero(both > 0)
    by_item = centred[:, 2]
    for pair in moving:
        moved = by_item[first[pair]] - by_item[second[pair]]
        moved *= shared[pair] * np.sqrt(min(1.0, fixed[pair] / both[pair]))
        total[pair, 1:] += moved
    square[moving] += shared[moving] ** 2 * fixed[moving]


def _pair_variances(centred: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(pairs,) variances of the differences of (M, R) replicates of mean 0."""
    first, second = pairs
    products = centred @ centred.T / centred.shape[1]
    own = np.diag(products)
    sums = own[first] + own[second]
    variances = sums - 2.0 * products[first, second]
    # What is left of two equal rows is rounding.
    return np.where(variances > NOTHING * sums, variances, 0.0)


def step_down(t: np.ndarray, alpha: float = 0.05) -> tuple[np.ndarray, np.ndarray, float]:
    """Raw p-values and those adjusted by max-|t| step-down.

    Args:
        t: (pairs, C) statistics, the observed ones in column 0.

    Returns:
        Two (pairs,) arrays. The larger |t|, the smaller the adjusted p, which is the share of
        columns whose largest |t| among the pairs no further apart reaches the observed one. And
        the (1 - alpha) quantile of the largest |t| among the pairs that are not significant,
        which lies between them and those that are.
    """
    observed = np.abs(t[:, 0])
    bar, columns = observed - TIE, t.shape[1]
    raw, adjusted, running = np.empty(len(t)), np.empty(len(t)), np.zeros(columns)
    order = np.argsort(observed, kind="stable")
    staying: np.ndarray | None = None
    for pair in order:
        size = np.abs(t[pair])
        np.maximum(running, size, out=running)
        raw[pair] = np.count_nonzero(size >= bar[pair]) / columns
        adjusted[pair] = np.count_nonzero(running >= bar[pair]) / columns
        if staying is None or adjusted[pair] > alpha:
            staying = running.copy()
    descending = order[::-1]
    adjusted[descending] = np.maximum.accumulate(adjusted[descending])
    return raw, adjusted, np.nan if staying is None else _upper_quantile(staying, alpha)


def _upper_quantile(values: np.ndarray, alpha: float) -> float:
    """The value that at most the share ``alpha`` of the values exceed."""
    return float(np.sort(values)[len(values) - 1 - int(alpha * len(values))])


@dataclass(frozen=True)
class _Patterns:
    """The distinct swaps of n blocks that the replicates use."""

    swapped: np.ndarray
    """(n, S) bool."""
    mine: np.ndarray
    """(2n, S) 1 where a value belongs to the first model; rows are its values, then the other's."""
    index: np.ndarray | slice
    """Which pattern each replicate uses."""


def _patterns(swaps: np.ndarray) -> _Patterns:
    """Few seeds have few patterns, so that each is computed once and looked up (C, n)."""
    columns, n = swaps.shape
    index: np.ndarray | slice = slice(None)
    if n < 31 and 2**n < columns:
        index = swaps @ (1 << np.arange(n))
        swaps = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    swapped = np.ascontiguousarray(swaps.T)
    return _Patterns(swapped, np.concatenate([~swapped, swapped]).astype(np.float32), index)


def _accumulate(
    values: Sequence[np.ndarray],
    names: Sequence[str],
    swaps: Sequence[np.ndarray],
    pairs: tuple[np.ndarray, np.ndarray],
    location: Location,
    differences: Differences | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums over the common tasks: (pairs, C) differences, (pairs,) mean squares, task counts."""
    first, second = pairs
    total = np.zeros((len(first), len(swaps[0]) if swaps else 1))
    square, shared = np.zeros(len(first)), np.zeros(len(first), dtype=int)
    for name, rows, drawn in zip(names, values, swaps, strict=True):
        counts = _seed_counts(name, rows)
        common = np.minimum(counts[first], counts[second])
        for n in np.unique(common[common >= MIN_SEEDS]):
            patterns = _patterns(drawn[:, :n])
            swapped = _difference_of(location, differences, int(n), patterns, name)
            for pair in np.flatnonzero(common == n):
                d = swapped(rows[first[pair], :n], rows[second[pair], :n])
                total[pair] += d[patterns.index]
                square[pair] += d @ d / len(d)
                shared[pair] += 1
    return total, square, shared


def _difference_of(
    location: Location, differences: Differences | None, n: int, patterns: _Patterns, task: str
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The function from two models' seeds to (S,) differences of their locations."""
    if differences is not None:
        return lambda a, b: differences(a, b, patterns.mine)
    if location is trimmed_mean:
        return lambda a, b: trimmed_differences(a, b, patterns.mine, int(TRIM * n))
    if location is plain_mean:
        signs = np.where(patterns.swapped, -1.0 / n, 1.0 / n)
        return lambda a, b: (a - b) @ signs

    def by_location(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        swap = patterns.swapped.T.reshape(-1, n, *[1] * (a.ndim - 1))
        d = location(np.where(swap, b, a)) - location(np.where(swap, a, b))
        if not np.isfinite(d).all():
            raise ValidationError(
                f"task {task}: the statistic is not finite for some mixture of two models' "
                "seeds, so that labels cannot be swapped; give it a value there"
            )
        return d

    return by_location


def trimmed_differences(a: np.ndarray, b: np.ndarray, mine: np.ndarray, cut: int) -> np.ndarray:
    """(S,) differences of trimmed means under swaps, without sorting any of them.

    Let v_1 <= ... <= v_2n be the values of both models, and let c_j of the j smallest belong to
    the first. With clip(c) = min(max(c, cut), n - cut), its sum of ranks cut+1 ... n-cut is a
    constant minus sum_j (v_j+1 - v_j) clip(c_j) (summation by parts), and that of the second
    the same constant minus the sum with j - c_j.

    Args:
        a, b: (n,) values of the two models.
        mine: (2n, S) 1 where a value of (a, b) belongs to the first model.
        cut: how many values are dropped at each end.
    """
    n = len(a)
    steps, count = gaps(np.concatenate([a, b]), mine)
    other = np.arange(1, 2 * n, dtype=count.dtype)[:, None] - count
    if cut:
        count, other = (np.clip(c, cut, n - cut) for c in (count, other))
    return steps @ (other - count) / (n - 2 * cut)


def _checked(strata: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    values = [np.asarray(rows, dtype=np.float64) for rows in strata]
    if len(values) != len(names):
        raise ValidationError(f"{len(values)} tasks have values, but {len(names)} have names")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise ValidationError(f"tasks named more than once: {', '.join(twice)}")
    for name, rows in zip(names, values, strict=True):
        if rows.ndim < 2 or len(rows) != len(values[0]):
            raise ValidationError(
                f"task {name}: shape {rows.shape}, but it must be (models, seeds) with "
                f"{len(values[0])} models as in task {names[0]}"
            )
    return values


def _seed_counts(task: str, rows: np.ndarray) -> np.ndarray:
    """(M,) how many seeds each model has; 0 where it is not rated on the task."""
    models, n = rows.shape[:2]
    known = np.isfinite(rows).reshape(models, n, -1).all(axis=-1)
    counts = known.sum(axis=1)
    gap = (known != (np.arange(n) < counts[:, None])).any(axis=1)
    endless = np.isinf(rows).reshape(models, -1).any(axis=1)
    if (gap | endless).any():
        model = int(np.flatnonzero(gap | endless)[0])
        raise ValidationError(
            f"task {task}, model {model}: a value is infinite or missing before others. Seeds "
            "count in prefix order; a run that failed or vanished has the value of a failed run"
        )
    return counts


def _smallest(columns: int, exact: bool) -> float:
    """Swapping every block changes the sign alone, so that two of all swaps reach |t|."""
    return min(1.0, 2.0 / columns) if exact else 1.0 / columns


def _reason(values: Sequence[np.ndarray], models: int, tested: bool) -> str | None:
    if tested:
        return None
    if models < 2:
        found = "one model" if models else "no model"
        return f"{found}: a comparison needs two"
    if max(rows.shape[1] for rows in values) < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds: how much seeds differ is not known"
    return f"no two models have {MIN_SEEDS} seeds of the same task"
