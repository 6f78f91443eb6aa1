"""Which models differ: an all-pairs label-swap randomisation test (protocol CRL-1, A.6 point 4).

If two models learn alike, nobody could tell their results of one task and seed apart: each
such *block* may be swapped between them. The difference of their headlines, computed anew
under many swaps, is therefore the distribution that the real difference is held against. For
one pair this is exact at any number of seeds; no normality is assumed.

What is held against it is *studentised* (Janssen 1997; Chung and Romano 2013, "Exact and
asymptotically robust permutation tests"): under every swap the difference is divided by its own
standard error under that swap, which is estimated from how the paired differences of the seeds
vary inside tasks. Any statistic is exact where two models learn alike; this one also answers to
the difference of the headlines where they do not, one better here and the other there. Undivided,
swaps of a task on which two models are far apart spread the differences so widely that no
difference of headlines would ever be found.

For all pairs together every replicate uses one coin per block, the same for every pair, so
that the replicates keep how the pairs depend on one another. Each pair's statistics are then
divided by their root mean square over the swaps. It is the same whichever swap is taken for the
data, so it leaves the test of one pair as it is; and it gives every pair the same spread, or else
one odd model would set the bar for all. The step-down of Westfall and Young (1993) then adjusts
for the number of pairs: the family-wise error over pairs is controlled approximately, because a
pair that differs still takes part in the maxima.

The standard error is that of a plain mean of paired seeds, for the trimmed mean too. Its own,
from Winsorised seeds, is nearly 0 where the few seeds that a swap moved are trimmed away again,
so that the statistic would have its largest values there. A location of seeds that are described
by several numbers (Stab) has no paired differences; its differences are divided by their root
mean square alone, and are about learning alike on every task.

Seeds are paired by index, and a pair is compared on the tasks that are rated for both.

Swaps of seeds are blind to what all seeds of a model share: its start, measured once, and the
choice of items. Bootstrap replicates of the items carry that into the test (``spread``); without
them the family-wise error grows with the number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from crlbench.errors import ValidationError
from crlbench.seeding import derive
from crlbench.stats.intervals import (
    MIN_SEEDS,
    TRIM,
    Location,
    plain_mean,
    trimmed_mean,
)
from crlbench.stats.pair_statistics import NOTHING, Items, Summed
from crlbench.stats.sorting import gaps, sum_steps
from crlbench.stats.stability_shares import mirrored
from crlbench.stats.step_down import Before, Measured, Row, measured

REPLICATES = 10_000
SWAP_SEED = derive(0, "report", "randomisation")
"""Root of the swaps; those of a task depend on its name and its number of seeds besides."""

Differences = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(pairs, n, ...) seeds of two models each and (2n, S) ownership to (pairs, S) differences.
Ownership is 1 where a value belongs to the first model; rows are its values, then the other's."""

MOST_NARROW = 22
"""Seeds up to which counts, and products of two that add up to them, fit into a byte."""


@dataclass(frozen=True, eq=False)
class Tested:
    """What a later test of these models and of more takes over: each pair rests on its two."""

    tasks: tuple[tuple[str, int], ...]
    """Name and number of seeds of each task, which its draws rest on."""
    columns: int
    nothing: float
    """Below this a difference counted as 0."""
    measured: Measured
    """All pairs, in the order of the upper triangle."""


@dataclass(frozen=True, eq=False)
class Randomisation:
    """All pairs of M models; row minus column, NaN where a pair cannot be compared."""

    difference: np.ndarray
    """(M, M) mean over the common tasks of the difference of locations, antisymmetric."""
    t: np.ndarray
    """(M, M) the studentised difference over its root mean square under swaps, antisymmetric."""
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
    tested: Tested | None = None
    """For a later test; None where all swaps were enumerated, which more tasks would change."""


