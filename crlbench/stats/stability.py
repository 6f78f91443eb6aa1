"""Stability (protocol CRL-1, A.2): how alike seeds end, and whether what was learned stays.

Notation: ũ the 3-point centred mean of u; F the mean of a run's last 3 evaluations; H its head
start; G = max ũ - H its peak gain. A failed run stays in, with u = 0 at most from the failure on.

=============  ===========================================================================
dispersion     GMD, mean of |F_i - F_j| over pairs of seeds
risk           CVaR.3, mean of the worst ⌈.3 n⌉ of F
drawdown       DD = max_j (max_{l≤j} ũ_l - ũ_j) - E_0, floored at 0 (long-term risk)
within         IQR of Δu in sliding windows of 5, minus its expectation under the null
short term     mean of the worst 10 % of Δu
failure        posterior mean (x + ½) / (n + 1) of x failures in n runs
=============  ===========================================================================

The headline of a task is the geometric mean of four shares (:data:`PARTS`): one catastrophe
cannot be averaged away. Every transform is fixed, so that no entry moves another one's number.
E_0 and the null are those of :mod:`nulls`. The measures are those of Chan et al. 2020,
"Measuring the reliability of reinforcement learning algorithms", for few seeds and 0/1 scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crlbench.base.added import added_field
from crlbench.errors import ValidationError
from crlbench.stats.intervals import Interval
from crlbench.stats.nulls import CurveNull, curve_nulls
from crlbench.stats.sorting import row_at, sorted_rows
from crlbench.stats.stability_shares import (
    PARTS,
    TaskStress,
    failure_posterior,
    gini_mean_difference,
    headline,
    mean_of_worst,
    shares,
    worst_seeds,
)
from crlbench.stats.thresholds import clopper_pearson

LAST = 3
"""Evaluations at the end of a run whose mean is F."""
WINDOW = 5
"""First differences in a window of the dispersion within a run."""
WORST_STEPS = (1, 10)
"""Short-term risk: a tenth of the first differences."""
LEARNED = 0.05
"""Mean gain from which a task is rated."""
SEEDS_FOR_IQR = 10
QUARTILES = (0.25, 0.75)

Rating = Literal["rated", "did not learn", "too few seeds"]


def smoothed(u: np.ndarray) -> np.ndarray:
    """(..., T) 3-point centred mean; the ends have one neighbour and are means of two."""
    u = np.asarray(u, dtype=np.float64)
    # In the order of the memory of u, where time may stand first.
    total = u.copy(order="K")
    total[..., 1:] += u[..., :-1]
    total[..., :-1] += u[..., 1:]
    counts = np.full(u.shape[-1], 3)
    counts[0] -= 1
    counts[-1] -= 1
    return total / counts


def _time_first(u: np.ndarray) -> np.ndarray:
    """(T, ...) of (..., T) curves, contiguous."""
    return np.ascontiguousarray(np.moveaxis(u, -1, 0))


def final(u: np.ndarray) -> np.ndarray:
    """F, (...): mean of the last 3 evaluations of (..., T) curves."""
    return np.asarray(u)[..., -LAST:].mean(axis=-1)


def peak_gain(u: np.ndarray, head: np.ndarray | float) -> np.ndarray:
    """G, (...): the highest ũ minus the head start."""
    return smoothed(u).max(axis=-1) - head


def max_drawdown(u: np.ndarray) -> np.ndarray:
    """(...) largest fall of ũ below its highest value so far; noise makes it positive."""
    smooth = smoothed(u)
    rows = _time_first(smooth).reshape(smooth.shape[-1], -1)
    highest, deepest = rows[0].copy(), np.zeros(rows.shape[1])
    for row in rows[1:]:
        np.maximum(highest, row, out=highest)
        np.maximum(deepest, highest - row, out=deepest)
    return deepest.reshape(smooth.shape[:-1])


def dispersion_within(u: np.ndarray) -> np.ndarray:
    """(...) IQR of the first differences in windows of 5, mean over the windows, raw."""
    steps = np.diff(_time_first(u), axis=0)
    width = min(WINDOW, len(steps))
    if width == 0:
        return np.zeros(steps.shape[1:])
    last = len(steps) - width + 1
    rows = sorted_rows([steps[k : k + last] for k in range(width)])
    low, high = (row_at(rows, q * (width - 1)) for q in QUARTILES)
    return (high - low).mean(axis=0)


def interquartile_range(values: np.ndarray) -> np.ndarray:
    """(...) IQR over the last axis, quartiles by linear interpolation."""
    rows = np.moveaxis(np.sort(values, axis=-1), -1, 0)
    low, high = (row_at(rows, q * (len(rows) - 1)) for q in QUARTILES)
    return high - low


def worst_steps(u: np.ndarray) -> np.ndarray:
    """Short-term risk, (...): mean of the lowest tenth (at least one) of the first differences."""
    return mean_of_worst(np.diff(u, axis=-1), WORST_STEPS)


@dataclass(frozen=True)
class RunStability:
    """One run, in u."""

    final: float
    """F."""
    head: float
    """H."""
    peak: float
    """G."""
    drawdown_raw: float
    drawdown_expected: float
    """E_0."""
    drawdown: float
    """DD, corrected and floored at 0."""
    dispersion_raw: float
    dispersion_expected: float
    dispersion: float
    """Within the run, corrected; below 0 where the run is calmer than the null expects."""
    short_term: float
    """Mean of the worst tenth of Δu."""
    failed: bool


def run_stability(
    u: np.ndarray,
    head: float,
    items: np.ndarray,
    task: str,
    seed_index: int,
    failed: bool = False,
) -> RunStability:
    """The parts of one run.

    Args:
        u: (T,) the curve on the whole grid, 0 from a failure on.
        head: H, from the start model's own draws.
        items: (M, N) scores in u of the same items at the M ≤ T measured evaluations.
        task, seed_index: name the draws of the null.

    Raises:
        ValidationError: fewer than two evaluations, or a value that is no number.
    """
    return runs_stability([u], [head], [items], task, [seed_index], [failed])[0]


def runs_stability(
    curves: Sequence[np.ndarray],
    heads: Sequence[float],
    items: Sequence[np.ndarray],
    task: str,
    seed_indices: Sequence[int],
    failed: Sequence[bool],
) -> tuple[RunStability, ...]:
    """The parts of several runs of one task at once; arguments per run as for one.

    ``items`` of no evaluation, (0, N): nothing was measured, and nothing is corrected.

    Raises:
        ValidationError: as for :func:`run_stability`.
    """
    u = [
        _check(curve, rows, f"task '{task}', seed index {index}")
        for curve, rows, index in zip(curves, items, seed_indices, strict=True)
    ]
    expected = _expect(items, task, seed_indices)
    one_grid = len({len(curve) for curve in u}) == 1
    rows = _measure(np.stack(u)).T if one_grid else [_measure(curve) for curve in u]
    results = []
    for row, head, bad, (drop_0, spread_0) in zip(rows, heads, failed, expected, strict=True):
        end, highest, drop, spread, short = row.tolist()
        results.append(
            RunStability(
                final=end,
                head=float(head),
                peak=highest - float(head),
                drawdown_raw=drop,
                drawdown_expected=drop_0,
                drawdown=max(0.0, drop - drop_0),
                dispersion_raw=spread,
                dispersion_expected=spread_0,
                dispersion=spread - spread_0,
                short_term=short,
                failed=bad,
            )
        )
    return tuple(results)


def _measure(u: np.ndarray) -> np.ndarray:
    """(5, ...) F, highest ũ, drawdown, dispersion within and short-term risk, all raw."""
    numbers = (final, lambda c: peak_gain(c, 0.0), max_drawdown, dispersion_within, worst_steps)
    return np.stack([number(u) for number in numbers])


def _expect(
    items: Sequence[np.ndarray], task: str, seed_indices: Sequence[int]
) -> list[tuple[float, float]]:
    """Per run the expected drawdown and dispersion; runs of one length share their arrays."""
    expectations = [(0.0, 0.0)] * len(items)
    for points in sorted({len(rows) for rows in items} - {0}):
        same = [i for i, rows in enumerate(items) if len(rows) == points]
        null = curve_nulls([items[i] for i in same], task, [seed_indices[i] for i in same])
        drops, spreads = (null.expectations(f) for f in (max_drawdown, dispersion_within))
        for i, drop, spread in zip(same, drops, spreads, strict=True):
            expectations[i] = float(drop), float(spread)
    return expectations


def _check(u: np.ndarray, items: np.ndarray, where: str) -> np.ndarray:
    u = np.asarray(u, dtype=np.float64)
    if len(u) < 2 or len(items) > len(u):
        raise ValidationError(
            f"{where}: {len(u)} evaluations of which {len(items)} were measured: stability needs "
            "a curve of at least 2, and no more measured than there are."
        )
    if not (np.isfinite(u).all() and np.isfinite(items).all()):
        raise ValidationError(f"{where}: a score of the curve is not a finite number")
    return u


def expected_drawdown(null: CurveNull) -> float:
    """E_0: the largest drawdown of a run that never really falls."""
    return null.expectation(max_drawdown)


def expected_dispersion(null: CurveNull) -> float:
    """The dispersion within a run whose mean never really falls."""
    return null.expectation(dispersion_within)


@dataclass(frozen=True)
class TaskStability:
    """One model on one task."""

    n: int
    runs: tuple[RunStability, ...]
    rating: Rating
    value: float | None
    """Stab of the task; None where it is not rated, or lacks the stress arm that it rests on."""
    shares: dict[str, float] | None
    """:data:`PARTS`, without risk under protocol CRL-2; None for a single seed, which has no
    dispersion, and without the stress arm that Stab rests on."""
    gain: float
    """Mean of F - H."""
    gain_interval: Interval | None
    gmd: float | None
    """Dispersion across runs; None for a single seed."""
    iqr: float | None
    """The same as an IQR of F, from 10 seeds on."""
    cvar: float
    """Risk across runs: CVaR.3 of F."""
    cvar_gain: float
    """CVaR.3 of F - H."""
    median_gain: float
    peak: float
    """Mean of G."""
    drawdown: float
    """Mean of DD."""
    dispersion: float
    """Mean of the corrected dispersion within runs."""
    short_term: float
    failures: int
    failure_rate: float
    """Posterior mean."""
    failure_interval: Interval
    """Clopper-Pearson."""
    stress: TaskStress | None = added_field(None)
    """Under protocol CRL-2, where the stress arm was run."""


def task_stability(runs: Sequence[RunStability], gain_interval: Interval | None) -> TaskStability:
    """One model on one task, behind the gate.

    Args:
        runs: one per seed index, failed ones included.
        gain_interval: of the mean of F - H; None where seeds are too few for one.

    Raises:
        ValidationError: there is no run.
    """
    if not runs:
        raise ValidationError("stability of a task: no runs, so nothing can be said")
    n = len(runs)
    columns = {name: np.array([getattr(run, name) for run in runs]) for name in RUN_NUMBERS}
    ends, gains = columns["final"], columns["final"] - columns["head"]
    gain, failures = float(gains.mean()), sum(run.failed for run in runs)
    parts = shares(*seed_columns(runs))
    rating = rate(gain, gain_interval, n)
    return TaskStability(
        n=n,
        runs=tuple(runs),
        rating=rating,
        value=float(headline(parts)) if rating == "rated" else None,
        shares=dict(zip(PARTS, map(float, parts), strict=True)) if n > 1 else None,
        gain=gain,
        gain_interval=gain_interval,
        gmd=float(gini_mean_difference(ends)) if n > 1 else None,
        iqr=float(interquartile_range(ends)) if n >= SEEDS_FOR_IQR else None,
        cvar=float(worst_seeds(ends)),
        cvar_gain=float(worst_seeds(gains)),
        median_gain=float(np.median(gains)),
        peak=float(columns["peak"].mean()),
        drawdown=float(columns["drawdown"].mean()),
        dispersion=float(columns["dispersion"].mean()),
        short_term=float(columns["short_term"].mean()),
        failures=failures,
        failure_rate=float(failure_posterior(failures, n)),
        failure_interval=clopper_pearson(failures, n),
    )


def seed_columns(runs: Sequence[RunStability]) -> np.ndarray:
    """(5, n) what the headline of a task is made of: F, H, G, DD and whether the run failed."""
    return np.array([[r.final, r.head, r.peak, r.drawdown, r.failed] for r in runs], float).T


RUN_NUMBERS = ("final", "head", "peak", "drawdown", "dispersion", "short_term")


def rate(gain: float, interval: Interval | None, n: int) -> Rating:
    """The gate: a model that never moves is perfectly stable, and worth nothing.

    Rated with a mean gain of at least .05 whose interval lies above 0. A gain below .05 is "did
    not learn" with any number of seeds; a larger one needs an interval to be believed.
    """
    if gain < LEARNED:
        return "did not learn"
    if interval is None or n < 2:
        return "too few seeds"
    return "rated" if interval.low > 0 else "did not learn"


@dataclass(frozen=True)
class ModelStability:
    """One model over the K tasks of a board."""

    tasks: dict[str, TaskStability]
    rated: tuple[str, ...]
    value: float | None
    """Stab: mean over the rated tasks; None where they are fewer than K / 2."""
    reason: str | None
    """Why there is no value."""


def model_stability(
    tasks: Mapping[str, TaskStability], board: Iterable[str], unstressed: str = ""
) -> ModelStability:
    """Mean over the rated tasks, of which half of the board's must be.

    Args:
        tasks: by name; a task of the board without runs is absent.
        board: names of the K tasks.
        unstressed: why there can be no stress arm, where Stab rests on one; a clause.
    """
    names = sorted(board)
    rated = tuple(n for n in names if n in tasks and tasks[n].rating == "rated")
    by_task = {name: tasks[name] for name in names if name in tasks}
    enough = bool(rated) and 2 * len(rated) >= len(names)
    reason = None if enough else f"rated on {len(rated)} of {len(names)} tasks, half are needed"
    few = sum(task.rating == "too few seeds" for task in by_task.values())
    if reason is not None and few:
        reason += f"; {few} {'has' if few == 1 else 'have'} too few seeds"
    without = [name for name in rated if by_task[name].value is None]
    if enough and without:
        cure = "--arm stress" if not unstressed else f"there can be none: {unstressed}"
        reason = f"no three runs of the stress arm on {', '.join(without)} ({cure})"
    value = _mean_of(by_task, rated) if reason is None else None
    return ModelStability(tasks=by_task, rated=rated, value=value, reason=reason)


def _mean_of(tasks: Mapping[str, TaskStability], names: Sequence[str]) -> float:
    return float(np.mean([tasks[name].value for name in names]))