def randomise(
    strata: Sequence[np.ndarray],
    names: Sequence[str],
    location: Location = trimmed_mean,
    replicates: int = REPLICATES,
    seed: int = SWAP_SEED,
    differences: Differences | None = None,
    alpha: float = 0.05,
    spread: np.ndarray | None = None,
    before: tuple[Tested, np.ndarray] | None = None,
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
        location: (S, n[, q]) to (S,), finite for every mixture of two models' seeds. Studentised
            where a seed is one number.
        differences: the same for all swaps of two models at once, where there is a faster way.
        alpha: of ``critical``.
        spread: (M, 3, replicates) of :func:`crlbench.stats.resampling.spread`. The start of a
            model is measured once for all its seeds, and all seeds answer the same items: what
            that does to a difference no swap of seeds can show. Every replicate therefore moves
            as an item resample of the pair does, and the standard error grows by as much, with
            the noise of single answers, which is in the seeds already, taken out.
        before: an earlier test with the same location, replicates, seed and differences, and
            (models,) where its models, which have the same values and spread, are among these,
            in ascending order. Its pairs are not computed again, where tasks allow that.

    Raises:
        ValidationError: shapes that do not fit, a task named twice, a value that is infinite
            or missing between others, a location that is not finite.
    """
    values = _check(strata, names)
    models = len(values[0]) if values else 0
    first, second = np.triu_indices(models, 1)
    sizes = [v.shape[1] for v in values]
    swaps, exact = draw_swaps(names, sizes, replicates, seed, spread is None)
    columns = len(swaps[0]) if swaps else 1
    tasks = [
        _Task(name, rows, _seed_counts(name, rows), draws, location, differences)
        for name, rows, draws in zip(names, values, swaps, strict=True)
    ]
    items = None if spread is None else Items.of(spread, (first, second), columns)
    size = max((float(np.nanmax(np.abs(v), initial=0.0)) for v in values), default=0.0)
    work = _Pairs(tasks, (first, second), items, columns, NOTHING * size)
    of_tasks = tuple(zip(names, sizes, strict=True))
    earlier = None
    if before is not None and not exact and _still_holds(before[0], of_tasks, work):
        earlier = Before(_places(before[1], models), before[0].measured)
    test = measured(work, len(first), columns, alpha, earlier)
    comparable, t = test.shared > 0, test.t

    def square_form(pairs: np.ndarray, mirrored: float, diagonal: float) -> np.ndarray:
        full = np.full((models, models), diagonal)
        full[first, second], full[second, first] = pairs, mirrored * pairs
        return full

    return Randomisation(
        difference=square_form(test.difference, -1.0, 0.0),
        t=square_form(t, -1.0, 0.0),
        raw=square_form(test.raw, 1.0, 1.0),
        adjusted=square_form(test.adjusted, 1.0, 1.0),
        tasks=square_form(test.shared, 1.0, 0.0).astype(int),
        replicates=columns,
        exact=exact,
        smallest=_smallest(columns, exact),
        critical=test.critical,
        reason=_reason(values, models, bool(comparable.any())),
        tested=None if exact else Tested(of_tasks, columns, work.nothing, test),
    )


def _still_holds(earlier: Tested, tasks: tuple[tuple[str, int], ...], work: _Pairs) -> bool:
    """Whether the pairs of an earlier test have the statistics that they would have now."""
    square, columns = earlier.measured.square, earlier.columns
    before, now = (square <= columns * nothing**2 for nothing in (earlier.nothing, work.nothing))
    drawn_alike = columns == work.columns and {*earlier.tasks} <= {*tasks}
    return drawn_alike and bool((before == now).all())


def _places(of_models: np.ndarray, models: int) -> np.ndarray:
    """The numbers of the pairs of some models among those of all, in the upper triangle."""
    first, second = (of_models[ends] for ends in np.triu_indices(len(of_models), 1))
    return first * (2 * models - first - 1) // 2 + second - first - 1


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
    draws = []
    for name, n in zip(names, sizes, strict=True):
        generator = np.random.Generator(np.random.PCG64(derive(seed, name, "swaps", n)))
        rows = generator.integers(0, 2, size=(replicates + 1, n)).astype(bool)
        rows[0] = False
        draws.append(rows)
    return draws, False


@dataclass(frozen=True)
class _Pairs:
    """Computes the statistics of pairs, each by itself."""

    tasks: Sequence[_Task]
    models: tuple[np.ndarray, np.ndarray]
    """(pairs,) first and second of each pair."""
    items: Items | None
    columns: int
    nothing: float
    """A difference that counts as 0."""

    def __call__(self, pairs: np.ndarray, out: np.ndarray) -> list[Row]:
        """The statistics of some pairs into ``out``, (pairs, C) zeros."""
        first, second = (models[pairs] for models in self.models)
        tables = [_tables(task, first, second) for task in self.tasks]
        centred, spare = np.empty(self.columns), np.empty(self.columns)
        rows = []
        for place, pair in enumerate(pairs):
            pair_tables = [by_pair[place] for by_pair in tables if by_pair[place] is not None]
            if not pair_tables:
                rows.append(Row(0, np.nan))
                continue
            whole = _add_up(pair_tables, out[place], centred, spare)
            difference = float(out[place, 0]) / whole.tasks
            if self.items is not None:
                self.items.move(pair, whole)
            rows.append(Row(whole.tasks, difference, whole.studentise(self.nothing)))
        return rows


@dataclass(frozen=True)
class _Table:
    """One pair on one task under the distinct swaps of its seeds."""

    swaps: _Swaps
    differences: np.ndarray
    """(S,)"""
    centred: np.ndarray | None
    """(S,) squared standard error of the plain mean less that from 0; None where a seed is several
    numbers."""
    from_zero: float
    """Variance, were the paired differences taken from 0."""


def _tables(task: _Task, first: np.ndarray, second: np.ndarray) -> list[_Table | None]:
    """Of each pair of models; None where one of the two has too few seeds."""
    tables: list[_Table | None] = [None] * len(first)
    common = np.minimum(task.counts[first], task.counts[second])
    for n in map(int, np.unique(common[common >= MIN_SEEDS])):
        places, swaps = np.flatnonzero(common == n), task.swaps(n)
        a, b = task.values[first[places], :n], task.values[second[places], :n]
        if task.values.ndim > 2:
            d = swaps.differences(a, b)
            for place, row in zip(places, d, strict=True):
                tables[place] = _Table(swaps, row, None, 0.0)
            continue
        paired = a - b
        mean = sum_steps(paired, swaps.signs)
        d = mean if swaps.differences is None else swaps.differences(a, b)
        centred = mean * mean / (n - 1)
        for at, place in enumerate(places):
            from_zero = float(paired[at] @ paired[at]) / (n * (n - 1))
            tables[place] = _Table(swaps, d[at], centred[at], from_zero)
    return tables


def _add_up(
    tables: Sequence[_Table], out: np.ndarray, centred: np.ndarray, spare: np.ndarray
) -> Summed:
    """Of one pair, in the memory of the last three: (C,) each, ``out`` holds zeros."""
    from_zero, square = 0.0, 0.0
    centred[:] = 0.0
    for table in tables:
        d = table.differences
        if table.centred is None:
            square += d @ d / len(d)
        else:
            centred += table.swaps.looked_up(table.centred, spare)
            from_zero += table.from_zero
        out += table.swaps.looked_up(d, spare)
    return Summed(out, from_zero, centred, square, len(tables))


@dataclass(frozen=True)
class _Swaps:
    """The distinct swaps of n blocks of a task that the replicates use, and what they do."""

    signs: np.ndarray
    """(n, S) 1 where a block stays and -1 where it is swapped, over n."""
    differences: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
    """(pairs, n, ...) seeds of two models each to (pairs, S) differences of their locations; None
    for plain means."""
    index: np.ndarray | None
    """Which of them each replicate uses; None: one each."""

    def looked_up(self, values: np.ndarray, out: np.ndarray) -> np.ndarray:
        """(C,) of (S,) values."""
        # Clipping changes no index here, and numpy then writes to ``out`` without a copy.
        return values if self.index is None else values.take(self.index, out=out, mode="clip")


@dataclass(frozen=True)
class _Task:
    """What all models have of one task, and how it is swapped."""

    name: str
    values: np.ndarray
    """(M, n[, q])"""
    counts: np.ndarray
    """(M,) how many seeds each model has."""
    drawn: np.ndarray
    """(C, n) swaps."""
    location: Location
    given: Differences | None
    _known: dict[int, _Swaps] = field(default_factory=dict)

    def swaps(self, n: int) -> _Swaps:
        """Of the first n seeds."""
        if n not in self._known:
            patterns, index = _patterns(self.drawn[:, :n])
            differences = _difference_of(self.location, self.given, patterns, self.name)
            self._known[n] = _Swaps(np.where(patterns, -1.0 / n, 1.0 / n), differences, index)
        return self._known[n]


def _patterns(swaps: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(n, S) distinct swaps and which of them each of (C, n) is.

    Few seeds have few of them, so that each is computed once and looked up.
    """
    columns, n = swaps.shape
    index = None
    if n < 31 and 2**n < columns:
        index = swaps @ (1 << np.arange(n))
        swaps = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    return np.ascontiguousarray(swaps.T), index


def _difference_of(
    location: Location,
    differences: Differences | None,
    swapped: np.ndarray,
    task: str,
) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    """The function from pairs of models' seeds to (pairs, S) differences of their locations."""
    n = len(swapped)
    if location is plain_mean and differences is None:
        return None
    if differences is not None or location is trimmed_mean:
        kind = np.int8 if n <= MOST_NARROW else np.float32
        mine = np.concatenate([~swapped, swapped]).astype(kind)
        if differences is not None:
            return lambda a, b: differences(a, b, mine)
        cut = int(TRIM * n)
        if not mirrored(mine):
            return lambda a, b: trimmed_differences(a, b, mine, cut)
        half = np.ascontiguousarray(mine[:, : mine.shape[1] // 2])

        def from_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            halves = trimmed_differences(a, b, half, cut)
            return np.concatenate([halves, -halves[..., ::-1]], axis=-1)

        return from_half

    def by_location(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.stack([of_pair(*pair) for pair in zip(a, b, strict=True)])

    def of_pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        swap = swapped.T.reshape(-1, n, *[1] * (a.ndim - 1))
        d = location(np.where(swap, b, a)) - location(np.where(swap, a, b))
        if not np.isfinite(d).all():
            raise ValidationError(
                f"task {task}: the statistic is not finite for some mixture of two models' "
                "seeds, so that labels cannot be swapped; give it a value there"
            )
        return d

    return by_location


def trimmed_differences(a: np.ndarray, b: np.ndarray, mine: np.ndarray, cut: int) -> np.ndarray:
    """(..., S) differences of trimmed means under swaps, without sorting any of them.

    Let v_1 <= ... <= v_2n be the values of both models, and let c_j of the j smallest belong to
    the first. With clip(c) = min(max(c, cut), n - cut), its sum of ranks cut+1 ... n-cut is a
    constant minus sum_j (v_j+1 - v_j) clip(c_j) (summation by parts), and that of the second
    the same constant minus the sum with j - c_j.

    Args:
        a, b: (..., n) values of the two models.
        mine: (2n, S) 1 where a value of (a, b) belongs to the first model.
        cut: how many values are dropped at each end.
    """
    n = a.shape[-1]
    steps, count = gaps(np.concatenate([a, b], axis=-1), mine)
    other = np.arange(1, 2 * n, dtype=count.dtype)[:, None] - count
    if cut:
        for c in (count, other):
            np.clip(c, cut, n - cut, out=c)
    other -= count
    return sum_steps(steps, other) / (n - 2 * cut)


def _check(strata: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
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
    finite = np.isfinite(rows).reshape(models, n, -1).all(axis=-1)
    counts = finite.sum(axis=1)
    gap = (finite != (np.arange(n) < counts[:, None])).any(axis=1)
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
        who = "one model" if models else "no model"
        return f"{who}: a comparison needs two"
    if max(rows.shape[1] for rows in values) < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds: how much seeds differ is not known"
    return f"no two models have {MIN_SEEDS} seeds of the same task"
